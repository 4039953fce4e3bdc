//! The columns of `cgscope stat` that pidstat has not: `p99` beside the kernel's own events, `node` beside its files.

use std::{collections::BTreeMap, fs, ops::Range, thread, time::Duration};

use cgscope_layout::bucket::RELATIVE_ERROR;
use serde_json::Value;

use crate::{
    load::{Cgroup, Load},
    sched_trace::{SchedTrace, Waited},
    stat::{Measuring, half_a_cpu, lines, pids},
};

const SECONDS: &str = "4";
/// The scheduler's clock is read some moments before each event is written, both at the begin of a wait and at its end, and a
/// virtual CPU may lose its time in between; the trace prints us.
const CLOCKS_NS: f64 = 100_000.0;
/// Threads are read one after the other, and whoever reads them waits for a CPU, too: of each a wait may end meanwhile.
const AT_THE_END: usize = 1;
/// That takes no longer.
const READING_NS: u64 = 100_000_000;

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: a clock that is there, and a place for its time.
    let libc::timespec { tv_sec, tv_nsec } = unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    tv_sec as u64 * 1_000_000_000 + tv_nsec as u64
}

fn signal(load: &Load, signal: i32) {
    // SAFETY: the group of a child that is not reaped.
    let sent = unsafe { libc::kill(-(load.pid() as i32), signal) };
    assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
}

fn tids(load: &Load) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{0}/task", load.pid())).expect("the threads of the load");
    let name = |entry: fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse().ok());
    threads.flatten().filter_map(name).collect()
}

/// What the kernel's events say of some threads.
struct Events<'w> {
    threads: Vec<&'w [Waited]>,
    /// Those that ended in these ns count.
    within: Range<u64>,
}

impl Events<'_> {
    /// What 99 of 100 waits do not exceed, at least and at most; `None` without waits.
    fn p99(&self) -> Option<(f64, f64)> {
        let until = |end_ns| self.p99_until(end_ns);
        let of_all = [self.within.end, self.within.end + READING_NS].map(until);
        of_all
            .into_iter()
            .flatten()
            .reduce(|(least, most), (other_least, other_most)| (least.min(other_least), most.max(other_most)))
    }

    fn p99_until(&self, end_ns: u64) -> Option<(f64, f64)> {
        let within = self.within.start..end_ns;
        let all = self.threads.iter().flat_map(|waits| waits.iter());
        let mut waits: Vec<u64> =
            all.filter(|wait| within.contains(&wait.end_ns)).map(|wait| wait.ns).collect();
        waits.sort_unstable();
        let last = waits.len().checked_sub(1)?;
        let (rank, slack) = ((99 * waits.len()).div_ceil(100) - 1, AT_THE_END * self.threads.len());
        Some((waits[rank.saturating_sub(slack)] as f64, waits[last.min(rank + slack)] as f64))
    }

    /// A quantile of ours is the end of its bucket.
    fn assert_holds(&self, what: &str, ours: f64) {
        let (least, most) = self.p99().unwrap_or_else(|| panic!("{what}: {ours} ns without an event"));
        println!("{what}: p99 {ours} ns, the events {least} to {most} ns");
        let least = least - CLOCKS_NS;
        let most = most * (1.0 + RELATIVE_ERROR) + CLOCKS_NS;
        assert!((least..=most).contains(&ours), "{what}: {ours} ns is not {least} to {most}");
    }

    fn assert_is(&self, what: &str, wait: &Value) {
        match wait["p99_ns"].as_f64() {
            Some(ours) => self.assert_holds(what, ours),
            None => assert_eq!(wait["count"], 0, "{what}: {wait}"),
        }
    }
}

/// Waits for a quota, in a line behind others, and after wakeups. The lines have what the objects have: a unit test shows that.
#[test]
#[ignore = "alone: asserts shares of CPU time"]
fn p99_is_that_of_the_kernels_own_events() {
    let half = half_a_cpu("stat-p99");
    let crowd = Cgroup::new("stat-p99-crowd");
    // By themselves: in one cgroup with loops, and a loop in another, they keep everybody else off the CPUs for seconds on end
    // (docs/journal/a-starved-sleeper.md).
    let sleepers = Cgroup::new("stat-p99-sleepers");
    let limited = Load::busy_loop(Some(&half));
    let (in_line, _out) = Load::workload(&["burn", "4", "90", "pin"], Some(&crowd));
    let (woken, _out) = Load::workload(&["blink", "4", "90"], Some(&sleepers));
    let loads = [limited, in_line, woken];
    thread::sleep(Duration::from_millis(500));
    let [in_half, in_line, woken] = loads.each_ref().map(tids);
    let all = [in_half.as_slice(), &in_line, &woken].concat();

    // They stand still until both look: so nothing is missed, and attaching does not take long beside them.
    loads.iter().for_each(|load| signal(load, libc::SIGSTOP));
    let trace = SchedTrace::start(&all);
    let stat = Measuring::start(&["--json", "--all", "-p", &pids(&loads.each_ref()), SECONDS, "1"]);
    loads.iter().for_each(|load| signal(load, libc::SIGCONT));
    let object: Value = serde_json::from_str(&stat.end()).expect("an object");
    trace.stop();
    // The trace is long, and nobody is to take the CPUs from whoever reads it.
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

/// The CPUs of each node, as the kernel lists them.
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

/// The CPU that `/proc/PID/stat` names last.
fn cpu_of(tid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).expect("a thread of ours");
    let (_, after_the_name) = stat.rsplit_once(") ").expect("its name");
    after_the_name.split(' ').nth(36).and_then(|cpu| cpu.parse().ok()).expect("its CPU")
}

#[test]
#[ignore = "alone: asserts shares of CPU time"]
fn a_node_is_that_of_the_cpu_as_the_kernel_maps_them() {
    let nodes = nodes();
    let cpus: Vec<String> = nodes.keys().map(u32::to_string).collect();
    // One on each CPU that there is, so that on each node there is one.
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
