//! The stolen time (time that the hypervisor took) in cgscope's output, compared with the kernel's own figure in `/proc/stat`.

use std::{fs, thread, time::Duration};

use cgscope_model::{Cause, Interval};

use crate::{
    bench::follow,
    load::{Cgroup, Load},
};

/// Maximum duration of the test. The test can end after [`ENOUGH_SECONDS`] if [`ENOUGH_NS`] were stolen by then.
const SECONDS: u64 = 600;
const ENOUGH_SECONDS: u64 = 120;
const ENOUGH_NS: u64 = 20 * TICK_NS;
/// Length of a tick in `/proc/stat`, ns.
const TICK_NS: u64 = 10_000_000;

fn steal_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let ticks = stat.lines().next().and_then(|line| line.split_whitespace().nth(8));
    ticks.and_then(|ticks| ticks.parse::<u64>().ok()).expect("its steal") * TICK_NS
}

/// Each CPU has two loops, and one of them always waits. Therefore the waits of these loops include all time that is stolen from
/// the CPU.
#[test]
#[ignore = "all CPUs: two loops on each CPU"]
fn stolen_waiting_is_the_time_that_the_hypervisor_took() {
    let mut collector = follow(&[]);
    let cgroup = Cgroup::new("stolen");
    let cpus = thread::available_parallelism().expect("its CPUs").get() as u32;
    let _loads: Vec<Load> =
        (0..cpus).flat_map(|cpu| [cpu; 2]).map(|cpu| Load::pinned_loop(cpu, Some(&cgroup))).collect();
    thread::sleep(Duration::from_secs(1));
    let (first, before_ns) = (collector.sample().expect("a sample"), steal_ns());
    let mut whole = Interval::default();
    let mut last = first;
    let mut seconds = 0;
    while seconds < SECONDS && (seconds < ENOUGH_SECONDS || steal_ns() - before_ns < ENOUGH_NS) {
        thread::sleep(Duration::from_secs(10));
        seconds += 10;
        let sample = collector.sample().expect("a sample");
        whole.append(Interval::between(&last, &sample));
        last = sample;
    }
    let steal_ns = steal_ns() - before_ns;
    let id = whole.limits_at(&cgroup.name).expect("a cgroup of ours").id;
    let loops = whole.tasks.iter().filter(|task| task.reading.cgroup_id == id);
    let ours_ns: u64 = loops.map(|task| task.wait.by_cause.get(Cause::Stolen)).sum();
    println!("stolen: {ours_ns} ns, /proc/stat: {steal_ns} ns");
    assert!(steal_ns > 0, "the hypervisor took no time, so nothing was compared");
    assert!(ours_ns.abs_diff(steal_ns) <= 2 * TICK_NS * seconds, "{ours_ns} {steal_ns}");
    // On a quiet host, the stolen time is far below the tolerance above, so also require that cgscope reports at least a quarter
    // of it.
    assert!(ours_ns + 2 * TICK_NS >= steal_ns / 4, "{ours_ns} {steal_ns}");
}
