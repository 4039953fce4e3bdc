//! Compares the cost of cgscope's hook with similar tools: `cargo xtask overhead`.
//!
//! The load is `perf bench sched pipe` on one CPU, or `perf bench sched messaging` on all. In each round it runs under every subject in turn, so that changes of the
//! machine's speed affect all subjects. The load runs twice under each subject. In one run the kernel counts the time of BPF
//! programs (as with `kernel.bpf_stats_enabled`), for the cost of a switch and of a wakeup. The other run gives the slowdown of
//! the load.

mod counting;
mod sleepers;
mod subject;
mod table;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::{
    counting::Counted,
    subject::Subject,
    table::{SubjectResults, print},
};

/// Compares the cost of cgscope with that of an empty hook and of runqlat.
#[derive(Parser)]
struct Options {
    /// Rounds: each runs the load twice under every subject
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Round trips of the pipe in one run of the load
    #[arg(long, default_value_t = 300_000)]
    loops: u64,

    /// Load all CPUs: 160 processes send messages, and many wake up on another CPU
    #[arg(long)]
    messaging: bool,

    /// Another cgscope to compare with: the binary of an earlier commit
    #[arg(long, value_name = "BINARY")]
    before: Option<PathBuf>,

    /// Leave out other tools, `cgscope stat` and the part with 5,000 sleeping threads
    #[arg(long)]
    hist_only: bool,

    /// Leave out the part with 5,000 sleeping threads
    #[arg(long)]
    hook_only: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let load = if options.messaging { messaging } else { pipe };
    let what = if options.messaging { "messaging on all CPUs" } else { "pipe on one CPU" };
    println!("perf bench sched {what}, {} loops, {} rounds", options.loops, options.rounds);
    let setting = fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap_or_default();
    if setting.trim() == "1" {
        println!("kernel.bpf_stats_enabled is 1: this counting also slows the load");
    }
    let subjects = Subject::ALL.into_iter().filter(|subject| match subject {
        Subject::Nothing | Subject::EmptyHook | Subject::Cgscope => true,
        Subject::Before => options.before.is_some(),
        _ => !options.hist_only,
    });
    let mut rows: Vec<SubjectResults> = subjects.map(SubjectResults::new).collect();
    for round in 1..=options.rounds {
        for row in &mut rows {
            eprintln!("round {round}: {}", row.subject.name());
            let running = row.subject.start(options.before.as_deref())?;
            row.seconds.push(load(options.loops)?);
            let counts = counting::start()?;
            let before = counting::read(&running.programs)?;
            load(options.loops)?;
            let after = counting::read(&running.programs)?;
            drop(counts);
            row.counted.push(Counted::between(&before, &after));
        }
    }
    print(&rows)?;
    if !options.hook_only && !options.hist_only {
        sleepers::measure()?;
    }
    Ok(())
}

fn pipe(loops: u64) -> Result<f64> {
    run(&["taskset", "-c", "0", "perf", "bench", "-f", "simple", "sched", "pipe", "-l", &loops.to_string()])
}

fn messaging(loops: u64) -> Result<f64> {
    // About as long as as many round trips of the pipe.
    let loops = (loops / 300).to_string();
    run(&["perf", "bench", "-f", "simple", "sched", "messaging", "-g", "4", "-l", &loops])
}

/// Runs the load. Returns its duration in seconds.
fn run(command: &[&str]) -> Result<f64> {
    let output = Command::new(command[0])
        .args(&command[1..])
        .output()
        .context("cannot run taskset and perf; `cargo xtask overhead` installs both")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().parse() {
        Ok(seconds) if output.status.success() => Ok(seconds),
        _ => bail!("perf bench failed: {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Waits until a process has finished its start or its exit.
fn pause() {
    std::thread::sleep(Duration::from_millis(300));
}
