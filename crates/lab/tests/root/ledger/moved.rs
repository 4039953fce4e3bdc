//! Waits of tasks that move to another CPU while they wait. Each wait segment (the part of a wait on one CPU) has its own causes.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cgscope_ledger::Loss;
use cgscope_model::{Cause, Interval, Wait};

use super::{Host, assert_share, share, tolerance, wait_of};
use crate::load::{Cgroup, Load};

/// Moves threads between CPUs 0 and 1 until drop.
pub(super) struct Moves {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Moves {
    /// At step `n`, lists the threads of the loads and moves thread `i` to CPU `(i + n) % 2` if this thread runs or waits. Leaves
    /// sleeping threads where they are. A sleeping thread can still be on its run queue, and after a move the kernel would count
    /// its sleep as a wait.
    pub(super) fn start(every: Duration, loads: Vec<u32>) -> Self {
        Self::of(every, loads, is_runnable)
    }

    fn of(every: Duration, loads: Vec<u32>, is_moved: fn(u32) -> bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let moves = move || {
            for step in 0.. {
                if is_over.load(Relaxed) {
                    return;
                }
                let moved = threads(&loads).into_iter().enumerate().filter(|(_, tid)| is_moved(*tid));
                moved.for_each(|(i, tid)| keep_on((i + step) % 2, tid));
                thread::sleep(every);
            }
        };
        Self { stop, thread: Some(thread::spawn(moves)) }
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn threads(pids: &[u32]) -> Vec<u32> {
    let numbers = |text: String| -> Vec<u32> {
        text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let mut all = Vec::new();
    for pid in pids {
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).map(numbers).unwrap_or_default();
        for pid in [*pid].into_iter().chain(children) {
            let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            all.extend(entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()));
        }
    }
    all
}

fn is_runnable(tid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

fn keep_on(cpu: usize, tid: u32) {
    // SAFETY: the CPU set is ours. If the thread has exited, the call fails.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(tid as i32, size_of_val(&set), &set);
    }
}

pub(super) fn assert_explained(interval: &Interval, pids: &[u32], least_migrations: u64) {
    assert_moved(migrations(interval, pids), least_migrations);
    assert_wait_explained(interval, &wait_of(interval, pids), 0);
}

fn assert_moved(migrations: u64, least: u64) {
    assert!(migrations >= least, "the tasks were moved: {migrations}");
}

/// Asserts that hardly any of this waiting time is unattributed. `asleep` is the number of tasks that were moved while they slept
/// ([`Loss::MovedAsleep`]). The kernel counts such a sleep as a wait, so for each of these moves, one wait can be unattributed.
fn assert_wait_explained(interval: &Interval, wait: &Wait, asleep: u64) {
    let losses: Vec<_> = interval.losses.nonzero().map(|(loss, count)| (loss.name(), count)).collect();
    let hardly_ns = wait.total_ns as f64 * tolerance(1.0) / 100.0;
    let most_ns = hardly_ns as u64 + longest_ns(wait, asleep);
    let unattributed_ns = wait.by_cause.get(Cause::Unattributed);
    println!(
        "{} waits, {unattributed_ns} ns unattributed of at most {most_ns}: {:?}, losses {losses:?}",
        wait.count, wait.by_cause
    );
    assert!(wait.total_ns > 500_000_000, "the tasks waited: {wait:?}");
    assert!(unattributed_ns <= most_ns, "{unattributed_ns} ns, at most {most_ns}: {:?}", wait.by_cause);
}

/// Returns the total length of the `waits` longest waits, ns. Uses the upper edge of a bucket as the length of all waits in the
/// bucket.
fn longest_ns(wait: &Wait, mut waits: u64) -> u64 {
    let mut buckets: Vec<_> = wait.hist.buckets().collect();
    buckets.reverse();
    let of_bucket = |(_, high_ns, count): (u64, u64, u64)| {
        let taken = count.min(waits);
        waits -= taken;
        taken * high_ns
    };
    buckets.into_iter().map(of_bucket).sum()
}

fn migrations(interval: &Interval, pids: &[u32]) -> u64 {
    let tasks = interval.tasks.iter().filter(|task| pids.contains(&task.reading.tgid));
    tasks.map(|task| task.totals.migrations).sum()
}

/// The two loops of a cgroup are never on the same CPU, so a loop waits only for loops of other cgroups.
#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn six_loops_in_three_cgroups_that_are_moved_wait_for_each_other() {
    let mut host = Host::watched();
    let cgroups = ["a", "b", "c"].map(|name| Cgroup::new(&format!("moved-{name}")));
    let loads: Vec<Load> =
        cgroups.iter().flat_map(|cgroup| [(); 2].map(|()| Load::busy_loop(Some(cgroup)))).collect();
    let pids: Vec<u32> = loads.iter().map(Load::pid).collect();
    let _moves = Moves::start(Duration::from_millis(20), pids.clone());
    let interval = host.measured(3);
    assert_explained(&interval, &pids, 300);
    assert_share(&wait_of(&interval, &pids), &[Cause::OtherCgroup], 97.0);
}

/// Both loops run until their quota runs out, and then wait for the next period.
#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn loops_out_of_quota_are_throttled_wherever_they_are_moved() {
    let mut host = Host::watched();
    let cgroup = Cgroup::new("moved-limited");
    cgroup.limit(25_000, 50_000);
    cgroup.favour();
    let loads = [(); 2].map(|()| Load::busy_loop(Some(&cgroup)));
    let pids = loads.each_ref().map(Load::pid);
    let _moves = Moves::start(Duration::from_millis(7), pids.to_vec());
    let interval = host.measured(3);
    let wait = wait_of(&interval, &pids);
    // If the kernel does not count the throttled time of the cgroup on a CPU, the time in which other tasks ran on this CPU is
    // unattributed (loss `moved_throttled`).
    let unattributed = share(&wait.by_cause, &[Cause::Unattributed]);
    let (moves, counted) = (migrations(&interval, &pids), interval.losses.get(Loss::MovedThrottled));
    println!(
        "{moves} moves, {counted} of them throttled, {unattributed:.2}% unattributed: {:?}",
        wait.by_cause
    );
    assert!(unattributed <= tolerance(3.0), "{unattributed:.2}%: {:?}", wait.by_cause);
    assert_share(&wait, &[Cause::Throttled], 95.0);
}

/// The kernel often moves idle tasks (`cpu.idle`, SCHED_IDLE) to other CPUs, because such tasks hardly ever run.
#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn idle_tasks_beside_loops_wait_for_them() {
    let mut host = Host::watched();
    let (busy, idle, plain) = (Cgroup::new("busy"), Cgroup::new("idle"), Cgroup::new("sched-idle"));
    fs::write(idle.path.join("cpu.idle"), "1").expect("Linux 5.15");
    let _busy = [(); 3].map(|()| Load::busy_loop(Some(&busy)));
    let in_idle = [(); 3].map(|()| Load::busy_loop(Some(&idle)));
    let by_policy = [(); 3].map(|()| {
        let shell = ["-i", "0", "sh", "-c", "while :; do :; done"];
        Load::start("chrt", &shell, Some(&plain))
    });
    let loads = [&in_idle, &by_policy].map(|loads| loads.each_ref().map(Load::pid).to_vec());
    let interval = host.measured(5);
    for pids in loads.iter() {
        assert_explained(&interval, pids, 0);
    }
}

#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn sleepers_that_are_moved_while_they_wait_have_causes() {
    let mut host = Host::watched();
    let cgroups = ["a", "b", "c", "d"].map(|name| Cgroup::new(&format!("beside-{name}")));
    // The loops have a higher weight, so that the sleepers wait for the loops, not only for each other.
    cgroups.iter().for_each(|cgroup| cgroup.weigh(3));
    let _loads: Vec<Load> = cgroups.iter().map(|cgroup| Load::busy_loop(Some(cgroup))).collect();
    let sleepers = Cgroup::new("sleepers");
    let (load, _out) = Load::workload(&["blink", "20", "90"], Some(&sleepers));
    let _moves = Moves::start(Duration::from_millis(3), vec![load.pid()]);
    let interval = host.measured(3);
    let pids = [load.pid()];
    assert_moved(migrations(&interval, &pids), 30);
    // The test moves only threads that do not sleep, but a thread can fall asleep between this check and the move.
    let asleep = interval.losses.get(Loss::MovedAsleep);
    assert_wait_explained(&interval, &wait_of(&interval, &pids), asleep);
}

/// Since Linux 6.12, a task that falls asleep stays on its run queue for a while. If the task is moved during that time, the
/// kernel counts the rest of the sleep as a wait, and does not record when the task woke up.
#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn a_sleep_that_the_kernel_counts_as_a_wait_is_unattributed_and_counted() {
    let mut host = Host::watched();
    let cgroup = Cgroup::new("beside");
    let _loads = [0, 1].map(|cpu| Load::pinned_loop(cpu, Some(&cgroup)));
    let sleepers = Cgroup::new("asleep");
    let (load, _out) = Load::workload(&["blink", "20", "60"], Some(&sleepers));
    let _moves = Moves::of(Duration::from_millis(3), vec![load.pid()], |_| true);
    let interval = host.measured(3);
    let wait = wait_of(&interval, &[load.pid()]);
    assert_wait_explained(&interval, &wait, interval.losses.get(Loss::MovedAsleep));
}

#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn tasks_that_switch_all_the_time_and_are_moved_have_causes() {
    let mut host = Host::watched();
    let cgroup = Cgroup::new("switching");
    // With a higher weight, the load would starve the test process (docs/testing.md).
    cgroup.slight();
    let _load = Load::start("stress-ng", &["--switch", "4", "-t", "30"], Some(&cgroup));
    // The workers of stress-ng start their own children.
    let members = || -> Vec<u32> {
        let text = fs::read_to_string(cgroup.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let end = Instant::now() + Duration::from_secs(10);
    while members().len() < 9 {
        assert!(Instant::now() < end, "stress-ng starts its workers: {:?}", members());
        thread::sleep(Duration::from_millis(100));
    }
    let _moves = Moves::of(Duration::from_millis(10), members(), |_| true);
    let interval = host.measured(4);
    let group = &interval.by_cgroup()[&Some(cgroup.name.as_str().into())];
    assert_moved(group.totals.migrations, 100);
    assert_wait_explained(&interval, &group.wait, 0);
}

/// The load moves each of its children before the child first runs. Each child exits before the next sample.
#[test]
#[ignore = "all CPUs: its tasks move between the CPUs"]
fn the_first_wait_of_a_new_task_that_is_moved_has_causes() {
    let mut host = Host::watched();
    let (busy, parent) = (Cgroup::new("busy"), Cgroup::new("parent"));
    let _busy = [0, 1].map(|cpu| Load::pinned_loop(cpu, Some(&busy)));
    let (_load, _out) = Load::workload(&["moved-children", "60"], Some(&parent));
    let interval = host.measured(4);
    let group = &interval.by_cgroup()[&Some(parent.name.as_str().into())];
    assert_moved(group.totals.migrations, 100);
    assert_wait_explained(&interval, &group.wait, 0);
}
