//! Test helpers that run the `cgscope` command, use its library, and read the kernel's own figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use cgscope_collect::{Collector, Options};
use cgscope_ledger::Loss;
use cgscope_model::{Interval, Mode, Sample, Selection};
use serde_json::Value;

use crate::hour::cpu_time_of;

/// Environment variable that names the directory of the screen's settings. Tests do not change `HOME`, because programs that
/// cgscope starts can need it.
pub(crate) const SETTINGS: &str = "XDG_CONFIG_HOME";
/// A path at which no directory exists or can be created, so that tests neither read nor write the user's settings.
pub(crate) const NO_SETTINGS: &str = "/proc/no-settings";

/// Returns the command under test with default settings. The binary is `CGSCOPE_BIN`, or the one in the directory of the
/// `workload` binary.
pub(crate) fn cgscope() -> Command {
    let beside = || PathBuf::from(env!("CARGO_BIN_EXE_workload")).with_file_name("cgscope");
    let path = std::env::var_os("CGSCOPE_BIN").map_or_else(beside, PathBuf::from);
    assert!(path.exists(), "{} does not exist: run these tests with `cargo xtask test`", path.display());
    let mut command = Command::new(path);
    command.env(SETTINGS, NO_SETTINGS);
    command
}

pub(crate) fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    cgscope().args(args).output().expect("cgscope starts")
}

/// Losses that other programs can cause when a test measures the whole host. For example, a task starts while its CPU creates the
/// storage of another task, or a task exits while the collector reads it.
pub(crate) const OF_THE_HOST: &[Loss] =
    &[Loss::SwitchWithoutStorage, Loss::StorageNotCreated, Loss::ReadingOvertaken];

/// Asserts that a command succeeded and reported only losses in `allowed`. `said` is the output with the losses, as JSON or in a
/// line that contains `losses: `.
pub(crate) fn assert_ended(code: Option<i32>, said: &str, allowed: &[Loss]) {
    if code != Some(1) {
        assert_eq!(code, Some(0), "{said}");
        return;
    }
    let lists = said.split("losses").skip(1).map(|rest| rest.split(['}', '\n']).next().unwrap_or_default());
    let words =
        lists.flat_map(|list| list.split(|letter: char| letter != '_' && !letter.is_ascii_lowercase()));
    let words: BTreeSet<&str> = words.collect();
    let lost = Loss::ALL.iter().filter(|loss| !loss.leaves_result_whole() && words.contains(loss.name()));
    let lost: Vec<_> = lost.collect();
    assert!(!lost.is_empty(), "an exit code of 1, but nothing was lost: {said}");
    assert!(lost.iter().all(|loss| allowed.contains(loss)), "lost: {lost:?}: {said}");
}

/// Asserts that a measurement of the whole host succeeded, except for the losses in [`OF_THE_HOST`].
pub(crate) fn assert_measured(output: &Output) {
    assert_ended(output.status.code(), &(stderr(output) + &stdout(output)), OF_THE_HOST);
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("standard output is UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("standard error is UTF-8")
}

pub(crate) fn rss_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

pub(crate) fn json_lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect("one JSON object per line")).collect()
}

/// Returns the number of listed and idle tasks in an interval object. Idle tasks are only counted, not listed.
pub(crate) fn all_tasks(interval: &Value) -> usize {
    let listed = interval["tasks"].as_array().expect("tasks").len();
    listed + interval["idle_tasks"].as_u64().expect("a number") as usize
}

/// Returns the median of cgscope's own CPU time in these intervals, percent of one core. The function uses the median, because
/// other programs slow down only some intervals.
pub(crate) fn own_cpu_percent(intervals: &[Value]) -> f64 {
    let number = |value: &Value| value.as_u64().expect("a number") as f64;
    let percent =
        |interval: &Value| 100.0 * number(&interval["self"]["cpu_ns"]) / number(&interval["duration_ns"]);
    median(intervals.iter().map(percent))
}

/// CPU time of [`slowness`]'s work on the machine on which the limits of CPU times were set: estimated as half of the time on a machine
/// that needs twice as long to read the recording of an hour (104 to 177 ms).
const WORK: Duration = Duration::from_millis(50);

/// Returns how many times slower this machine is than the one on which the limits of CPU times were set, at least 1. The work is that of
/// most of cgscope: texts, lists and maps. Bounds that are ratios need no such factor.
pub(crate) fn slowness() -> f64 {
    let work = || {
        let names =
            (0..100_000u64).map(|number| format!("worker/{}", number.wrapping_mul(0x9e37_79b9) % 100_000));
        let counts = names.fold(BTreeMap::<String, u64>::new(), |mut counts, name| {
            *counts.entry(name).or_default() += 1;
            counts
        });
        let mut sorted: Vec<_> = counts.iter().map(|(name, count)| (*count, name.as_str())).collect();
        sorted.sort_unstable();
        std::hint::black_box(sorted.len());
    };
    let took = median((0..5).map(|_| cpu_time_of(work)));
    println!("the work for comparison took {took:.1?}, at first {WORK:.1?}");
    (took.as_secs_f64() / WORK.as_secs_f64()).max(1.0)
}

/// For an even number of values, returns the higher of the two middle values.
pub(crate) fn median<T: PartialOrd>(measured: impl IntoIterator<Item = T>) -> T {
    let mut sorted: Vec<T> = measured.into_iter().collect();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("comparable"));
    let middle = sorted.len() / 2;
    sorted.swap_remove(middle)
}

/// Returns the time that cgscope took to start and attach, from the output of `--verbose`.
pub(crate) fn attached_after(said: &str) -> Duration {
    let time = said.split("attached after ").nth(1).and_then(|rest| rest.split(',').next()).expect("a time");
    let (number, unit) = time.split_at(time.find(|letter: char| letter.is_alphabetic()).expect("a unit"));
    let number: f64 = number.parse().expect("a number");
    match unit {
        "s" => Duration::from_secs_f64(number),
        "ms" => Duration::from_secs_f64(number / 1e3),
        _ => panic!("cgscope was attached after {time}"),
    }
}

/// Returns `count`. On a machine that emulates each instruction (`CGSCOPE_TEST_EMULATED` is set), returns a tenth of `count`.
pub(crate) fn scaled(count: u64) -> u64 {
    if is_emulated() { count / 10 } else { count }
}

/// Returns how long a test waits for cgscope: `ms`, or four times `ms` on an emulated machine.
pub(crate) fn patience(ms: u64) -> Duration {
    Duration::from_millis(if is_emulated() { 4 * ms } else { ms })
}

pub(crate) fn is_emulated() -> bool {
    std::env::var_os("CGSCOPE_TEST_EMULATED").is_some()
}

/// Starts a collector that follows these processes, or the whole host if the list is empty.
pub(crate) fn follow(pids: &[u32]) -> Collector {
    let selection = Selection { pids: pids.to_vec(), ..Selection::default() };
    Collector::start(&Options { selection, ..Options::default() }, Mode::Bpf)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

pub(crate) fn follow_coarsely(pids: &[u32]) -> Collector {
    let selection = Selection { pids: pids.to_vec(), ..Selection::default() };
    let options = Options { selection, ..Options::default() };
    Collector::start(&options, Mode::Coarse).unwrap_or_else(|failure| panic!("{failure}"))
}

/// A measurement by the collector. Also contains the kernel's figures, read before and after the first sample, and before and
/// after the last sample.
pub(crate) struct Run {
    pub(crate) first: Sample,
    pub(crate) whole: Interval,
    pub(crate) last: Sample,
    pub(crate) at_first: [BTreeMap<u32, Kernel>; 2],
    pub(crate) at_last: [BTreeMap<u32, Kernel>; 2],
}

/// Takes a sample every second for `seconds`. Each sample uses a few milliseconds of CPU time, possibly on a CPU that the loads
/// use.
pub(crate) fn measure(collector: &mut Collector, pids: &[u32], seconds: u64) -> Run {
    let mut bracketed = || {
        let before = kernel_figures(pids);
        let sample = collector.sample().expect("a sample");
        (sample, [before, kernel_figures(pids)])
    };
    let (first, at_first) = bracketed();
    let (mut last, mut at_last) = (first.clone(), at_first.clone());
    let mut whole = Interval::default();
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let (sample, figures) = bracketed();
        whole.append(Interval::between(&last, &sample));
        (last, at_last) = (sample, figures);
    }
    Run { first, whole, last, at_first, at_last }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) run_delay_ns: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

pub(crate) fn kernel_figures(pids: &[u32]) -> BTreeMap<u32, Kernel> {
    let mut figures = BTreeMap::new();
    for pid in pids {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let path = thread.path();
            let read = |file: &str| fs::read_to_string(path.join(file)).ok();
            let (Some(schedstat), Some(status)) = (read("schedstat"), read("status")) else { continue };
            let switches = |name: &str| {
                let line =
                    status.lines().find_map(|line| line.strip_prefix(name)).expect("a counter of switches");
                line.trim().parse().expect("a number")
            };
            let run_delay = schedstat.split_ascii_whitespace().nth(1).expect("three figures");
            let kernel = Kernel {
                run_delay_ns: run_delay.parse().expect("a number"),
                voluntary: switches("voluntary_ctxt_switches:"),
                involuntary: switches("nonvoluntary_ctxt_switches:"),
            };
            let tid = path.file_name().and_then(OsStr::to_str).expect("a thread id");
            figures.insert(tid.parse().expect("a number"), kernel);
        }
    }
    figures
}
