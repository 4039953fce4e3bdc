//! The cause `irq`, compared with the kernel's own accounting of interrupts (CONFIG_IRQ_TIME_ACCOUNTING).

use std::{fs, thread, time::Duration};

use cgscope_model::{Cause, Interval, Sample};

use crate::{
    bench::follow,
    load::{Cgroup, Load},
};

const CPU: u32 = 1;
/// Length of a tick in `/proc/stat`, ns.
const TICK_NS: u64 = 10_000_000;

/// Returns the time that a CPU has spent in interrupts and softirqs so far, ns.
fn interrupts_ns(cpu: u32) -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let line = stat.lines().find(|line| line.starts_with(&format!("cpu{cpu} "))).expect("the CPU");
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    (ticks[5] + ticks[6]) * TICK_NS
}

/// Returns the time that this process has waited with the cause `irq` so far, ns. Includes the unfinished wait.
fn irq_ns(sample: &Sample, pid: u32) -> u64 {
    let task = sample.tasks.iter().find(|task| task.tid == pid).expect("the task lives");
    let pending = task.pending.as_ref().map_or(0, |pending| pending.by_cause.get(Cause::Irq));
    task.totals.by_cause.get(Cause::Irq) + pending
}

/// Two tasks share a CPU, so one of them always waits. Therefore their waits include all interrupt time of the CPU.
#[test]
#[ignore = "all CPUs: floods one CPU with interrupts"]
fn a_flood_of_softirqs_is_in_the_waits_as_the_kernel_counts_it() {
    let mut collector = follow(&[]);
    let (flood, victim) = (Cgroup::new("flood"), Cgroup::new("victim"));
    // Give both tasks a high weight, so that other programs hardly run.
    [&flood, &victim].iter().for_each(|cgroup| cgroup.favour());
    let (packets, _out) = Load::workload(&["packets", &CPU.to_string(), "60"], Some(&flood));
    let waits = Load::pinned_loop(CPU, Some(&victim));
    thread::sleep(Duration::from_millis(500));
    let mut read = || {
        let before_ns = interrupts_ns(CPU);
        let sample = collector.sample().expect("a sample");
        (sample, before_ns, interrupts_ns(CPU))
    };
    let (first, a_ns, b_ns) = read();
    thread::sleep(Duration::from_secs(12));
    let (last, c_ns, d_ns) = read();
    // For each sample, use the mean of two readings of the file, one just before the sample and one just after it.
    let theirs = (c_ns + d_ns - a_ns - b_ns) / 2;
    let pids = [packets.pid(), waits.pid()];
    let ours: u64 = pids.iter().map(|pid| irq_ns(&last, *pid) - irq_ns(&first, *pid)).sum();
    let off = 100.0 * (ours as f64 / theirs as f64 - 1.0).abs();
    println!("irq {ours} ns; /proc/stat {theirs} ns ({} to {}); {off:.2}% off", c_ns - b_ns, d_ns - a_ns);
    for task in &Interval::between(&first, &last).tasks {
        assert_eq!(task.wait.by_cause.total(), task.wait.total_ns, "{}", task.reading.comm);
    }
    assert!(theirs > 100 * TICK_NS, "the CPU handled softirqs: {theirs} ns");
    assert!(off <= 5.0, "irq {ours} ns; /proc/stat {theirs} ns: {off:.2}% off");
}
