//! Waits of real-time and deadline tasks that have used up their runtime. No quota throttled them, and no wakeup delayed them.

use cgscope_layout::Loss;
use cgscope_model::{Cause, Interval};

use super::{Host, assert_share, wait_of};
use crate::load::{Cgroup, Load};

/// Asserts that nearly the whole wait is unattributed, and that the reason is counted.
fn assert_out_of_runtime(interval: &Interval, pids: &[u32]) {
    let wait = wait_of(interval, pids);
    println!("{} waits: {:?}; {}", wait.count, wait.by_cause, interval.losses);
    assert_share(&wait, &[Cause::Unattributed], 95.0);
    for cause in [Cause::Wakeup, Cause::Throttled] {
        assert_eq!(wait.by_cause.get(cause), 0, "{cause:?}: {:?}", wait.by_cause);
    }
    let counted = interval.losses.get(Loss::OutOfRuntime);
    // A short wait behind a migration thread, which moves the task as it starts, has another reason.
    assert!(
        (counted + 1) * 100 >= wait.count * 90,
        "the reason is counted: {counted} of {} waits",
        wait.count
    );
}

#[test]
#[ignore = "alone: asserts shares of CPU time"]
fn waits_of_a_deadline_task_out_of_runtime_are_not_wakeups() {
    let mut host = Host::watched();
    let runtime =
        ["--sched-runtime", "2000000", "--sched-deadline", "10000000", "--sched-period", "10000000"];
    let shell = ["0", "sh", "-c", "while :; do :; done"];
    let load = Load::start("chrt", &[&["-d"][..], &runtime, &shell].concat(), None);
    let interval = host.measured(3);
    assert!(
        wait_of(&interval, &[load.pid()]).total_ns > 1_000_000_000,
        "the deadline task may run for 2 ms of 10"
    );
    assert_out_of_runtime(&interval, &[load.pid()]);
}

#[test]
#[ignore = "alone: asserts shares of CPU time"]
fn waits_of_a_real_time_task_out_of_runtime_are_not_wakeups() {
    let mut host = Host::watched();
    let cgroup = Cgroup::new("real-time");
    // If cgroups have no real-time runtime, all real-time tasks together leave 5 % of a CPU to others.
    let cgroup = cgroup.real_time(100_000).then_some(cgroup);
    let _other = Load::pinned_loop(1, None);
    let shell = ["-f", "10", "taskset", "-c", "1", "sh", "-c", "while :; do :; done"];
    let load = Load::start("chrt", &shell, cgroup.as_ref());
    let interval = host.measured(4);
    assert_out_of_runtime(&interval, &[load.pid()]);
}
