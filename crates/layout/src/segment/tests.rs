use super::*;
use crate::ledger::tests::host::{Facts, Maps, Simulated};

#[test]
fn a_task_that_was_throttled_before_we_followed_it_has_its_queue_and_its_quota() {
    let _maps = Maps::new(true);
    let task = Facts::throttled();
    let mut start = Start { group_ran_ns: 9, ..Start::default() };
    was_throttled::<Simulated>(task, &mut start);
    let expected = Start {
        is_seen: 1,
        switches: task.switches(),
        throttle_ns: 100 + 50,
        queue: task.queue(),
        group: task.group(),
        limit: task.cgroup_id(),
        cpu: 1,
        ..Start::default()
    };
    assert_eq!(start, expected);
    let mut running = Start::default();
    was_throttled::<Simulated>(Facts::waiting(0, 0), &mut running);
    assert_eq!(running, Start::default());
}
