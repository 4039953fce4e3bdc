//! Waits of real-time and deadline tasks that have used up their runtime. The cause of these waits is neither a quota nor a slow
//! wakeup.

use std::fs;

use cgscope_ledger::Loss;
use cgscope_model::{Cause, Interval};

use super::{Host, assert_share, wait_of};
use crate::load::{Cgroup, Load};

/// Asserts that nearly all waiting time has the cause `rt_throttled`.
fn assert_out_of_runtime(interval: &Interval, pids: &[u32]) {
    let wait = wait_of(interval, pids);
    println!("{} waits: {:?}; {}", wait.count, wait.by_cause, interval.losses);
    assert_share(&wait, &[Cause::RtThrottled], 95.0);
    // Accept some time with the cause `wakeup`. A deadline task that receives new runtime can move to an idle CPU, which must
    // first wake up.
    assert_eq!(wait.by_cause.get(Cause::Throttled), 0, "{:?}", wait.by_cause);
    // A hardened kernel hides some processes from tracing. If a hidden process moves a task, the wait of this task can be
    // unattributed.
    if interval.losses.get(Loss::MovedUnseen) == 0 {
        assert_eq!(wait.by_cause.get(Cause::Unattributed), 0, "{:?}", wait.by_cause);
    }
}

#[test]
#[ignore = "all CPUs: a deadline task must be allowed on each CPU"]
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

/// Starts a real-time loop and an ordinary loop on CPU 1. Returns both, the real-time loop first.
fn real_time_loop(cgroup: Option<&Cgroup>) -> [Load; 2] {
    let other = Load::pinned_loop(1, None);
    let shell = ["-f", "10", "taskset", "-c", "1", "sh", "-c", "while :; do :; done"];
    [Load::start("chrt", &shell, cgroup), other]
}

/// Returns whether the kernel has the fair server (Linux 6.12). The fair server reserves 5 % of a CPU for ordinary tasks. It
/// replaces the kernel's former limit for all real-time tasks.
fn has_fair_server() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's version");
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

#[test]
#[ignore = "all CPUs: a real-time loop leaves 5 % of its CPU to others"]
fn waits_of_a_real_time_task_out_of_runtime_are_not_wakeups() {
    let mut host = Host::watched();
    let cgroup = Cgroup::new("real-time");
    // Without real-time limits for cgroups, the kernel has one limit for all real-time tasks together, which leaves 5 % of a CPU
    // to other tasks.
    let cgroup = cgroup.real_time(100_000).then_some(cgroup);
    let [load, other] = real_time_loop(cgroup.as_ref());
    let interval = host.measured(4);
    if cgroup.is_some() || !has_fair_server() {
        return assert_out_of_runtime(&interval, &[load.pid()]);
    }
    // With a fair server and without a limit of the cgroup, the real-time loop waits only for other tasks on its CPU.
    let wait = wait_of(&interval, &[load.pid()]);
    println!("{} waits: {:?}", wait.count, wait.by_cause);
    assert_share(&wait, &[Cause::OwnCgroup, Cause::OtherCgroup], 95.0);
    assert_eq!(wait.by_cause.get(Cause::RtThrottled), 0, "no limit");
    assert!(
        wait_of(&interval, &[other.pid()]).total_ns > wait.total_ns,
        "the ordinary loop waits for longer"
    );
}
