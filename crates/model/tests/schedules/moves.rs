//! Tests that each cgroup has the work that a moving task did in it, and that the task's own row has all its work. The reference
//! is a simple sum.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_model::{BeforeMove, ExitedReading, Interval, Sample, TaskReading, Totals};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Run(u64),
    Move(u64),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..1_000).prop_map(Step::Run),
        2 => (1u64..5).prop_map(Step::Move),
        2 => Just(Step::Read),
    ];
    prop::collection::vec(step, 0..60)
}

#[derive(Default)]
struct Kernel {
    ran_ns: u64,
    /// Run time that the collector has reported, or has added to exited tasks.
    reported_ns: u64,
    base_ns: u64,
    moved_ns: Option<u64>,
    has_moved: bool,
    serial: u64,
    cgroup: u64,
    exited: BTreeMap<u64, u64>,
    readings: u64,
}

impl Kernel {
    fn move_to(&mut self, cgroup: u64) {
        if cgroup == self.cgroup {
            return;
        }
        *self.exited.entry(self.cgroup).or_default() += self.ran_ns - self.reported_ns;
        (self.reported_ns, self.base_ns, self.has_moved) = (self.ran_ns, self.ran_ns, true);
        (self.cgroup, self.serial) = (cgroup, self.serial + 1);
    }

    fn read(&mut self) -> Sample {
        self.readings += 1;
        let mono_ns = self.readings * 1_000;
        if std::mem::take(&mut self.has_moved) {
            self.moved_ns = Some(mono_ns);
        }
        self.reported_ns = self.ran_ns;
        let totals = |on_cpu_ns| Totals { on_cpu_ns, ..Totals::default() };
        let task = TaskReading {
            serial: self.serial,
            tid: 7,
            tgid: 7,
            start_ns: 1,
            moved_ns: self.moved_ns,
            before_move: self
                .moved_ns
                .map(|_| Arc::new(BeforeMove { totals: totals(self.base_ns), ..BeforeMove::default() })),
            cgroup_id: self.cgroup,
            totals: totals(self.ran_ns - self.base_ns),
            ..TaskReading::default()
        };
        let exited = self.exited.iter().map(|(id, ns)| ExitedReading {
            cgroup_id: *id,
            tasks: 0,
            max_ns: 0,
            totals: totals(*ns),
            accounts: None,
            hist: Arc::default(),
        });
        Sample { mono_ns, tasks: vec![Arc::new(task)], exited: exited.collect(), ..Sample::default() }
    }
}

fn by_cgroup(interval: &Interval) -> BTreeMap<u64, u64> {
    let tasks = interval.tasks.iter().map(|task| (task.reading.cgroup_id, task.totals.on_cpu_ns));
    let exited = interval.exited.iter().map(|exited| (exited.cgroup_id, exited.totals.on_cpu_ns));
    let mut sums = BTreeMap::new();
    for (id, ns) in tasks.chain(exited).filter(|(_, ns)| *ns != 0) {
        *sums.entry(id).or_default() += ns;
    }
    sums
}

/// Returns the run time in the task's row, if any, ns.
fn own_row(interval: &Interval) -> u64 {
    assert!(interval.tasks.len() + interval.idle.len() <= 1, "{interval:?}");
    interval.tasks.iter().map(|task| task.all_totals().on_cpu_ns).sum()
}

proptest! {
    #[test]
    fn each_cgroup_gets_the_work_that_was_done_in_it(steps in steps()) {
        let mut kernel = Kernel { cgroup: 1, serial: 100, ..Kernel::default() };
        let mut last = kernel.read();
        let first = last.clone();
        let (mut whole, mut interval, mut plain) = (Interval::default(), BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new());
        for step in steps.into_iter().chain([Step::Read]) {
            match step {
                Step::Run(ns) => {
                    kernel.ran_ns += ns;
                    *plain.entry(kernel.cgroup).or_default() += ns;
                    *interval.entry(kernel.cgroup).or_default() += ns;
                }
                Step::Move(to) => kernel.move_to(to),
                Step::Read => {
                    let now = kernel.read();
                    let between = Interval::between(&last, &now);
                    prop_assert_eq!(own_row(&between), interval.values().sum::<u64>());
                    prop_assert_eq!(between.total().totals.on_cpu_ns, interval.values().sum::<u64>());
                    prop_assert_eq!(by_cgroup(&between), std::mem::take(&mut interval));
                    whole.append(between);
                    last = now;
                }
            }
        }
        prop_assert_eq!(by_cgroup(&whole), plain.clone(), "over all intervals");
        let ran_ns = plain.values().sum::<u64>();
        prop_assert_eq!(whole.tasks.iter().map(|task| task.all_totals().on_cpu_ns).sum::<u64>(), ran_ns);
        prop_assert_eq!(whole.ended().totals.on_cpu_ns, 0, "it still exists");
        // An interval between only the first and last reading has the same run time.
        prop_assert_eq!(own_row(&Interval::between(&first, &last)), ran_ns);
    }
}
