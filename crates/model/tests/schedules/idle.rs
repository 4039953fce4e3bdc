//! Compares inactive tasks in random schedules with a simple reference, which stores every event of every task.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_model::{
    ByCause, Cause, Hist, Interval, Pending, Sample, TaskReading, Totals, Tree, findings::Host,
    json::IntervalObject, table::interval::Appended,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Start {
        cgroup: u64,
    },
    Wait {
        task: usize,
        ns: u64,
    },
    Run {
        task: usize,
        ns: u64,
    },
    /// The task starts or stops waiting.
    Pending {
        task: usize,
    },
    OnCpu {
        task: usize,
    },
    /// The task moves to another cgroup, and gets a new serial.
    Move {
        task: usize,
        cgroup: u64,
    },
    Rename {
        task: usize,
    },
    Exit {
        task: usize,
    },
    Read,
}

fn event() -> impl Strategy<Value = Event> {
    let (task, ns, cgroup) = (any::<usize>(), 1u64..1 << 36, 1u64..5);
    prop_oneof![
        3 => cgroup.clone().prop_map(|cgroup| Event::Start { cgroup }),
        3 => (task, ns.clone()).prop_map(|(task, ns)| Event::Wait { task, ns }),
        2 => (task, ns).prop_map(|(task, ns)| Event::Run { task, ns }),
        1 => task.prop_map(|task| Event::Pending { task }),
        1 => task.prop_map(|task| Event::OnCpu { task }),
        1 => (task, cgroup).prop_map(|(task, cgroup)| Event::Move { task, cgroup }),
        1 => task.prop_map(|task| Event::Rename { task }),
        1 => task.prop_map(|task| Event::Exit { task }),
        4 => Just(Event::Read),
    ]
}

#[derive(Clone, Debug)]
struct Task {
    reading: Arc<TaskReading>,
    waits: Vec<u64>,
    ran_ns: u64,
}

/// A host whose Samples share readings. The reference has the work of each task until each Sample.
#[derive(Default)]
struct Schedule {
    now_ns: u64,
    started: u32,
    tasks: Vec<Task>,
    samples: Vec<Sample>,
    reference: Vec<BTreeMap<u64, Task>>,
}

impl Schedule {
    fn of(events: &[Event]) -> Self {
        let mut schedule = Self::default();
        schedule.apply(&Event::Read);
        events.iter().chain([&Event::Read]).for_each(|event| schedule.apply(event));
        schedule
    }

    fn apply(&mut self, event: &Event) {
        self.now_ns += 1_000;
        match event {
            Event::Start { cgroup } => {
                self.started += 1;
                let tid = self.started;
                let reading =
                    TaskReading { tid, tgid: tid / 3, start_ns: self.now_ns, ..TaskReading::default() };
                let serial = u64::from(tid) << 20;
                let comm = format!("t{tid}").into();
                self.add(TaskReading { serial, cgroup_id: *cgroup, comm, ..reading });
            }
            Event::Read => self.read(),
            Event::Move { task, cgroup } => {
                if let Some(at) = self.pick(*task) {
                    let Task { reading, .. } = self.tasks.remove(at);
                    let moved_ns = Some(self.now_ns);
                    let (totals, hist) = Default::default();
                    let reading = (*reading).clone();
                    let serial = reading.serial + 1;
                    self.add(TaskReading { serial, moved_ns, cgroup_id: *cgroup, totals, hist, ..reading });
                }
            }
            Event::Exit { task } => drop(self.pick(*task).map(|at| self.tasks.remove(at))),
            Event::Wait { task, .. }
            | Event::Run { task, .. }
            | Event::Pending { task }
            | Event::OnCpu { task }
            | Event::Rename { task } => {
                if let Some(at) = self.pick(*task) {
                    self.tasks[at].change(event);
                }
            }
        }
    }

    fn add(&mut self, reading: TaskReading) {
        let at = self.tasks.partition_point(|task| task.reading.serial < reading.serial);
        self.tasks.insert(at, Task { reading: Arc::new(reading), waits: Vec::new(), ran_ns: 0 });
    }

    fn pick(&self, task: usize) -> Option<usize> {
        (!self.tasks.is_empty()).then(|| task % self.tasks.len())
    }

    fn read(&mut self) {
        for task in &mut self.tasks {
            // The collector always makes a new reading of a waiting task.
            if task.reading.pending.is_some() {
                task.change(&Event::Pending { task: 0 });
                task.change(&Event::Pending { task: 0 });
            }
        }
        let tasks = self.tasks.iter().map(|task| task.reading.clone()).collect();
        let cgroups = (1..4).zip(["/", "/a", "/a/b"].map(Arc::from)).collect();
        self.samples.push(Sample { mono_ns: self.now_ns, tasks, cgroups, ..Sample::default() });
        self.reference.push(self.tasks.iter().map(|task| (task.reading.serial, task.clone())).collect());
    }
}

impl Task {
    fn change(&mut self, event: &Event) {
        match event {
            Event::Wait { ns, .. } => self.waits.push(*ns),
            Event::Run { ns, .. } => self.ran_ns += ns,
            _ => {}
        }
        let totals = self.totals(0, 0);
        let reading = Arc::make_mut(&mut self.reading);
        match event {
            Event::Pending { .. } => {
                reading.pending =
                    reading.pending.is_none().then(|| Pending { ns: 7, ..Pending::default() }.into());
            }
            Event::OnCpu { .. } => reading.on_cpu ^= true,
            Event::Rename { .. } => reading.comm = format!("{}'", reading.comm).into(),
            _ => {}
        }
        reading.max_ns = self.waits.iter().copied().max().unwrap_or(0);
        (reading.totals, reading.hist) = (totals, Arc::new(Hist::from_waits_ns(self.waits.iter().copied())));
    }

    /// Returns the totals without the first `waits` waits and `ran_ns` of run time.
    fn totals(&self, waits: usize, ran_ns: u64) -> Totals {
        let wait_ns = self.waits[waits..].iter().sum();
        Totals {
            waits: (self.waits.len() - waits) as u64,
            wait_ns,
            on_cpu_ns: self.ran_ns - ran_ns,
            by_cause: ByCause::only(Cause::Wakeup, wait_ns),
            ..Totals::default()
        }
    }
}

/// Returns the totals and waits of each task between two Samples, computed from the events between them.
fn reference(schedule: &Schedule, from: usize, until: usize) -> BTreeMap<u64, (Totals, Hist)> {
    let since = &schedule.reference[from];
    let now = schedule.reference[until].iter().map(|(serial, task)| {
        let (waits, ran_ns) = since.get(serial).map_or((0, 0), |before| (before.waits.len(), before.ran_ns));
        let hist = Hist::from_waits_ns(task.waits[waits..].iter().copied());
        (*serial, (task.totals(waits, ran_ns), hist))
    });
    now.collect()
}

fn figures(interval: &Interval) -> BTreeMap<u64, (Totals, Hist)> {
    let tasks = interval.tasks.iter();
    tasks.map(|task| (task.reading.serial, (task.totals, task.wait.hist.clone()))).collect()
}

/// Checks that all values derived from the interval are the same as without idle tasks.
fn same_as_whole(interval: &Interval) -> Result<(), TestCaseError> {
    let whole = interval.with_idle().into_owned();
    prop_assert_eq!(whole.idle.len(), 0);
    prop_assert!(whole.readings().eq(interval.readings()));
    prop_assert_eq!(interval.total(), whole.total());
    prop_assert_eq!(interval.by_cgroup(), whole.by_cgroup());
    let by_process = |interval: &Interval| -> Vec<_> {
        interval.processes().into_iter().map(|process| (process.pid, process.group)).collect()
    };
    prop_assert_eq!(by_process(interval), by_process(&whole));
    prop_assert_eq!(interval.naming_tasks(), whole.naming_tasks());
    let named = |interval: &Interval| -> Vec<u64> {
        interval.processes().iter().map(|process| interval.reading(process.named_by).serial).collect()
    };
    prop_assert_eq!(named(interval), named(&whole));
    for (node, plain) in Tree::new(interval).nodes().iter().zip(Tree::new(&whole).nodes()) {
        prop_assert_eq!((node.has_tasks, node.has_own_tasks()), (plain.has_tasks, plain.has_own_tasks()));
    }
    let json = |interval: &Interval, all: bool| {
        serde_json::to_value(IntervalObject { all, ..IntervalObject::new(interval, &Host::default()) })
            .unwrap()
    };
    prop_assert_eq!(json(interval, true), json(&whole, true));
    let short = json(interval, false);
    prop_assert_eq!(&short, &json(&whole, false));
    let listed = short["tasks"].as_array().unwrap().len() as u64;
    prop_assert_eq!(listed + short["idle_tasks"].as_u64().unwrap(), whole.tasks.len() as u64);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn tasks_and_idle_tasks_have_the_figures_of_a_plain_reference(
        events in prop::collection::vec(event(), 0..150),
    ) {
        let schedule = Schedule::of(&events);
        for (at, pair) in schedule.samples.windows(2).enumerate() {
            let interval = Interval::between(&pair[0], &pair[1]);
            let plain = reference(&schedule, at, at + 1);
            prop_assert_eq!(&figures(&interval.with_idle()), &plain);
            let before = &schedule.reference[at];
            let idle: BTreeSet<u64> = interval.idle.iter().map(|idle| idle.serial).collect();
            for (serial, (totals, _)) in &plain {
                let now = &schedule.reference[at + 1][serial].reading;
                let is_still = *totals == Totals::default() && now.pending.is_none() && !now.on_cpu;
                prop_assert_eq!(idle.contains(serial), is_still && before.contains_key(serial));
            }
            for (reading, sampled) in interval.readings().zip(&pair[1].tasks) {
                prop_assert_eq!(reading, &**sampled);
            }
            same_as_whole(&interval)?;
        }
    }

    #[test]
    fn appended_intervals_lose_nothing(events in prop::collection::vec(event(), 0..150)) {
        let schedule = Schedule::of(&events);
        let (mut sums, mut plain) = (Appended::default(), Appended::default());
        for pair in schedule.samples.windows(2) {
            let interval = Interval::between(&pair[0], &pair[1]);
            plain.push(interval.with_idle().into_owned());
            sums.push(interval);
        }
        let whole = sums.into_interval();
        let all = whole.with_idle().into_owned();
        let plain = plain.into_interval();
        prop_assert_eq!(all, plain);
        same_as_whole(&whole)?;
        let last = schedule.samples.len() - 1;
        let living = reference(&schedule, 0, last);
        for (serial, figures) in figures(&whole.with_idle()) {
            if let Some(expected) = living.get(&serial) {
                prop_assert_eq!(&figures, expected);
            }
        }
    }
}
