//! Compares the cost of cgscope's hook with similar tools: `cargo xtask overhead`.
//!
//! The load is `perf bench sched pipe` on one CPU, or `perf bench sched messaging` on all CPUs. Each round runs the load under
//! every subject in turn, so that changes of the machine's speed affect all subjects. Under each subject, the first run measures
//! the slowdown of the load. Shorter runs follow, in which the kernel counts the time of BPF programs (as with
//! `kernel.bpf_stats_enabled`). They measure the cost of a switch and of a wakeup.

mod collector;
mod subject;
mod table;
mod together;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::{
    subject::{Counted, EMPTY_HOOK, HIST, NOTHING, attach, count, read_counts},
    table::{SubjectResults, print},
};

/// Compares the cost of cgscope with the cost of an empty hook and of other tools.
#[derive(Parser)]
struct Options {
    /// Number of rounds: each round runs the load twice under every subject
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Round trips of the pipe in one run of the load
    #[arg(long, default_value_t = 300_000)]
    loops: u64,

    /// Compare only with this other cgscope: the binary of an earlier commit
    #[arg(long, value_name = "BINARY")]
    before: Option<String>,

    /// Compare only the hook with the yardstick, and with --before; fail if the hook costs more than the ratio in this file allows
    #[arg(long, value_name = "FILE", conflicts_with = "full")]
    check: Option<PathBuf>,

    /// Measure all figures of docs/cost.md: two loads, idle threads beside other tools, and the cost of a reading
    #[arg(long, conflicts_with = "before")]
    full: bool,

    /// Measure only the messages of --full. From 21 rounds on, this shows whether the load takes longer than under runqlat
    #[arg(long, conflicts_with_all = ["before", "full"])]
    messaging: bool,
}

/// Number of runs of the load while the kernel counts.
const RUNS: u64 = 5;

/// A load whose tasks switch all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Switching {
    /// Two processes that take turns on one CPU.
    Pipe,
    /// 160 processes on all CPUs, many of which wake up on another CPU.
    Messaging,
}

impl Switching {
    /// Runs the load, and returns its duration, seconds.
    fn run(self, loops: u64) -> Result<f64> {
        let (program, words) = match self {
            Self::Pipe => ("taskset", format!("-c 0 perf bench -f simple sched pipe -l {loops}")),
            // This load takes about as long as `loops` round trips of the pipe.
            Self::Messaging => ("perf", format!("bench -f simple sched messaging -g 4 -l {}", loops / 120)),
        };
        let output = Command::new(program).args(words.split(' ')).output();
        let output = output.context("cannot run taskset and perf; `cargo xtask overhead` installs both")?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.trim().parse() {
            Ok(seconds) if output.status.success() => Ok(seconds),
            _ => bail!("perf bench failed: {text}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let setting = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap_or_default();
    if setting.trim() == "1" {
        println!("kernel.bpf_stats_enabled is 1: this counting also slows the load");
    }
    if let Some(file) = &options.check {
        together::check(file, options.rounds, options.loops)?;
    }
    if let Some(before) = &options.before {
        return together::compare(before, options.rounds, options.loops, options.check.is_some());
    }
    if options.check.is_some() {
        return Ok(());
    }
    let mut missed = Vec::new();
    if !options.messaging {
        compare(Switching::Pipe, &subject::ALL, &options, &mut missed)?;
    }
    if options.full || options.messaging {
        let hist_only = [NOTHING, EMPTY_HOOK, HIST, "runqlat 1"];
        compare(Switching::Messaging, &hist_only, &options, &mut missed)?;
    }
    if options.full {
        collector::measure()?;
    }
    if !missed.is_empty() {
        bail!("missed: {}", missed.join("; "));
    }
    Ok(())
}

/// Runs one load under every subject, and prints a table. Adds missed bounds to `missed`.
fn compare(
    load: Switching,
    subjects: &[&'static str],
    options: &Options,
    missed: &mut Vec<String>,
) -> Result<()> {
    println!("perf bench sched: {load:?}, {} loops, {} rounds", options.loops, options.rounds);
    let mut rows: Vec<_> = subjects.iter().copied().map(SubjectResults::new).collect();
    for round in 1..=options.rounds {
        for row in &mut rows {
            eprintln!("round {round}: {}", row.subject);
            let running = attach(row.subject)?;
            row.seconds.push(load.run(options.loops)?);
            row.counted.push(counted(&running.programs, load, options.loops)?);
        }
    }
    print(&rows, load == Switching::Pipe, missed)
}

/// Runs a part of the load several times. Returns the counts of the run with the median cost. With messaging, one run has twice
/// as many switches as another. In a run with few switches, less of the hook's data stays in the cache.
fn counted(programs: &[u32], load: Switching, loops: u64) -> Result<Counted> {
    let _counts = count()?;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let before = read_counts(programs)?;
        load.run(loops / RUNS)?;
        runs.push(Counted::between(&before, &read_counts(programs)?));
    }
    runs.sort_by(|a, b| a.switches.each_ns().total_cmp(&b.switches.each_ns()));
    Ok(runs.swap_remove(runs.len() / 2))
}

/// Waits for a process to finish its start or its exit.
fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}
