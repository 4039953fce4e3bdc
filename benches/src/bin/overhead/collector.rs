//! Measures the cost of the collector. The loads are idle threads (compared with other tools) and changed tasks.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result};
use cgscope_ledger::{
    changes::Changes,
    culprits::Pairs,
    history::Ring,
    pressure::Pressures,
    split::Work,
    wire::{CpuCounters, TaskStorage},
};
use serde_json::Value;

use crate::subject::{built, start};

const SECONDS: u64 = 8;
const IDLE_THREADS: u64 = 20_000;
const MIXED_THREADS: u64 = 4_000;
/// Kernel memory of the maps for each possible CPU, bytes.
const CPU_BYTES: usize =
    size_of::<(Ring, Changes, Pairs, Pressures, CpuCounters)>() + size_of::<(TaskStorage, [Work; 2])>();

/// Figures that `cgscope hist --json 1` reports about itself, averaged over its intervals.
struct Figures {
    /// CPU time of the collector for each reading, us.
    reading_us: f64,
    rss_bytes: f64,
    /// Number of active tasks in an interval.
    changed: f64,
}

pub fn measure() -> Result<()> {
    let idle_host = figures()?;
    let with_idle = beside_others()?;
    let load = Load::start(&["mix", &MIXED_THREADS.to_string(), "60"])?;
    let mixed = figures()?;
    drop(load);

    let more_us = |figures: &Figures, each: f64| (figures.reading_us - idle_host.reading_us) / each;
    let changed = mixed.changed - idle_host.changed;
    let (idle_us, changed_us) = (more_us(&with_idle, IDLE_THREADS as f64), more_us(&mixed, changed));
    let idle_bytes = (with_idle.rss_bytes - idle_host.rss_bytes) / IDLE_THREADS as f64;
    println!("\nwhat a reading costs, `cgscope hist --json 1`");
    println!("a host without load {:8.0} us, {:.1} MiB", idle_host.reading_us, mib(idle_host.rss_bytes));
    println!("each idle task      {idle_us:8.3} us, {idle_bytes:.0} bytes ({IDLE_THREADS} threads)");
    println!("each changed task   {changed_us:8.2} us ({changed:.0} of {MIXED_THREADS} threads)");
    println!("each possible CPU   {} KiB of kernel memory", CPU_BYTES >> 10);
    Ok(())
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn figures() -> Result<Figures> {
    let seconds = (SECONDS + 2).to_string();
    let output = Command::new(built("cgscope")?).args(["hist", "--json", "1", &seconds]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let intervals: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    // The first two intervals include one-time work.
    let intervals = intervals.get(2..).filter(|rest| !rest.is_empty()).context("no intervals")?;
    let mean = |what: &str, of: fn(&Value) -> Option<f64>| {
        let figures: Option<Vec<f64>> = intervals.iter().map(of).collect();
        let figures = figures.with_context(|| format!("an interval has no {what}"))?;
        anyhow::Ok(figures.iter().sum::<f64>() / figures.len() as f64)
    };
    Ok(Figures {
        reading_us: mean("cpu_ns", |interval| interval["self"]["cpu_ns"].as_f64())? / 1e3,
        rss_bytes: mean("rss_bytes", |interval| interval["self"]["rss_bytes"].as_f64())?,
        changed: mean("tasks", |interval| Some(interval["tasks"].as_array()?.len() as f64))?,
    })
}

/// Measures cgscope, runqlat and pidstat, one after the other, on a host with many idle threads. Returns cgscope's own figures on
/// this host.
fn beside_others() -> Result<Figures> {
    let each = (IDLE_THREADS / 4).to_string();
    let _loads =
        [(); 4].map(|()| Load::start(&["sleep", &each, "300"])).into_iter().collect::<Result<Vec<_>>>()?;
    println!(
        "\n{IDLE_THREADS} idle threads, one report a second, for {SECONDS} s    CPU      resident memory"
    );
    for tool in ["cgscope hist 1", "runqlat -P 1", "pidstat -t 1"] {
        let (percent, rss_bytes) = usage(tool)?;
        println!("{tool:<55} {percent:5.2} %  {:.1} MiB", mib(rss_bytes));
    }
    figures()
}

/// Returns the CPU time of a tool, percent of one core, and its resident memory, bytes.
fn usage(tool: &str) -> Result<(f64, f64)> {
    let mut tool = start(tool)?;
    sleep(Duration::from_secs(4));
    let before = ran_ns(&tool)?;
    sleep(Duration::from_secs(SECONDS));
    let used_ns = ran_ns(&tool)?.saturating_sub(before);
    let rss_bytes = resident(&tool)?;
    // SAFETY: the pid is valid, because `tool` is our child and has not been reaped.
    unsafe { libc::kill(tool.id() as i32, libc::SIGINT) };
    tool.wait()?;
    Ok((used_ns as f64 / 1e7 / SECONDS as f64, rss_bytes))
}

/// Returns the CPU time of all threads of a process, ns. Adds up the first figure of each thread's `schedstat`, because `stat`
/// counts in ticks of 10 ms.
fn ran_ns(tool: &Child) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", tool.id()))? {
        let schedstat = fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += schedstat.split(' ').next().context("a schedstat file")?.parse::<u64>()?;
    }
    Ok(sum)
}

fn resident(tool: &Child) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", tool.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(1024.0 * line.trim().trim_end_matches(" kB").parse::<f64>()?)
}

/// A running `workload` process, killed on drop.
struct Load(Child);

impl Load {
    /// Starts `workload ARGS` and waits until it is ready.
    fn start(args: &[&str]) -> Result<Self> {
        let mut child = Command::new(built("workload")?).args(args).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("its output")?;
        let load = Self(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "the load {args:?} did not start");
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
