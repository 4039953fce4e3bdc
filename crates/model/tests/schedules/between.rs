//! Tests properties of `Interval::between` with random histories of a host. Tasks start, wait, are read and exit. When a task
//! exits, a simulated collector reports its unreported waits.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_model::{
    ByCause, Cause, ExitedReading, Group, Hist, Interval, Pending, Sample, TaskReading, TaskState, Totals,
    table::interval::Appended,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Fork {
        cgroup: u64,
    },
    /// The living task with this number (modulo the number of living tasks) waits for `ns`.
    Wait {
        task: usize,
        ns: u64,
    },
    Move {
        task: usize,
        cgroup: u64,
    },
    Exit {
        task: usize,
    },
    Read,
}

fn event() -> impl Strategy<Value = Event> {
    let cgroup = 1u64..5;
    prop_oneof![
        2 => cgroup.clone().prop_map(|cgroup| Event::Fork { cgroup }),
        8 => (any::<usize>(), 0u64..1 << 36).prop_map(|(task, ns)| Event::Wait { task, ns }),
        1 => (any::<usize>(), cgroup).prop_map(|(task, cgroup)| Event::Move { task, cgroup }),
        2 => any::<usize>().prop_map(|task| Event::Exit { task }),
        2 => Just(Event::Read),
    ]
}

#[derive(Clone, Debug, Default)]
struct Task {
    reading: Option<TaskReading>,
    waits: Vec<u64>,
    /// Number of waits that were read.
    reported: usize,
}

#[derive(Default)]
struct Host {
    now_ns: u64,
    next: u64,
    alive: BTreeMap<u64, Task>,
    exited: BTreeMap<u64, (u64, Vec<u64>)>,
    all: Vec<u64>,
}

impl Host {
    fn pick(&self, task: usize) -> Option<u64> {
        (!self.alive.is_empty()).then(|| *self.alive.keys().nth(task % self.alive.len()).unwrap())
    }

    fn apply(&mut self, event: &Event) {
        self.now_ns += 1_000;
        match event {
            Event::Fork { cgroup } => {
                self.next += 1;
                let reading = TaskReading {
                    serial: self.next,
                    tid: self.next as u32,
                    tgid: (self.next / 3) as u32,
                    comm: "task".into(),
                    start_ns: self.now_ns,
                    cgroup_id: *cgroup,
                    ..TaskReading::default()
                };
                self.alive.insert(self.next, Task { reading: Some(reading), ..Task::default() });
            }
            Event::Wait { task, ns } => {
                let Some(task) = self.pick(*task) else { return };
                self.alive.get_mut(&task).unwrap().waits.push(*ns);
                self.all.push(*ns);
            }
            Event::Move { task, cgroup } => {
                let Some(task) = self.pick(*task) else { return };
                self.alive.get_mut(&task).unwrap().reading.as_mut().unwrap().cgroup_id = *cgroup;
            }
            Event::Exit { task } => {
                let Some(task) = self.pick(*task) else { return };
                let task = self.alive.remove(&task).unwrap();
                let place = self.exited.entry(task.reading.unwrap().cgroup_id).or_default();
                place.0 += 1;
                place.1.extend(&task.waits[task.reported..]);
            }
            Event::Read => {}
        }
    }

    fn read(&mut self) -> Sample {
        self.now_ns += 1_000;
        let totals = |waits: &[u64]| Totals {
            waits: waits.len() as u64,
            wait_ns: waits.iter().sum(),
            run_delay_ns: waits.iter().sum(),
            by_cause: ByCause::only(Cause::Wakeup, waits.iter().sum()),
            ..Totals::default()
        };
        let max = |waits: &[u64]| waits.iter().copied().max().unwrap_or(0);
        let tasks = self.alive.values_mut().map(|task| {
            task.reported = task.waits.len();
            let hist = Arc::new(Hist::from_waits_ns(task.waits.iter().copied()));
            Arc::new(TaskReading {
                totals: totals(&task.waits),
                max_ns: max(&task.waits),
                hist,
                ..task.reading.clone().unwrap()
            })
        });
        let tasks = tasks.collect();
        let exited = self.exited.iter().map(|(cgroup_id, (tasks, waits))| ExitedReading {
            accounts: None,
            cgroup_id: *cgroup_id,
            tasks: *tasks,
            max_ns: max(waits),
            totals: totals(waits),
            hist: Arc::new(Hist::from_waits_ns(waits.iter().copied())),
        });
        let exited = exited.collect();
        let cgroups =
            (1..5).map(|id| (id, format!("/{}", ["a", "a/b", "a/b/c", "d"][id as usize - 1]).into()));
        Sample {
            unix_ns: self.now_ns,
            mono_ns: self.now_ns,
            tasks,
            exited,
            cgroups: cgroups.collect(),
            ..Sample::default()
        }
    }
}

/// Returns the Samples of a history: at its start, at every `Read`, and at its end.
fn samples(events: &[Event]) -> (Vec<Sample>, Vec<u64>) {
    let mut host = Host::default();
    let mut samples = vec![host.read()];
    for event in events {
        host.apply(event);
        if matches!(event, Event::Read) {
            samples.push(host.read());
        }
    }
    samples.push(host.read());
    (samples, host.all)
}

fn intervals(samples: &[Sample]) -> Vec<Interval> {
    samples.windows(2).map(|pair| Interval::between(&pair[0], &pair[1])).collect()
}

fn appended(intervals: Vec<Interval>) -> Interval {
    let mut whole = Interval::default();
    for interval in intervals {
        whole.append(interval);
    }
    whole
}

fn essence(group: &Group) -> (u64, u64, Hist) {
    (group.wait.count, group.wait.total_ns, group.wait.hist.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_wait_is_in_exactly_one_interval(events in prop::collection::vec(event(), 0..120)) {
        let (samples, all) = samples(&events);
        let expected = (all.len() as u64, all.iter().sum::<u64>(), Hist::from_waits_ns(all.iter().copied()));
        let parts = intervals(&samples);
        let sum: u64 = parts.iter().map(|interval| interval.total().wait.total_ns).sum();
        prop_assert_eq!(sum, expected.1);
        prop_assert_eq!(essence(&appended(parts).total()), expected);
    }

    #[test]
    fn appending_intervals_in_any_grouping_gives_the_same(
        events in prop::collection::vec(event(), 0..120),
        cut in any::<prop::sample::Index>(),
    ) {
        let (samples, _) = samples(&events);
        let mut parts = intervals(&samples);
        let at_once = appended(parts.clone());
        let tail = parts.split_off(cut.index(parts.len()));
        let (mut head, tail) = (appended(parts), appended(tail));
        if tail.duration_ns != 0 {
            head.append(tail);
        }
        prop_assert_eq!(head, at_once);
    }

    #[test]
    fn a_cgroup_includes_all_below_it_and_the_root_includes_everything(events in prop::collection::vec(event(), 0..120)) {
        let (samples, _) = samples(&events);
        for interval in intervals(&samples) {
            let groups = interval.by_cgroup();
            let sum = |path: &str| groups.get(&Some(path.into())).map_or(0, |group| group.wait.total_ns);
            let total = interval.total();
            prop_assert_eq!(sum("/"), total.wait.total_ns);
            prop_assert!(sum("/a") >= sum("/a/b") && sum("/a/b") >= sum("/a/b/c"));
            prop_assert_eq!(sum("/a") + sum("/d"), total.wait.total_ns);
            let of_tasks: u64 = interval.tasks.iter().map(|task| task.wait.total_ns).sum();
            let of_processes: u64 = interval.processes().iter().map(|process| process.group.wait.total_ns).sum();
            prop_assert_eq!(of_tasks, of_processes);
        }
    }

    #[test]
    fn the_longest_wait_is_never_understated_and_within_the_bound(events in prop::collection::vec(event(), 0..120)) {
        let (samples, all) = samples(&events);
        let whole = appended(intervals(&samples));
        let longest = all.iter().copied().max().unwrap_or(0);
        let said = whole.total().wait.max_ns;
        prop_assert!(said >= longest && said as f64 <= longest as f64 * 1.126 + 125.0, "{} {}", said, longest);
    }

    #[test]
    fn nothing_happens_between_a_sample_and_itself(events in prop::collection::vec(event(), 0..60)) {
        let (samples, _) = samples(&events);
        let last = &samples[samples.len() - 1];
        let interval = Interval::between(last, last);
        prop_assert_eq!(essence(&interval.total()), (0, 0, Hist::default()));
        prop_assert_eq!(interval.duration_ns, 0);
    }

    #[test]
    fn a_counter_that_decreases_gives_no_reading(events in prop::collection::vec(event(), 1..60)) {
        // With the Samples in reverse order, tasks that waited and new tasks have no reading. So no reading is negative.
        let (samples, _) = samples(&events);
        let interval = Interval::between(&samples[samples.len() - 1], &samples[0]);
        prop_assert!(interval.tasks.iter().all(|task| task.wait.total_ns == 0));
    }
}

#[test]
fn a_task_that_exits_while_it_waits_does_not_wait_at_the_end() {
    let mut host = Host::default();
    let empty = host.read();
    host.apply(&Event::Fork { cgroup: 1 });
    let mut waiting = host.read();
    Arc::make_mut(&mut waiting.tasks[0]).pending = Some(Pending { ns: 5, ..Pending::default() }.into());
    let mut whole = Interval::between(&empty, &waiting);
    assert_eq!(whole.total().pending, 1);
    host.apply(&Event::Exit { task: 0 });
    whole.append(Interval::between(&waiting, &host.read()));
    assert_eq!((whole.total().pending, whole.total().exited), (0, 1));
}

#[test]
fn a_task_has_its_last_state_and_an_exited_task_has_none() {
    let mut host = Host::default();
    let empty = host.read();
    host.apply(&Event::Fork { cgroup: 1 });
    host.apply(&Event::Fork { cgroup: 1 });
    let reading = |host: &mut Host, states: &[TaskState]| {
        let mut sample = host.read();
        for (task, state) in sample.tasks.iter_mut().zip(states) {
            Arc::make_mut(task).state = Some(*state);
        }
        sample
    };
    let first = reading(&mut host, &[TaskState::Running, TaskState::Running]);
    let second = reading(&mut host, &[TaskState::Sleeping, TaskState::DiskSleep]);
    host.apply(&Event::Exit { task: 1 });
    let last = reading(&mut host, &[TaskState::Stopped]);
    let states = |interval: &Interval| -> Vec<_> {
        interval.tasks.iter().map(|task| task.reading.state.map(TaskState::letter)).collect()
    };
    let mut whole = Interval::between(&empty, &first);
    assert_eq!(states(&whole), [Some('R'), Some('R')]);
    whole.append(Interval::between(&first, &second));
    assert_eq!(states(&whole), [Some('S'), Some('D')]);
    let end = Interval::between(&second, &last);
    whole.append(end.clone());
    assert_eq!(states(&whole), [Some('T'), None]);
    let anew = end.with_tasks(empty.mono_ns, Vec::new(), Vec::new(), &last.tasks, second.tasks.clone());
    assert_eq!(states(&anew), [Some('T'), None]);
}

#[test]
fn the_first_reading_of_an_older_task_gives_no_figures() {
    let mut host = Host::default();
    host.apply(&Event::Fork { cgroup: 1 });
    host.apply(&Event::Wait { task: 0, ns: 7_000 });
    let before = Sample { tasks: Vec::new(), ..host.read() };
    let interval = Interval::between(&before, &host.read());
    assert!(interval.tasks.is_empty());
}

#[test]
fn figures_of_merged_tasks_stay_with_their_cgroup() {
    let sample = |round| cgscope_made_up::with_accounts(cgscope_made_up::host(60, 8, round));
    let mut whole = Appended::default();
    (1..4).for_each(|round| whole.push(Interval::between(&sample(round), &sample(round + 1))));
    let mut merged = Appended::default();
    for round in 1..4 {
        merged.push(Interval::between(&sample(round), &sample(round + 1)));
        // Half of the tasks are merged. They appear again in the next round and are merged again.
        merged.merge_exited(|task| task.tid % 2 == 0);
    }
    assert!(merged.held() < whole.held());
    let (whole, merged) = (whole.into_interval(), merged.into_interval());
    assert_eq!((whole.tasks.len(), merged.tasks.len()), (60, 30));
    let (all, rest) = (whole.total(), merged.total());
    assert_eq!((all.totals, all.wait, all.accounts), (rest.totals, rest.wait, rest.accounts));
    assert_eq!(all.exited, rest.exited, "no task exited");
    for (path, group) in whole.by_cgroup() {
        let same = &merged.by_cgroup()[&path];
        assert_eq!((group.totals, group.accounts), (same.totals, same.accounts), "{path:?}");
    }
}
