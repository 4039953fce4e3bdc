//! Measurements during which a CPU goes offline and online again. The tests take a CPU offline only on an emulated machine. On a
//! real host, all CPUs stay online, and the tests check the same sums.

use std::{fs, path::Path, sync::Arc, thread, time::Duration};

use cgscope_collect::{Collector, Options, facts};
use cgscope_model::{Cause, Interval, Mode, Pending, Sample, Selection};

use crate::{
    bench::{follow, is_emulated},
    by_cpu::{by_cpu, by_task, go_on, stop},
    load::{Cgroup, Load},
};

struct Offline(u32);

impl Offline {
    fn take(cpu: u32) -> Self {
        switch(cpu, "0");
        Self(cpu)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        switch(self.0, "1");
    }
}

fn switch(cpu: u32, to: &str) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, to).unwrap_or_else(|error| panic!("{path}: {error}"));
}

fn numbers(sample: &Sample) -> Vec<u32> {
    sample.cpus.iter().map(|cpu| cpu.cpu).collect()
}

#[test]
#[ignore = "all CPUs: takes a CPU away"]
fn no_wait_is_lost_if_a_cpu_goes_offline_and_online_again() {
    let all: Vec<u32> = facts::cpu_to_node(Path::new("/")).into_keys().collect();
    let last = *all.last().expect("a CPU");
    let loads: Vec<Load> = (0..6).map(|_| Load::busy_loop(None)).collect();
    let selection = Selection { pids: loads.iter().map(Load::pid).collect(), ..Selection::default() };
    let options = Options { selection, by_cpu: true, ..Options::default() };
    loads.iter().for_each(stop);
    let mut collector = Collector::start(&options, Mode::Bpf).unwrap_or_else(|failure| panic!("{failure}"));
    loads.iter().for_each(go_on);
    let mut sample = || collector.sample().expect("a sample");
    assert_eq!(numbers(&sample()), all);

    let offline = is_emulated().then(|| Offline::take(last));
    thread::sleep(Duration::from_secs(1));
    let without = sample();
    if offline.is_some() {
        assert_eq!(numbers(&without), all[..all.len() - 1]);
        assert!(without.tasks.iter().all(|task| task.cpu != last), "no task is on the offline CPU");
    }
    drop(offline);
    thread::sleep(Duration::from_secs(1));
    loads.iter().for_each(stop);
    let end = sample();
    assert_eq!(numbers(&end), all);
    let sums = by_task(&end);
    assert!(sums.0 > 50, "the load waited too rarely: {} waits", sums.0);
    assert_eq!(by_cpu(&end), sums);
}

/// When a CPU goes offline, the kernel moves all its tasks to other CPUs, even tasks that wait.
#[test]
#[ignore = "all CPUs: takes a CPU away"]
fn hardly_any_waiting_is_unattributed_while_a_cpu_comes_and_goes() {
    let last = facts::cpu_to_node(Path::new("/")).into_keys().next_back().expect("a CPU");
    let loads: Vec<Load> = (0..8).map(|_| Load::busy_loop(None)).collect();
    let limited = Cgroup::new("unplugged");
    limited.limit(50_000, 100_000);
    let _others = [
        Load::workload(&["blink", "4", "60"], None),
        Load::workload(&["burn", "3", "60"], Some(&limited)),
        Load::workload(&["mix", "4", "60"], None),
    ];
    let mut collector = follow(&[]);
    // Some waits began up to 2 s before cgscope attached, so their causes are unknown. Take samples until all these waits have
    // ended.
    let is_unknown = |pending: &Arc<Pending>| pending.by_cause.get(Cause::Unattributed) != 0;
    let mut first = collector.sample().expect("a sample");
    for _ in 0..100 {
        if !first.tasks.iter().any(|task| task.pending.as_ref().is_some_and(is_unknown)) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
        first = collector.sample().expect("a sample");
    }
    for _ in 0..4 {
        let offline = is_emulated().then(|| Offline::take(last));
        thread::sleep(Duration::from_millis(500));
        drop(offline);
        thread::sleep(Duration::from_millis(500));
    }
    let interval = Interval::between(&first, &collector.sample().expect("a sample"));
    let by_cause = interval.total().wait.by_cause;
    println!("{by_cause:?}; {}", interval.losses);
    for task in &interval.tasks {
        let by = task.wait.by_cause;
        if by.get(Cause::Unattributed) > 1_000_000 {
            println!("{} {}: {by:?}", task.reading.tid, task.reading.comm);
        }
    }
    drop(loads);
    let share = 100.0 * by_cause.get(Cause::Unattributed) as f64 / by_cause.total() as f64;
    assert!(share < 1.0, "{share:.2} % of {by_cause:?}; {}", interval.losses);
}
