//! Tests the kernel's rules one by one, with demands that are small enough to compute by hand.

use cgscope_whatif::{Limit, Loop, Node, Outcome, Profile, Replay, Setting, Slot, Tree};

const MS: u64 = 1_000_000;

/// Returns slots of 10 ms, each with this work in ms.
fn work(work_ms: &[u64]) -> Profile {
    let slot = |ms: &u64| Slot { ran_ns: ms * MS, firm_ns: ms * MS, ..Slot::default() };
    Profile { slot_ns: 10 * MS, slots: work_ms.iter().map(slot).collect() }
}

fn open(profile: Profile, limit: Limit, phase_ms: u64) -> Outcome {
    let tree = crate::single(profile, Some(limit), 8.0);
    Replay::new(&tree).run(&crate::limits(&tree), &Setting::new(Loop::Open, phase_ms * MS)).unwrap().remove(0)
}

/// Returns a demand of 30 ms at the start of each of three periods of 100 ms.
fn three_bursts() -> Profile {
    let mut slots = [0; 30];
    (0..30).filter(|slot| slot % 10 < 3).for_each(|slot| slots[slot] = 10);
    work(&slots)
}

#[test]
fn a_burst_above_the_quota_waits_for_the_next_period() {
    let outcome = open(three_bursts(), crate::limit(20 * MS, 100 * MS), 0);
    // The load runs from 0 to 20 ms, and is throttled until 100 ms. Then 10 ms of work are late, and the next 30 ms arrive.
    assert_eq!((outcome.periods, outcome.throttled_periods), (3, 3));
    assert_eq!(outcome.throttled_ns, 240 * MS);
    assert_eq!((outcome.ran_ns, outcome.backlog_ns), (60 * MS, 30 * MS));
    assert_eq!(outcome.done_ns, Some(410 * MS));
    assert_eq!(outcome.stalls.count, 3);
}

#[test]
fn the_grid_of_periods_may_split_a_burst() {
    let mut slots = [0; 20];
    slots[0..3].fill(10);
    let of = |phase_ms| open(work(&slots), crate::limit(20 * MS, 100 * MS), phase_ms);
    assert_eq!((of(0).throttled_periods, of(0).done_ns), (1, Some(110 * MS)));
    // The work runs from 0 to 15 ms on the first quota, and from 15 to 30 ms on the second.
    assert_eq!((of(15).throttled_periods, of(15).done_ns), (0, Some(30 * MS)));
    // The work runs from 0 to 20 ms on the first quota, and continues after the refill at 25 ms.
    assert_eq!((of(25).throttled_periods, of(25).done_ns), (1, Some(35 * MS)));
}

#[test]
fn saved_quota_serves_a_burst() {
    let limit = Limit { burst_ns: 10 * MS, ..crate::limit(20 * MS, 100 * MS) };
    let mut slots = [0; 50];
    slots[0] = 1;
    slots[40..43].fill(10);
    assert_eq!(open(work(&slots), Limit { burst_ns: 0, ..limit }, 0).throttled_periods, 1);
    assert_eq!(open(work(&slots), limit, 0).throttled_periods, 0);
}

#[test]
fn the_timer_stops_after_a_period_without_use() {
    let mut slots = [0; 100];
    slots[0] = 3;
    slots[70] = 3;
    let outcome = open(work(&slots), crate::limit(50 * MS, 100 * MS), 0);
    // The timer fires at 100 and 200 ms, then at 800 and 900 ms.
    assert_eq!((outcome.periods, outcome.throttled_periods), (4, 0));
}

#[test]
fn an_idle_cpu_returns_all_but_a_millisecond() {
    // Each of two CPUs takes 5 ms of the 14 ms. CPU 1 uses 1 ms and returns 3 ms, so CPU 0 runs for 12 ms, not for 9 ms.
    let mut slots = vec![Slot { ran_ns: MS, firm_ns: MS, ..Slot::default() }; 20];
    slots[0] = Slot { ran_ns: 2 * MS, firm_ns: 2 * MS, ..Slot::default() };
    let tree = crate::single(Profile { slot_ns: MS, slots }, Some(crate::limit(14 * MS, 100 * MS)), 8.0);
    let outcome =
        Replay::new(&tree).run(&crate::limits(&tree), &Setting::new(Loop::Closed, 0)).unwrap().remove(0);
    assert_eq!((outcome.throttled_ns, outcome.done_ns), (88 * MS, Some(108 * MS)));
}

#[test]
fn only_the_level_that_ran_out_counts_but_all_below_stall() {
    let child = |parent| Node { parent, profile: work(&[10; 20]), ..Node::default() };
    let top = Node { profile: work(&[0; 20]), ..Node::default() };
    let limits = [Some(crate::limit(50 * MS, 100 * MS)), Some(crate::limit(90 * MS, 100 * MS)), None];
    let tree = Tree { nodes: vec![top, child(Some(0)), child(Some(0))], capacity: 8.0 };
    let setting = Setting::new(Loop::Open, 0);
    let outcomes = Replay::new(&tree).run(&limits, &setting).unwrap();
    // Both children share the 50 ms of their parent, and use them up in 25 ms.
    let own: Vec<u64> = outcomes.iter().map(|outcome| outcome.throttled_periods).collect();
    assert_eq!(own, [2, 0, 0]);
    assert_eq!(outcomes[0].ran_ns, 100 * MS);
    assert!(outcomes[1..].iter().all(|outcome| outcome.ran_ns.abs_diff(50 * MS) <= 10_000), "{outcomes:#?}");
}

#[test]
fn few_cpus_make_work_late_without_throttling() {
    let tree = crate::single(work(&[40; 10]), Some(crate::limit(400 * MS, 100 * MS)), 2.0);
    let outcome =
        Replay::new(&tree).run(&crate::limits(&tree), &Setting::new(Loop::Open, 0)).unwrap().remove(0);
    assert_eq!(outcome.throttled_periods, 0);
    assert_eq!((outcome.backlog_ns, outcome.done_ns), (200 * MS, Some(200 * MS)));
    // With one thread, the work runs on one CPU at a time.
    let mut tree = tree;
    tree.nodes[0].threads = Some(1);
    let outcome =
        Replay::new(&tree).run(&crate::limits(&tree), &Setting::new(Loop::Open, 0)).unwrap().remove(0);
    assert_eq!((outcome.backlog_ns, outcome.done_ns), (300 * MS, Some(400 * MS)));
}

#[test]
fn work_of_busy_loops_is_dropped_if_it_is_not_served() {
    let mut profile = work(&[5; 20]);
    profile.slots.iter_mut().for_each(|slot| slot.presumed_ns = 10 * MS);
    let outcome = open(profile.clone(), crate::limit(20 * MS, 100 * MS), 0);
    assert_eq!((outcome.ran_ns, outcome.throttled_periods), (40 * MS, 2));
    assert!(outcome.backlog_ns > 60 * MS, "{outcome:?}");
    let outcome = open(profile, crate::limit(1_600 * MS, 100 * MS), 0);
    assert_eq!((outcome.ran_ns, outcome.backlog_ns), (300 * MS, 0));
}

#[test]
fn the_timer_starts_with_the_first_use_on_its_old_grid() {
    // The work runs for 1 ms on the first quota. The refill at 1 ms fills the pool up to 40 ms, and the CPU has 4 ms left.
    let outcome = open(work(&[10; 10]), crate::limit(40 * MS, 100 * MS), 1);
    assert_eq!((outcome.ran_ns, outcome.throttled_ns), (45 * MS, 55 * MS));
}

#[test]
fn returned_runtime_is_distributed_after_five_milliseconds() {
    let slots = [1, 1, 1, 1, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    let slot = |cpus| Slot { ran_ns: cpus * MS, firm_ns: cpus * MS, ..Slot::default() };
    let profile = Profile { slot_ns: MS, slots: slots.map(slot).to_vec() };
    let limit = Limit { quota_ns: 20_200_000, ..crate::limit(1, 100 * MS) };
    let tree = crate::single(profile, Some(limit), 8.0);
    let outcome =
        Replay::new(&tree).run(&crate::limits(&tree), &Setting::new(Loop::Closed, 0)).unwrap().remove(0);
    // CPU 0 is throttled at 5.2 ms. About 1 ms later, three CPUs become idle and return 5.2 ms of runtime, with which CPU 0
    // continues at 11.3 ms. The last 4.8 ms run after the refill.
    assert_eq!(outcome.stalls.count, 2);
    assert!(outcome.done_ns.unwrap().abs_diff(104_800_000) <= 10, "{outcome:?}");
    assert!(outcome.throttled_ns.abs_diff(89_600_000) <= 10, "{outcome:?}");
}

#[test]
fn a_refill_while_the_cgroup_above_is_throttled_is_left_for_its_next_period() {
    // Two busy loops share a quota of 80 ms, and one of them may use at most 30 ms. Measured throttled time on Linux 6.18, if the
    // periods of the two quotas begin 53 ms apart: 95 ms and 23 ms.
    let busy = |parent| Node { parent, threads: Some(1), profile: work(&[10; 500]), ..Node::default() };
    let top = Node { profile: work(&[0; 500]), ..Node::default() };
    let limits = [Some(crate::limit(80 * MS, 100 * MS)), Some(crate::limit(30 * MS, 100 * MS)), None];
    let tree = Tree { nodes: vec![top, busy(Some(0)), busy(Some(0))], capacity: 2.0 };
    let throttled_ms = |spread_ms: u64| {
        let setting = Setting { spread_ns: spread_ms * MS, ..Setting::new(Loop::Open, 0) };
        let outcomes = Replay::new(&tree).run(&limits, &setting).unwrap();
        [0, 1].map(|node| (outcomes[node].throttled_ns as f64 / outcomes[node].periods as f64 / 1e6).round())
    };
    // The second loop is throttled with its parent from 50 ms on.
    assert_eq!(throttled_ms(0), [50.0, 70.0]);
    // The first loop is throttled by its own quota from 30 ms on, and by its parent's quota from its refill at 53 ms on.
    assert_eq!(throttled_ms(53), [50.0 + 47.0, 23.0]);
}
