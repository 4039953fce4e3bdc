use std::{fs, path::Path, thread, time::Duration};

use cgscope_collect::{Collector, Options, facts};
use cgscope_ledger::{
    KERNEL_LOSSES,
    changes::Changes,
    culprits::Pairs,
    history::Ring,
    pressure::Pressures,
    split::Work,
    wire::{CgroupEvent, StackKey, TaskStorage},
};
use cgscope_model::{ByCause, Mode, Sample, Selection};

use crate::{background::Background, bench::cgscope, load::Load};

pub(crate) fn stop(load: &Load) {
    signal(load, libc::SIGSTOP);
    // Wait until the last task has left its CPU.
    thread::sleep(Duration::from_millis(300));
}

pub(crate) fn go_on(load: &Load) {
    signal(load, libc::SIGCONT);
}

fn signal(load: &Load, signal: i32) {
    for pid in load.pids() {
        // SAFETY: the process is ours and has not been reaped.
        unsafe { libc::kill(pid as i32, signal) };
    }
}

pub(crate) fn by_cpu(sample: &Sample) -> (u64, ByCause) {
    let mut sum = (0, ByCause::default());
    for waits in sample.cpus.iter().filter_map(|cpu| cpu.waits.as_ref()) {
        sum.0 += waits.hist.count();
        sum.1.add(&waits.by_cause);
    }
    sum
}

pub(crate) fn by_task(sample: &Sample) -> (u64, ByCause) {
    let mut sum = (0, ByCause::default());
    for task in &sample.tasks {
        sum.0 += task.totals.waits;
        sum.1.add(&task.totals.by_cause);
    }
    sum
}

/// The loops are stopped while the collector starts and while it takes the sample. If a loop switched in while the collector
/// started, the sums by task would contain its wait, but the sums by CPU would not.
#[test]
fn the_sums_by_cpu_equal_the_sums_by_task() {
    let loads = [
        Load::busy_loop(None),
        Load::busy_loop(None),
        Load::busy_loop(None),
        Load::pinned_loop(0, None),
        Load::pinned_loop(0, None),
    ];
    let selection = Selection { pids: loads.iter().map(Load::pid).collect(), ..Selection::default() };
    let options = Options { selection, by_cpu: true, ..Options::default() };
    loads.iter().for_each(stop);
    let mut collector = Collector::start(&options, Mode::Bpf).unwrap_or_else(|failure| panic!("{failure}"));
    loads.iter().for_each(go_on);
    thread::sleep(Duration::from_secs(2));
    loads.iter().for_each(stop);
    let sample = collector.sample().expect("a sample");

    let sums = by_task(&sample);
    assert!(sums.0 > 100, "the load waited too rarely: {} waits", sums.0);
    assert_eq!(by_cpu(&sample), sums);
}

/// Returns the memory that the kernel reserves for the BPF maps of a process, bytes (`memlock`). Leaves out maps with
/// BPF_F_NO_PREALLOC (1), because before Linux 6.4 their `memlock` includes entries that do not exist yet.
fn map_bytes(pid: u32) -> u64 {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("a live process").flatten();
    let of_maps = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let of_maps = of_maps.filter(|text| text.contains("map_type:") && !text.contains("map_flags:\t0x1\n"));
    let memory = |text: String| {
        text.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok())
    };
    of_maps.filter_map(memory).sum()
}

/// The kernel reserves memory for each possible CPU, even for CPUs that the host does not have.
#[test]
fn the_maps_take_at_most_120_kib_for_each_possible_cpu() {
    let possible = u64::from(facts::possible_cpus(Path::new("/")));
    let mut measuring = Background::start(cgscope().args(["hist", "--verbose", "1"]));
    measuring.wait_for("attached after");
    let bytes = map_bytes(measuring.pid());
    measuring.signal(libc::SIGINT);
    assert_eq!(measuring.wait().0, Some(0));
    println!("{possible} possible CPUs: {} KiB", bytes >> 10);
    assert!(bytes > 60_000 * possible, "the histories: {bytes}");
    // On a host with few CPUs, most of the memory does not depend on their number.
    let of_cpu =
        size_of::<(Ring, Changes, Pairs, Pressures)>() + size_of::<(TaskStorage, StackKey, CgroupEvent)>();
    let of_cpu = of_cpu + size_of::<[Work; 2]>() + (KERNEL_LOSSES + 1) * size_of::<u64>();
    assert!(of_cpu <= 120 << 10, "{of_cpu} bytes");
    let slots = 4_096 * 896;
    assert!(
        bytes <= (2_304 << 10) + slots + possible * (120 << 10),
        "{possible} possible CPUs: {bytes} bytes"
    );
}
