//! A CPU that goes offline and online again during a measurement. Tests take a CPU only from an emulated machine. On the host the
//! same sums must hold with all CPUs online.

use std::{fs, path::Path, thread, time::Duration};

use cgscope_collect::{Collector, Options, facts};
use cgscope_model::{Sample, Selection};

use crate::{
    bench::is_emulated,
    by_cpu::{by_cpu, by_task, go_on, stop},
    load::Load,
};

/// A CPU that is offline while this value lives.
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
    let mut collector = Collector::start(&options).unwrap_or_else(|failure| panic!("{failure}"));
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
