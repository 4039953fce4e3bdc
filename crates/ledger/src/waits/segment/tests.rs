use super::*;
use crate::waits::tests::host::{Facts, Maps, Simulated};

#[test]
fn a_task_that_was_throttled_before_we_followed_it_has_its_queue_and_its_quota() {
    let _maps = Maps::new(true);
    let task = Facts::throttled();
    let mut start = Start { group_ran_ns: 9, ..Start::default() };
    was_throttled::<Simulated>(task, &mut start);
    let expected = Start {
        is_seen: 1,
        switches: task.switches() as u32,
        throttle_ns: 100 + 50,
        queue: task.queue(),
        group: task.group(),
        limit: task.group(),
        cpu: 1,
        ..Start::default()
    };
    assert_eq!(start, expected);
    let mut running = Start::default();
    was_throttled::<Simulated>(Facts::waiting(0, 0), &mut running);
    assert_eq!(running, Start::default());
}

#[test]
fn a_sum_until_clock_0_is_negative_while_it_grows() {
    assert_eq!([0, 7, (-3_i64) as u64].map(|sum_ns| Start::at(sum_ns, 5)), [0, 7, 2]);
}

#[test]
fn a_task_that_is_not_where_its_segment_began_may_be_throttled_there() {
    let task = Facts::throttled();
    let start =
        |cpu, limit| Start { is_seen: 1, switches: task.switches() as u32, cpu, limit, ..Start::default() };
    for throttles_tasks in [true, false] {
        let _maps = Maps::new(throttles_tasks);
        let in_doubt = |start: Start| start.is_in_doubt::<Simulated>(task, 1);
        assert!(in_doubt(start(0, 3)));
        assert_eq!(in_doubt(start(0, 0)), !throttles_tasks, "its queue may be throttled");
        assert!(!in_doubt(start(1, 3)), "it has not moved");
        assert!(!in_doubt(Start { is_seen: 0, ..start(0, 3) }), "of an earlier wait");
    }
}
