use proptest::prelude::*;

use super::*;
use crate::{
    ByCause, Cause, CgroupReading, Hist, TaskInterval, TaskReading, Totals, Wait, placement::TaskPlacement,
};

const SECOND: u64 = 1_000_000_000;

fn task(tid: u32, cgroup_id: u64, waits_ns: &[u64], cause: Cause) -> TaskInterval {
    let wait_ns = waits_ns.iter().sum();
    let wait = Wait {
        count: waits_ns.len() as u64,
        total_ns: wait_ns,
        max_ns: waits_ns.iter().copied().max().unwrap_or(0),
        by_cause: ByCause::only(cause, wait_ns),
        hist: Hist::from_waits_ns(waits_ns.iter().copied()),
    };
    let reading = TaskReading { serial: tid.into(), tid, tgid: tid, cgroup_id, ..TaskReading::default() };
    let totals = Totals { on_cpu_ns: 1_000, ..Totals::default() };
    TaskInterval { accounts: None, reading, totals, wait, placement: TaskPlacement::default(), whole: None }
}

fn second(n: u64, tasks: Vec<TaskInterval>) -> Interval {
    Interval { start_unix_ns: n * SECOND, duration_ns: SECOND, tasks, ..Interval::default() }
}

fn with_quota(interval: Interval, used_ns: Option<u64>, throttled: u64) -> Interval {
    let limits = CgroupReading {
        id: 7,
        quota_us: Some(50_000),
        period_us: Some(100_000),
        usage_ns: used_ns,
        nr_periods: Some(10),
        nr_throttled: Some(throttled),
        ..CgroupReading::default()
    };
    Interval { limits: vec![limits], ..interval }
}

proptest! {
    #[test]
    fn a_long_timeline_loses_nothing_and_keeps_its_number_of_slices(
        waits in prop::collection::vec(0..u64::MAX >> 30, 0..100),
        most in 2..12usize,
    ) {
        let mut timeline = Timeline::new(most);
        for (n, ns) in waits.iter().enumerate() {
            timeline.add(&second(n as u64, vec![task(1, 7, &[*ns], Cause::Kernel)]));
            prop_assert!(timeline.slices.len() <= most);
        }
        let slices = &timeline.slices;
        prop_assert_eq!(slices.iter().map(|slice| slice.wait.count).sum::<u64>(), waits.len() as u64);
        prop_assert_eq!(slices.iter().map(|slice| slice.all.waited_ns()).sum::<u64>(), waits.iter().sum::<u64>());
        prop_assert_eq!(slices.iter().map(|slice| slice.wait.hist.count()).sum::<u64>(), waits.len() as u64);
        prop_assert_eq!(slices.iter().map(|slice| slice.wait.max_ns).max(), waits.iter().copied().max());
        let mut end = 0;
        for slice in slices {
            prop_assert_eq!(slice.start_unix_ns, end);
            end += slice.duration_ns;
        }
        prop_assert_eq!(end, waits.len() as u64 * SECOND);
        // All slices but the last have the same length, and at least half of the slices are used.
        let lengths: Vec<u64> = slices.iter().map(|slice| slice.duration_ns).collect();
        prop_assert!(lengths.split_last().is_none_or(|(last, others)| others.iter().all(|length| length == &lengths[0] && last <= length)));
        prop_assert!(slices.len() >= waits.len().min(most / 2));
    }
}

#[test]
fn the_worst_slice_is_named_with_the_cgroup_that_waited_most() {
    let mut timeline = Timeline::new(10);
    timeline.add(&second(0, vec![task(1, 7, &[5_000], Cause::Wakeup)]));
    timeline.add(&second(
        1,
        vec![task(1, 7, &[900_000], Cause::Throttled), task(2, 8, &[2_000, 3_000], Cause::Kernel)],
    ));
    timeline.add(&second(2, vec![task(2, 8, &[3_000], Cause::Kernel)]));
    let worst = timeline.worst().expect("somebody waited");
    assert_eq!(worst, 1);
    let slice = &timeline.slices[worst];
    let (id, part) = slice.worst_cgroup().expect("somebody waited");
    assert_eq!((id, part.by_cause.get(Cause::Throttled), part.on_cpu_ns), (7, 900_000, 1_000));
    assert_eq!((slice.wait.count, slice.all.on_cpu_ns), (3, 2_000));
    assert!((slice.average(slice.all.waited_ns()) - 0.000_905).abs() < 1e-12);
}

#[test]
fn without_waits_there_is_no_worst_slice() {
    let mut timeline = Timeline::new(10);
    assert_eq!(timeline.worst(), None);
    timeline.add(&second(0, vec![task(1, 7, &[], Cause::Wakeup)]));
    assert_eq!(timeline.worst(), None);
    assert_eq!(timeline.slices[0].worst_cgroup(), None);
}

#[test]
fn figures_of_quotas_are_added_and_unread_figures_stay_unknown() {
    let mut timeline = Timeline::new(2);
    for throttled in 1..=2 {
        timeline.add(&with_quota(second(throttled - 1, Vec::new()), None, throttled));
    }
    assert_eq!(timeline.slices[1].quotas[&7].used_ns, None);
    timeline.add(&with_quota(second(2, Vec::new()), Some(400), 3));
    let [first, second] = &timeline.slices[..] else { panic!("two slices") };
    let part = first.quotas[&7];
    assert_eq!((part.allowed_ns, part.nr_throttled, part.nr_periods), (SECOND, Some(3), Some(20)));
    assert_eq!((second.quotas[&7].used_ns, second.quotas[&7].allowed_ns), (Some(400), SECOND / 2));
}

#[test]
fn a_slice_has_the_largest_number_of_waiting_tasks_of_its_samples() {
    let waiting = |ns| {
        let mut task = task(1, 7, &[], Cause::Wakeup);
        task.reading.pending = Some(crate::Pending { ns, ..Default::default() }.into());
        task
    };
    let mut timeline = Timeline::new(2);
    timeline.add(&second(0, vec![waiting(5), waiting(9)]));
    timeline.add(&second(1, vec![waiting(7)]));
    timeline.add(&second(2, Vec::new()));
    let first = &timeline.slices[0];
    assert_eq!((first.pending, first.pending_max_ns), (2, 9));
}
