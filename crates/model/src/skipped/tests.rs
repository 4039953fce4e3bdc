use proptest::prelude::*;

use super::*;
use crate::{ByCause, Cause, Group, Hist};

/// Work of a task, or of the exited tasks of a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
struct Did {
    totals: Totals,
    hist: Hist,
}

impl Did {
    fn add(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        self.hist.add(&other.hist);
    }

    fn since(&self, before: &Self) -> Self {
        let totals = self.totals.since(&before.totals).expect("it grows");
        Self { totals, hist: self.hist.since(&before.hist).expect("it grows") }
    }

    fn once(ran_ns: u64, wait_ns: u64, cause: Cause) -> Self {
        let totals = Totals {
            on_cpu_ns: ran_ns,
            waits: 1,
            wait_ns,
            by_cause: ByCause::only(cause, wait_ns),
            ..Totals::default()
        };
        Self { totals, hist: Hist::of_cause(cause, [wait_ns]) }
    }
}

#[derive(Debug)]
struct Task {
    serial: u64,
    cgroup_id: u64,
    start_ns: u64,
    moved_ns: Option<u64>,
    /// True if the task moved and has not been read since then.
    is_new_here: bool,
    did: Did,
    /// The task's work when it entered its cgroup.
    base: Did,
    reported: Did,
}

#[derive(Clone, Debug, Default)]
struct Place {
    tasks: u64,
    did: Did,
}

/// A simulated kernel and collector, which report each task. When a task exits, its unreported work is added to the exited tasks.
#[derive(Debug, Default)]
struct Kernel {
    now_ns: u64,
    serial: u64,
    tasks: Vec<Task>,
    places: BTreeMap<u64, Place>,
    /// Cgroups whose place for exited tasks was freed after the latest reading. No task moves to these cgroups before the next
    /// reading.
    given_back: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Fork(u64),
    Run(usize, u64, u64, usize),
    Move(usize, u64),
    Exit(usize),
    Read { is_seen: bool, gives_back: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let cgroup = 1..4u64;
    prop_oneof![
        2 => cgroup.clone().prop_map(Step::Fork),
        6 => (any::<usize>(), 0..1_000u64, 1..9_000u64, 0..Cause::ALL.len())
            .prop_map(|(task, ran_ns, wait_ns, cause)| Step::Run(task, ran_ns, wait_ns, cause)),
        1 => (any::<usize>(), cgroup).prop_map(|(task, to)| Step::Move(task, to)),
        2 => any::<usize>().prop_map(Step::Exit),
        3 => (prop::bool::weighted(0.4), any::<bool>())
            .prop_map(|(is_seen, gives_back)| Step::Read { is_seen, gives_back }),
    ]
}

impl Kernel {
    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn pick(&self, at: usize) -> Option<usize> {
        (!self.tasks.is_empty()).then(|| at % self.tasks.len())
    }

    fn take(&mut self, step: &Step) {
        self.now_ns += 1;
        match *step {
            Step::Fork(cgroup_id) if !self.given_back.contains(&cgroup_id) => {
                let (serial, start_ns, nothing) = (self.serial(), self.now_ns, Did::default());
                self.places.entry(cgroup_id).or_default();
                let (did, base, reported) = (nothing.clone(), nothing.clone(), nothing);
                let (moved_ns, is_new_here) = (None, false);
                self.tasks.push(Task {
                    serial,
                    cgroup_id,
                    start_ns,
                    moved_ns,
                    is_new_here,
                    did,
                    base,
                    reported,
                });
            }
            Step::Run(at, ran_ns, wait_ns, cause) => {
                if let Some(at) = self.pick(at) {
                    self.tasks[at].did.add(&Did::once(ran_ns, wait_ns, Cause::ALL[cause]));
                }
            }
            Step::Move(at, to) if !self.given_back.contains(&to) => {
                let Some(at) = self.pick(at).filter(|at| self.tasks[*at].cgroup_id != to) else { return };
                let serial = self.serial();
                self.hand_over(at);
                self.places.entry(to).or_default();
                let task = &mut self.tasks[at];
                (task.serial, task.cgroup_id, task.is_new_here) = (serial, to, true);
                task.base = task.did.clone();
                let task = self.tasks.remove(at);
                self.tasks.push(task);
            }
            Step::Exit(at) => {
                if let Some(at) = self.pick(at) {
                    self.hand_over(at).tasks += 1;
                    self.tasks.remove(at);
                }
            }
            Step::Fork(_) | Step::Move(..) | Step::Read { .. } => {}
        }
    }

    fn hand_over(&mut self, at: usize) -> &mut Place {
        let task = &mut self.tasks[at];
        let place = self.places.entry(task.cgroup_id).or_default();
        place.did.add(&task.did.since(&task.reported));
        task.reported = task.did.clone();
        place
    }

    fn read(&mut self, gives_back: bool) -> Sample {
        self.given_back.clear();
        let mono_ns = self.now_ns;
        self.now_ns += 1;
        for task in &mut self.tasks {
            if std::mem::take(&mut task.is_new_here) {
                task.moved_ns = Some(self.now_ns);
            }
            task.reported = task.did.clone();
        }
        let tasks = self.tasks.iter().map(|task| {
            let Did { totals, hist } = task.did.since(&task.base);
            let Task { serial, cgroup_id, start_ns, moved_ns, .. } = *task;
            let hist = Arc::new(hist);
            let reading =
                TaskReading { serial, cgroup_id, start_ns, moved_ns, totals, hist, ..TaskReading::default() };
            Arc::new(reading)
        });
        let exited = self.places.iter().map(|(id, place)| ExitedReading {
            cgroup_id: *id,
            tasks: place.tasks,
            max_ns: 0,
            totals: place.did.totals,
            accounts: None,
            hist: Arc::new(place.did.hist.clone()),
        });
        let cgroups = self.places.keys().map(|id| (*id, format!("/{id}").into()));
        let (tasks, exited, cgroups) = (tasks.collect(), exited.collect(), cgroups.collect());
        let sample = Sample { mono_ns, tasks, exited, cgroups, ..Sample::default() };
        if gives_back {
            let tasks = &self.tasks;
            let given_back =
                self.places.extract_if(.., |id, _| tasks.iter().all(|task| task.cgroup_id != *id));
            self.given_back = given_back.map(|(id, _)| id).collect();
        }
        sample
    }
}

#[derive(Debug, Default, PartialEq)]
struct Sums(BTreeMap<Option<Arc<str>>, (Did, u64)>);

impl Sums {
    fn add(&mut self, interval: &Interval) {
        for (path, group) in interval.by_cgroup() {
            let Group { totals, wait, exited, .. } = group;
            assert_eq!(
                (wait.count, wait.total_ns, wait.by_cause),
                (totals.waits, totals.wait_ns, totals.by_cause)
            );
            let did = Did { totals, hist: wait.hist };
            if exited == 0 && did == Did::default() {
                continue;
            }
            let sum = self.0.entry(path).or_default();
            sum.0.add(&did);
            sum.1 += exited;
        }
    }
}

fn run(steps: &[Step]) -> Vec<(Sample, bool)> {
    let mut kernel = Kernel::default();
    let mut samples = vec![(kernel.read(false), true)];
    for step in steps {
        kernel.take(step);
        if let Step::Read { is_seen, gives_back } = *step {
            samples.push((kernel.read(gives_back), is_seen));
        }
    }
    samples.push((kernel.read(false), true));
    samples
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_reader_that_skips_samples_has_the_same_sums_as_one_that_reads_each(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let samples = run(&steps);
        let (mut each, mut viewer, mut scraper) = (Sums::default(), Sums::default(), Sums::default());
        // Index of the latest Sample that the viewer received, and that Sample.
        let (mut at, mut sent) = (0usize, samples[0].0.clone());
        let (mut of_viewer, mut of_scraper) = (Skipped::default(), Skipped::default());
        for (now, pair) in (1..).zip(samples.windows(2)) {
            let [(before, _), (sample, is_seen)] = pair else { unreachable!() };
            each.add(&Interval::between(before, sample));
            let ended = ended(before, sample);
            if Skipped::concerns(&ended, now as u64, at as u64) {
                let since = &samples[at].0;
                of_viewer.add(since, &ended);
                of_scraper.add(since, &ended);
            }
            if *is_seen {
                scraper.add(&Interval::over(&samples[at].0, sample, &mut of_scraper));
                of_scraper = Skipped::default();
                let mut next = sample.clone();
                of_viewer.add_to(&mut next);
                viewer.add(&Interval::between(&sent, &next));
                (at, sent) = (now, next);
            }
        }
        prop_assert_eq!(&viewer, &each);
        prop_assert_eq!(&scraper, &each);
    }
}

fn task(serial: u64, cgroup_id: u64, ran_ns: u64) -> TaskReading {
    let totals = Totals { on_cpu_ns: ran_ns, ..Totals::default() };
    TaskReading { serial, cgroup_id, start_ns: 5, totals, ..TaskReading::default() }
}

fn sample(mono_ns: u64, tasks: &[TaskReading]) -> Sample {
    let cgroups = tasks.iter().map(|task| (task.cgroup_id, format!("/{}", task.cgroup_id).into())).collect();
    Sample { mono_ns, tasks: tasks.iter().cloned().map(Arc::new).collect(), cgroups, ..Sample::default() }
}

#[test]
fn work_of_a_task_that_exited_in_a_skipped_sample_counts_for_its_cgroup() {
    let samples = [
        sample(10, &[task(1, 7, 100), task(2, 8, 0)]),
        sample(20, &[task(1, 7, 130), task(2, 8, 0)]),
        sample(30, &[task(2, 8, 4)]),
    ];
    let mut skipped = Skipped::default();
    skipped.add(&samples[0], &ended(&samples[1], &samples[2]));
    let interval = Interval::over(&samples[0], &samples[2], &mut skipped);
    let ran = |path: &str| interval.by_cgroup().get(&Some(path.into())).map(|group| group.totals.on_cpu_ns);
    assert_eq!((ran("/7"), ran("/8")), (Some(30), Some(4)));
    // The work of a task that started before its first reading is unknown.
    let late = sample(20, &[task(1, 7, 130), task(9, 8, 500)]);
    let mut skipped = Skipped::default();
    skipped.add(&samples[0], &ended(&late, &samples[2]));
    assert_eq!(Interval::over(&samples[0], &samples[2], &mut skipped).total().totals.on_cpu_ns, 34);
}

#[test]
fn sums_are_held_only_for_cgroups_of_the_latest_interval() {
    let mut skipped = Skipped::default();
    let first = sample(10, &[]);
    let before = |id| sample(20, &[task(id, id, 9)]);
    for id in 1..100 {
        skipped.add(&sample(4, &[]), &ended(&before(id), &first));
        let mut next = first.clone();
        skipped.add_to(&mut next);
        assert_eq!((next.exited.len(), next.exited[0].cgroup_id, next.cgroups[0].0), (1, id, id));
    }
    let mut next = first.clone();
    skipped.add_to(&mut next);
    assert_eq!((next, skipped.is_empty()), (first, true));
}

/// Simulates a viewer with an interval of a day, on a host that creates and removes thousands of cgroups each second.
#[test]
fn the_memory_of_skipped_samples_is_bounded_and_their_sum_is_kept() {
    const CGROUPS: u64 = 100_000;
    let (mut skipped, first) = (Skipped::default(), sample(10, &[]));
    let mut most = 0;
    for id in 2..CGROUPS + 2 {
        skipped.add(&sample(4, &[]), &ended(&sample(20, &[task(id, id, 9)]), &first));
        most = most.max(skipped.memory_bytes());
    }
    assert!(most < 4 << 20, "{most} bytes");
    let interval = Interval::over(&first, &sample(30, &[]), &mut skipped);
    assert_eq!(interval.total().totals.on_cpu_ns, 9 * CGROUPS);
    assert_eq!(interval.exited.len(), MOST_CGROUPS + 1);
    assert_eq!(interval.losses.get(Loss::ExitedInOtherCgroup), CGROUPS - MOST_CGROUPS as u64);
    // Another viewer's next sample also contains the sums, and counts the loss once.
    let mut next = first.clone();
    skipped.add_to(&mut next);
    assert_eq!(next.losses.get(Loss::ExitedInOtherCgroup), CGROUPS - MOST_CGROUPS as u64);
}

/// The reader has already received exited tasks of a cgroup. When the cgroup is removed, its sum has no place, and only the
/// increase counts for the root.
#[test]
fn what_the_reader_has_is_not_counted_again_for_the_root() {
    let with = |cgroups: &[(u64, u64)]| Sample {
        exited: cgroups
            .iter()
            .map(|(id, tasks)| ExitedReading { cgroup_id: *id, ..exited(*tasks, 100 * tasks) })
            .collect(),
        ..sample(10, &[])
    };
    let known = MOST_CGROUPS as u64 + 7;
    let first = with(&[(1, 50), (known, 1_000)]);
    let many: Vec<_> = (2..MOST_CGROUPS as u64 + 2).map(|id| (id, 1)).chain([(known, 1_003)]).collect();
    let mut skipped = Skipped::default();
    skipped.add(&first, &with(&many));
    let interval = Interval::over(&first, &with(&[(1, 50)]), &mut skipped);
    let of_root = interval.exited.iter().find(|exited| exited.cgroup_id == 1).expect("a row");
    assert_eq!((of_root.tasks, of_root.totals.on_cpu_ns), (3, 300));
    assert_eq!(interval.exited.iter().map(|exited| exited.tasks).sum::<u64>(), MOST_CGROUPS as u64 + 3);
}

// Below, places for exited tasks are freed although their cgroups still exist.

fn exited(tasks: u64, ran_ns: u64) -> ExitedReading {
    let totals = Totals { on_cpu_ns: ran_ns, ..Totals::default() };
    ExitedReading { cgroup_id: 7, tasks, max_ns: 0, totals, accounts: None, hist: Default::default() }
}

/// Returns the number of exited tasks and the run time in each interval after the first Sample. Each element of `read` is a
/// Sample: the last reading of a place that was freed before this Sample, and the reading of the current place.
fn ran(read: &[(Option<ExitedReading>, Option<ExitedReading>)]) -> Vec<(u64, u64)> {
    let mut given_back = ExitedSums::default();
    let mut samples = read.iter().map(|(last, place)| {
        last.iter().for_each(|last| given_back.take(last.clone()));
        let mut exited: Vec<_> = place.iter().cloned().collect();
        given_back.add_to(&mut exited);
        Sample { exited, ..Sample::default() }
    });
    let mut before = samples.next().expect("one");
    let interval = |now: Sample| {
        let total = Interval::between(&before, &now).total();
        before = now;
        (total.exited, total.totals.on_cpu_ns)
    };
    samples.map(interval).collect()
}

#[test]
fn exits_in_a_place_that_is_recreated_at_once_are_counted() {
    let read = [
        (None, Some(exited(3, 500))),
        (Some(exited(3, 500)), Some(exited(1, 20))),
        (None, Some(exited(2, 25))),
        (Some(exited(2, 25)), Some(exited(1, 4))),
        (None, Some(exited(1, 4))),
    ];
    assert_eq!(ran(&read), [(1, 20), (1, 5), (1, 4), (0, 0)]);
}

#[test]
fn exits_between_the_reading_and_the_release_of_a_place_are_counted_once() {
    let read = [
        (None, Some(exited(3, 500))),
        (Some(exited(4, 507)), None),
        (None, None),
        (None, Some(exited(1, 9))),
        (None, Some(exited(1, 9))),
    ];
    assert_eq!(ran(&read), [(1, 7), (0, 0), (1, 9), (0, 0)]);
    let mut given_back = ExitedSums::default();
    given_back.take(exited(1, 1));
    (0..2).for_each(|_| given_back.add_to(&mut Vec::new()));
    assert!(given_back.0.is_empty());
}
