//! Waits that are longer than a CPU's history of single time slices. The earlier history consists of blocks, each with the sums
//! of many slices.

use std::{fs, io::BufReader, process::ChildStdout, time::Duration};

use cgscope_model::{Cause, Interval};

use super::{
    Host, assert_share,
    moved::{Moves, assert_explained},
    tolerance, wait_of,
};
use crate::{
    bench::is_emulated,
    files::Dir,
    load::{Cgroup, Load},
};

struct Relay {
    _loads: [(Load, BufReader<ChildStdout>); 2],
    _dir: Dir,
    pids: [u32; 2],
}

impl Relay {
    fn start(a: &Cgroup, b: &Cgroup, micros: u32) -> Self {
        let dir = Dir::new("relay");
        let [there, back] = ["there", "back"].map(|name| dir.fifo(name));
        let micros = micros.to_string();
        let load = |from: &str, to: &str, cgroup| {
            Load::workload(&["relay", from, to, "0", &micros, "60"], Some(cgroup))
        };
        let loads = [load(&there, &back, a), load(&back, &there, b)];
        fs::write(&there, "0").expect("a relay reads the FIFO");
        let pids = [loads[0].0.pid(), loads[1].0.pid()];
        Self { _loads: loads, _dir: dir, pids }
    }
}

fn behind(interval: &Interval, victim: &Cgroup, culprit: &Cgroup) -> u64 {
    let culprits = interval.culprits_of(&victim.name);
    let found = culprits.iter().find(|found| found.path.as_deref() == Some(culprit.name.as_str()));
    found.unwrap_or_else(|| panic!("{} is not among {culprits:?}", culprit.name)).ns
}

/// The tasks of two cgroups switch some 10,000 times a second. On the same CPU, a task with a low weight waits after each sleep.
/// When such a wait ends, the history no longer contains the single slices from the beginning of the wait. For a wait after a
/// wakeup, nothing is stored when the wait begins.
#[test]
#[ignore = "all CPUs: its cgroups leave hardly anything of their CPU to others"]
fn a_long_wait_after_a_wakeup_is_charged_to_the_tasks_that_ran() {
    let mut host = Host::watched();
    let (a, b, victim) = (Cgroup::new("relay-a"), Cgroup::new("relay-b"), Cgroup::new("relay-victim"));
    [&a, &b].iter().for_each(|cgroup| cgroup.weigh(50));
    let _relay = Relay::start(&a, &b, 50);
    let (load, _out) = Load::workload(&["doze", "0", "60"], Some(&victim));
    let interval = host.measured(4);
    let wait = wait_of(&interval, &[load.pid()]);
    let mean_ms = wait.total_ns / wait.count / 1_000_000;
    println!("{} waits of {mean_ms} ms: {:?}", wait.count, wait.by_cause);
    assert_share(&wait, &[Cause::OtherCgroup], 95.0);
    assert_share(&wait, &[Cause::OtherCgroup, Cause::Kernel, Cause::Wakeup], 99.0);
    for of in [&a, &b] {
        assert!(behind(&interval, &victim, of) * 3 > wait.by_cause.get(Cause::OtherCgroup), "{}", of.name);
    }
}

/// Kernel threads run briefly and often, and each interrupts a time slice of a task. A block of the history must count an
/// interrupted slice once, not once more after each interruption.
#[test]
#[ignore = "all CPUs: a loop on one CPU makes kernel threads work on the other"]
fn turns_that_kernel_threads_interrupt_count_once_in_a_long_wait() {
    let mut host = Host::watched();
    let [a, b, victim, stir] = ["a", "b", "victim", "stir"].map(|name| Cgroup::new(&format!("cut-{name}")));
    victim.slight();
    stir.favour();
    // Each read of this file makes a kernel thread run on every CPU.
    let read = "while :; do read x < /proc/sys/vm/stat_refresh; done";
    let _stir = Load::start("taskset", &["-c", "1", "sh", "-c", read], Some(&stir));
    let relay = Relay::start(&a, &b, 200);
    let load = Load::pinned_loop(0, Some(&victim));
    let interval = host.measured(6);
    let wait = wait_of(&interval, &[load.pid()]);
    // Include the unfinished wait. The few finished waits cover only half of the time in which the other tasks ran.
    let mut by_cause = wait.by_cause;
    let pending = interval.tasks.iter().filter(|task| task.reading.tgid == load.pid());
    pending
        .filter_map(|task| task.reading.pending.as_ref())
        .for_each(|pending| by_cause.add(&pending.by_cause));
    let [kernel_ns, others_ns] = [Cause::Kernel, Cause::OtherCgroup].map(|cause| by_cause.get(cause));
    let ran = |is_it: &dyn Fn(&str, u32) -> bool| -> u64 {
        let tasks = interval.tasks.iter().filter(|task| is_it(&task.reading.comm, task.reading.tgid));
        tasks.map(|task| task.totals.on_cpu_ns).sum()
    };
    let kernel_ran_ns = ran(&|comm, _| comm.starts_with("kworker/0:"));
    let relay_ran_ns = ran(&|_, tgid| relay.pids.contains(&tgid));
    let (ours, theirs) = (kernel_ns as f64 / others_ns as f64, kernel_ran_ns as f64 / relay_ran_ns as f64);
    println!(
        "{} waits: {by_cause:?}; kernel to relay: {ours:.3} of the wait, {theirs:.3} of the run time",
        wait.count
    );
    assert!(wait.total_ns / wait.count > 120_000_000, "waits longer than 400 turns of 200 us: {wait:?}");
    // If other programs also run on this CPU, the share of kernel threads is smaller.
    let least = if is_emulated() { 0.02 } else { 0.1 };
    assert!(theirs > least, "kernel threads ran: {theirs:.3}");
    let off = 100.0 * (ours / theirs - 1.0).abs();
    assert!(off < tolerance(6.0), "kernel to relay: {ours:.3} of the wait, {theirs:.3} of the run time");
    // Compare only finished waits here, because culprits are counted when a wait ends. The two cgroups of the relay take turns,
    // so both run for the same time.
    let [behind_a, behind_b] = [&a, &b].map(|culprit| behind(&interval, &victim, culprit));
    let off = 100.0 * (behind_a as f64 / behind_b as f64 - 1.0).abs();
    assert!(off < tolerance(10.0), "the two cgroups take equal turns: behind {behind_a} and {behind_b} ns");
}

mod long {
    use super::*;

    /// A block of the history covers 64 older slices and names eight cgroups, but in this test more than eight cgroups take
    /// turns. For a wait that began with a move, three totals of the CPU explain the remaining time: the run times of the
    /// victim's cgroup, of kernel threads and of the idle task.
    #[test]
    #[ignore = "all CPUs: its tasks move between the CPUs"]
    fn a_long_wait_after_a_move_has_causes_although_many_cgroups_took_turns() {
        let mut host = Host::watched();
        let victim = Cgroup::new("crowd-victim");
        // With this weight, the victim's loops wait for seconds until they run. With the lowest weight, they would not run at all
        // during the measurement.
        victim.weigh_percent(5);
        let loads = [(); 3].map(|()| Load::busy_loop(Some(&victim)));
        let pids = loads.each_ref().map(Load::pid);
        let _moves = Moves::start(Duration::from_millis(2_500), pids.to_vec());
        // The crowd runs on the two CPUs between which the loops move. The test itself, which starts the crowd, runs on the two
        // other CPUs of an emulated machine. With only two CPUs, starting the crowd would take minutes.
        let size = if is_emulated() { 20 } else { 40 };
        let crowd: Vec<Cgroup> = (0..size).map(|number| Cgroup::new(&format!("crowd-{number}"))).collect();
        let _crowd: Vec<Load> =
            (0..).zip(&crowd).map(|(number, cgroup)| Load::pinned_loop(number % 2, Some(cgroup))).collect();
        let interval = host.measured(12);
        assert_explained(&interval, &pids, if is_emulated() { 2 } else { 5 });
    }
}
