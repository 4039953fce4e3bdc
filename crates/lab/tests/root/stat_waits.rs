//! Columns of `cgscope stat` that pidstat does not have. Tests compare `p99` with the kernel's trace events, and `node` with the
//! kernel's files.

use std::{collections::BTreeMap, fs, ops::Range, thread, time::Duration};

use cgscope_ledger::bucket::RELATIVE_ERROR;
use serde_json::Value;

use crate::{
    load::{Cgroup, Load},
    sched_trace::{SchedTrace, Waited},
    stat::{Measuring, half_a_cpu, lines, pids},
};

const SECONDS: &str = "4";
/// Tolerance for the times of trace events, ns. At both ends of a wait, the scheduler reads its clock before it writes the event,
/// and the hypervisor can pause the CPU between these two steps. In addition, the trace has a resolution of 1 µs.
const CLOCKS_NS: f64 = 100_000.0;
/// Number of waits per thread that can end during a reading. A reading takes time: the collector reads one thread after another,
/// and can itself wait for a CPU.
const AT_THE_END: usize = 1;
const READING_NS: u64 = 100_000_000;

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: the clock exists, and `time` is ours.
    let libc::timespec { tv_sec, tv_nsec } = unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

fn signal(load: &Load, signal: i32) {
    // SAFETY: the child leads this process group and has not been reaped.
    let sent = unsafe { libc::kill(-(load.pid() as i32), signal) };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

fn tids(load: &Load) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{0}/task", load.pid())).expect("the threads of the load");
    let name = |entry: fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse().ok());
    threads.flatten().filter_map(name).collect()
}

struct Events<'w> {
    threads: Vec<&'w [Waited]>,
    /// Time range of the measurement, ns. Tests use only waits that ended in this range.
    within: Range<u64>,
}

impl Events<'_> {
    fn p99(&self) -> Option<(f64, f64)> {
        let Range { start, end } = self.within;
        let ranges = [start - READING_NS, start].map(|start| [start..end, start..end + READING_NS]);
        let of_all = ranges.into_iter().flatten().filter_map(|range| self.p99_of(&range));
        of_all
            .reduce(|(least, most), (other_least, other_most)| (least.min(other_least), most.max(other_most)))
    }

    fn p99_of(&self, within: &Range<u64>) -> Option<(f64, f64)> {
        let all = self.threads.iter().flat_map(|waits| waits.iter());
        let mut waits: Vec<u64> =
            all.filter(|wait| within.contains(&wait.end_ns)).map(|wait| wait.ns).collect();
        waits.sort_unstable();
        let last = waits.len().checked_sub(1)?;
        let (rank, slack) = ((99 * waits.len()).div_ceil(100) - 1, AT_THE_END * self.threads.len());
        Some((waits[rank.saturating_sub(slack)] as f64, waits[last.min(rank + slack)] as f64))
    }

    /// Asserts that our p99 is within the bounds. Our p99 is the upper edge of a bucket.
    fn assert_holds(&self, what: &str, ours: f64) {
        let (least, most) = self.p99().unwrap_or_else(|| panic!("{what}: {ours} ns without an event"));
        println!("{what}: p99 {ours} ns, the events {least} to {most} ns");
        let least = least - CLOCKS_NS;
        let most = most * (1.0 + RELATIVE_ERROR) + CLOCKS_NS;
        assert!((least..=most).contains(&ours), "{what}: {ours} ns is not {least} to {most}");
    }

    fn assert_is(&self, what: &str, wait: &Value) {
        match (wait["p99_ns"].as_f64(), self.p99()) {
            (Some(ours), Some(_)) => self.assert_holds(what, ours),
            // No wait in the trace ended clearly within the interval, but cgscope counted one at an edge of the interval. For
            // example, a sleeping thread has such a wait when it is continued after a stop.
            (Some(_), None) => assert!(wait["count"].as_u64() <= Some(AT_THE_END as u64), "{what}: {wait}"),
            (None, _) => assert_eq!(wait["count"], 0, "{what}: {wait}"),
        }
    }
}

fn nodes() -> BTreeMap<u32, String> {
    let mut nodes = BTreeMap::new();
    for cpu in fs::read_dir("/sys/devices/system/cpu").expect("the CPUs").flatten() {
        let name = cpu.file_name().into_string().expect("a name");
        let Some(number) = name.strip_prefix("cpu").and_then(|number| number.parse().ok()) else { continue };
        let node = fs::read_dir(cpu.path()).expect("a CPU").flatten().find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("node").filter(|node| node.parse::<u32>().is_ok()).map(str::to_owned)
        });
        nodes.insert(number, node.expect("a CPU is on a node"));
    }
    nodes
}

fn cpu_of(tid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).expect("a thread of ours");
    let (_, after_the_name) = stat.rsplit_once(") ").expect("its name");
    after_the_name.split(' ').nth(36).and_then(|cpu| cpu.parse().ok()).expect("its CPU")
}

#[test]
fn the_node_column_has_the_node_of_the_last_cpu() {
    let nodes = nodes();
    let cpus: Vec<String> = nodes.keys().map(u32::to_string).collect();
    // Start one load on each CPU, so that each node has a load.
    let loads: Vec<Load> = nodes.keys().map(|cpu| Load::pinned_loop(*cpu, None)).collect();
    thread::sleep(Duration::from_millis(500));
    let text = Measuring::start(&["-p", &pids(&loads.iter().collect::<Vec<_>>()), "1", "1"]).end();
    let lines = lines(&text);
    for (load, cpu) in loads.iter().zip(&cpus) {
        let pid = load.pid().to_string();
        let line = lines.iter().find(|line| line["PID"] == pid && line["time"] != "Average:");
        let line = line.unwrap_or_else(|| panic!("no {pid} in {text}"));
        assert_eq!(line["CPU"], *cpu, "{line:?}");
        assert_eq!(line["node"], nodes[&cpu_of(load.pid())], "{line:?}");
    }
}

mod long {
    use super::*;

    /// Compares the p99 of three loads: one is throttled, one waits for other tasks, and one is often woken. Reads the p99 from
    /// JSON. (A unit test checks that the table shows the same figures.)
    #[test]
    #[ignore = "all CPUs: traces all switches"]
    fn p99_equals_that_of_the_kernels_own_events() {
        let half = half_a_cpu("stat-p99");
        let crowd = Cgroup::new("stat-p99-crowd");
        // Give the sleepers their own cgroup. If they shared a cgroup with the loops, tasks outside of the test's cgroups would
        // wait for a CPU for seconds (docs/testing.md).
        let sleepers = Cgroup::new("stat-p99-sleepers");
        let limited = Load::busy_loop(Some(&half));
        let (in_line, _out) = Load::workload(&["burn", "4", "90", "pin"], Some(&crowd));
        let (woken, _out) = Load::workload(&["blink", "4", "90"], Some(&sleepers));
        let loads = [limited, in_line, woken];
        thread::sleep(Duration::from_millis(500));
        let [in_half, in_line, woken] = loads.each_ref().map(tids);
        let all = [in_half.as_slice(), &in_line, &woken].concat();

        // Stop the loads until the trace and `cgscope stat` have started, so that neither misses a wait, and attaching is fast.
        loads.iter().for_each(|load| signal(load, libc::SIGSTOP));
        let trace = SchedTrace::start(&all);
        let stat = Measuring::start(&["--json", "--all", "-p", &pids(&loads.each_ref()), SECONDS, "1"]);
        loads.iter().for_each(|load| signal(load, libc::SIGCONT));
        let object: Value = serde_json::from_str(&stat.end()).expect("an object");
        trace.stop();
        // End the loads, because the CPUs are now needed for reading the long trace.
        drop(loads);
        let waits = trace.read(&all);

        let since_boot = clock_ns(libc::CLOCK_REALTIME) - clock_ns(libc::CLOCK_MONOTONIC);
        let number = |field: &str| object[field].as_u64().expect("a number");
        let begun_ns = number("start_unix_ns") - since_boot;
        let within = begun_ns..begun_ns + number("duration_ns");
        let events = |tids: &[u32]| Events {
            threads: tids.iter().map(|tid| waits[tid].as_slice()).collect(),
            within: within.clone(),
        };
        let tasks = object["tasks"].as_array().expect("tasks");
        assert_eq!(tasks.len(), all.len(), "{object}");
        for task in tasks {
            let tid = task["tid"].as_u64().expect("a thread") as u32;
            events(&[tid]).assert_is(&format!("thread {tid}"), &task["wait"]);
        }
        let cgroups = object["cgroups"].as_array().expect("cgroups");
        let cgroup = |of: &Cgroup| {
            let found = cgroups.iter().find(|object| object["path"] == *of.name);
            &found.expect("its cgroup")["wait"]
        };
        for (tids, of) in [(&in_half, &half), (&in_line, &crowd), (&woken, &sleepers)] {
            events(tids).assert_is(&of.name, cgroup(of));
        }
        let throttled_ns = cgroup(&half)["p99_ns"].as_u64();
        assert!(throttled_ns > Some(30_000_000), "out of quota for half of each period: {throttled_ns:?}");
    }
}
