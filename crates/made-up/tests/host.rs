//! Checks that generated samples obey the same rules as real samples.

use std::collections::{BTreeMap, BTreeSet};

use cgscope_made_up::host;
use cgscope_model::{Blame, Interval, PairReading, Sample};

fn is_ascending<K: PartialOrd>(keys: impl Iterator<Item = K>) -> bool {
    keys.is_sorted_by(|a, b| a < b)
}

fn keeps_the_rules(sample: &Sample) -> bool {
    is_ascending(sample.tasks.iter().map(|task| task.serial))
        && is_ascending(sample.exited.iter().map(|exited| exited.cgroup_id))
        && is_ascending(sample.pairs.iter().map(PairReading::key))
        && is_ascending(sample.limits.iter().map(|limits| limits.id))
        && is_ascending(sample.cgroups.iter().map(|(id, _)| *id))
        && is_ascending(sample.cpus.iter().map(|cpu| cpu.cpu))
        && sample.tasks.iter().all(|task| task.hist.is_valid() && task.totals.waits == task.hist.count())
}

#[test]
fn hosts_of_any_size_have_valid_samples() {
    for (tasks, cgroups) in [(0, 0), (1, 1), (7, 3), (30, 60), (1_000, 200)] {
        for round in 0..3 {
            assert!(keeps_the_rules(&host(tasks, cgroups, round)), "{tasks} {cgroups} {round}");
        }
    }
}

#[test]
fn the_next_round_reads_the_same_host_a_second_later() {
    let interval = Interval::between(&host(1_000, 200, 1), &host(1_000, 200, 2));
    assert_eq!((interval.duration_ns, interval.tasks.len()), (1_000_000_000, 1_000));
    assert!(interval.tasks.iter().all(|task| task.wait.count != 0));
    assert_eq!(host(1_000, 200, 2), host(1_000, 200, 2));
}

#[test]
fn a_large_host_has_the_requested_size() {
    let sample = host(10_000, 2_000, 1);
    assert_eq!(sample.tasks.len(), 10_000);
    let cgroups: BTreeSet<u64> = sample.tasks.iter().map(|task| task.cgroup_id).collect();
    assert_eq!(cgroups.len(), 2_001, "the root has kernel threads, too");
    let names: BTreeMap<_, _> = sample.cgroups.iter().cloned().collect();
    let depths: BTreeSet<usize> = cgroups.iter().map(|id| names[id].matches('/').count()).collect();
    assert_eq!(depths, BTreeSet::from([1, 3, 4, 5]));
    let culprits = sample.pairs.iter().filter(|pair| pair.blame == Blame::Ran).count();
    assert_eq!(culprits, 2_000);
    assert!(sample.pairs.len() > 2_020, "quotas ran out");
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    sample.tasks.iter().for_each(|task| *threads.entry(task.tgid).or_default() += 1);
    assert!(threads.values().all(|threads| *threads <= 10));
    assert!(sample.tasks.iter().filter(|task| task.pending.is_some()).count() > 50);
    let cells = |count: &dyn Fn(usize) -> bool| {
        sample.tasks.iter().filter(|task| count(task.hist.counts.iter().count())).count()
    };
    assert!(cells(&|cells| cells > 15 || cells == 0) == 0 && cells(&|cells| cells >= 5) > 8_000);
}
