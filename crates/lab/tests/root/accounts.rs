//! Time accounts: the run, wait and blocked time of a task sum to the elapsed time, and cgscope's counts equal the kernel's.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use cgscope_collect::{Accounting, Collector, Options};
use cgscope_model::{BlockedState, Interval, Mode, Selection, TaskInterval};

use crate::{
    bench::is_emulated,
    load::{Cgroup, Load},
};

const STACK_EVERY: Duration = Duration::from_millis(5);

fn follow(pids: &[u32]) -> Collector {
    let selection = Selection { pids: pids.to_vec(), ..Selection::default() };
    let accounts = Some(Accounting { stack_every: Some(STACK_EVERY) });
    Collector::start(&Options { selection, accounts, ..Options::default() }, Mode::Bpf)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Follows these processes for some seconds, with a sample every 500 ms. Returns the sum of the intervals, and the time that the
/// first and the last sample took together, ns. Tests allow an error of this time, because a sample reads each task at an unknown
/// moment.
fn over(pids: &[u32], seconds: u64) -> (Interval, u64) {
    let mut collector = follow(pids);
    let mut timed = || {
        let begun = Instant::now();
        (collector.sample().expect("a Sample"), begun.elapsed().as_nanos() as u64)
    };
    let (mut last, first_ns) = timed();
    let (mut whole, mut last_ns) = (Interval::default(), 0);
    for _ in 0..seconds * 2 {
        thread::sleep(Duration::from_millis(500));
        let (now, ns) = timed();
        whole.append(Interval::between(&last, &now));
        (last, last_ns) = (now, ns);
    }
    (whole, first_ns + last_ns)
}

fn blocked_ns(task: &TaskInterval) -> u64 {
    let accounts = task.accounts.as_deref().expect("requested accounts");
    accounts.blocked.expect("blocked time from the hook").total()
}

/// Returns the tolerance, ns. The run queue clock of a CPU can lag by one tick.
fn allowed_ns() -> u64 {
    if is_emulated() { 150_000_000 } else { 25_000_000 }
}

#[test]
fn run_wait_and_blocked_time_of_a_task_sum_to_the_elapsed_time() {
    let cgroup = Cgroup::new("accounts");
    cgroup.limit(30_000, 100_000);
    let (mix, _out) = Load::workload(&["mix", "20", "30"], None);
    let (hop, _out) = Load::workload(&["hop", "0", "1", "100000", "30"], None);
    let throttled = Load::busy_loop(Some(&cgroup));
    let pids = [mix.pid(), hop.pid(), throttled.pid()];
    let (whole, reading_ns) = over(&pids, 4);
    assert!(whole.tasks.len() >= 20, "{}", whole.tasks.len());
    for task in &whole.tasks {
        let TaskInterval { reading, totals, wait, .. } = task;
        let pending_ns = reading.pending_ns().unwrap_or(0);
        let sum = totals.on_cpu_ns + wait.total_ns + totals.unstamped_ns + blocked_ns(task);
        // A wait is counted when it ends, so the sum can be too large or too small by one wait.
        let allowed = allowed_ns() + reading_ns + wait.max_ns + pending_ns;
        assert!(sum.abs_diff(whole.duration_ns) <= allowed, "{sum} ns of {}: {task:#?}", whole.duration_ns);
    }
}

#[test]
fn blocked_time_is_reported_by_state_and_by_stack() {
    let sleeper = Load::start("sleep", &["30"], None);
    let (vfork, _out) = Load::workload(&["vfork", "30"], None);
    let stopped = Load::start("sleep", &["30"], None);
    thread::sleep(Duration::from_millis(300));
    // SAFETY: the child is ours and has not been reaped.
    assert_eq!(unsafe { libc::kill(stopped.pid() as i32, libc::SIGSTOP) }, 0);
    thread::sleep(Duration::from_millis(200));
    let (whole, reading_ns) = over(&[sleeper.pid(), vfork.pid(), stopped.pid()], 2);
    for (load, state) in [
        (&sleeper, BlockedState::Sleeping),
        (&vfork, BlockedState::Uninterruptible),
        (&stopped, BlockedState::Stopped),
    ] {
        let task = whole.tasks.iter().find(|task| task.reading.tid == load.pid()).expect("a followed task");
        let accounts = task.accounts.as_deref().expect("accounts");
        let in_state = accounts.blocked.expect("states").get(state);
        assert!(
            in_state.abs_diff(whole.duration_ns) < allowed_ns() + reading_ns,
            "{}: {task:#?}",
            state.name()
        );
        let stacks = whole.stacks.iter().filter(|stack| stack.tid == load.pid() && stack.state == state);
        let by_stack: Vec<_> = stacks.collect();
        assert_eq!(by_stack.len(), 1, "it blocks in one place: {by_stack:?}");
        assert!(by_stack[0].stack.len() >= 3, "{by_stack:?}");
        // At the first sample, the times by stack can be up to `STACK_EVERY` older than the other times.
        let slack = allowed_ns() + STACK_EVERY.as_nanos() as u64;
        assert!(by_stack[0].ns.abs_diff(in_state) <= slack, "{by_stack:?} of {in_state}");
    }
}

#[test]
fn time_by_stack_sums_to_the_blocked_time() {
    let (mix, _out) = Load::workload(&["mix", "20", "30"], None);
    let (whole, reading_ns) = over(&[mix.pid()], 3);
    for task in &whole.tasks {
        let stacks = whole.stacks.iter().filter(|stack| stack.serial == task.reading.serial);
        let by_stack: u64 = stacks.map(|stack| stack.ns).sum();
        let slack = 2 * STACK_EVERY.as_nanos() as u64 + allowed_ns() + reading_ns;
        assert!(by_stack.abs_diff(blocked_ns(task)) <= slack, "{by_stack}: {task:#?}");
    }
}

#[test]
fn user_and_system_time_equal_those_of_proc() {
    let load = Load::start("sh", &["-c", "while :; do : < /dev/null; done"], None);
    let ticks = || -> [f64; 2] {
        let stat = fs::read_to_string(format!("/proc/{}/stat", load.pid())).expect("a process of ours");
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
        [11, 12].map(|at| fields[at].parse::<f64>().expect("ticks") / 100.0)
    };
    thread::sleep(Duration::from_millis(500));
    let mut collector = follow(&[load.pid()]);
    let (first, at_first) = (collector.sample().expect("a Sample"), ticks());
    thread::sleep(Duration::from_secs(3));
    let (last, at_last) = (collector.sample().expect("a Sample"), ticks());
    let whole = Interval::between(&first, &last);
    let cpu = whole.tasks[0].accounts.as_deref().expect("accounts").cpu;
    for (name, ours, kernel) in
        [("user", cpu.user_ns, at_last[0] - at_first[0]), ("system", cpu.system_ns, at_last[1] - at_first[1])]
    {
        let ours = ours as f64 / 1e9;
        // Both figures count ticks of 10 ms. On an emulated machine, more time passes between our reading and the reading of
        // `/proc`.
        let allowed = if is_emulated() { 0.2 } else { 0.03 };
        assert!((ours - kernel).abs() <= allowed, "{name}: {ours} s, /proc says {kernel} s");
    }
    assert_eq!(cpu.user_ns + cpu.system_ns, whole.tasks[0].totals.on_cpu_ns);
}

#[test]
fn tasks_that_exited_are_in_the_accounts_of_their_cgroup() {
    // The children run one after the other. Each child runs for some milliseconds and sleeps for 20 ms.
    let load = Load::start("sh", &["-c", "while :; do sleep 0.02; done"], None);
    let (whole, reading_ns) = over(&[load.pid()], 3);
    let total = whole.total();
    let accounts = total.accounts.expect("accounts");
    let blocked_ns = accounts.blocked.expect("states").get(BlockedState::Sleeping);
    // While a child sleeps, the shell waits for this child and sleeps too.
    let (least, most) = (total.exited * 18_000_000, 2 * whole.duration_ns + allowed_ns() + reading_ns);
    let cpu_ns = accounts.cpu.user_ns + accounts.cpu.system_ns;
    assert!(total.exited > 20, "{total:?}");
    assert!((least..most).contains(&blocked_ns), "{least} {most}: {total:?}");
    assert!(cpu_ns.abs_diff(total.totals.on_cpu_ns) <= 1_000_000, "{total:?}");
}

#[test]
fn threads_that_exited_are_reported_with_their_process() {
    let (load, _out) = Load::workload(&["mix", "4", "30"], None);
    let (whole, _) = over(&[load.pid()], 1);
    let exited = |whole: &Interval, pid: u32| {
        let main = whole.tasks.iter().find(|task| task.reading.tid == pid).expect("its main thread");
        main.accounts.as_deref().expect("accounts").exited_threads
    };
    assert_eq!(exited(&whole, load.pid()).voluntary, 0, "no thread has exited yet");
    let (load, _out) = Load::workload(&["churn", "30"], None);
    thread::sleep(Duration::from_millis(500));
    let (whole, _) = over(&[load.pid()], 2);
    let of_exited: u64 = whole.exited.iter().map(|exited| exited.totals.on_cpu_ns).sum();
    let exited = exited(&whole, load.pid());
    assert!(of_exited > whole.duration_ns / 4, "{of_exited}");
    // A sample counts the CPU time of a live thread for that thread, not for exited threads. In five samples, this is at most 20
    // ms each.
    assert!(
        exited.on_cpu_ns.abs_diff(of_exited) < allowed_ns() + 100_000_000,
        "{exited:?}, by cgroup {of_exited}"
    );
}
