//! Reads the kernel's statistics of time spent in BPF programs.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use anyhow::{Context, Result};
use aya::{
    programs::{ProgramInfo, loaded_programs},
    sys::{Stats, enable_stats},
};

/// Enables the kernel's BPF statistics, like `kernel.bpf_stats_enabled` = 1 (Linux 5.8), until the result is dropped.
///
/// The kernel also disables them if this process is killed.
pub fn start() -> Result<OwnedFd> {
    enable_stats(Stats::RunTime).context("cannot enable the kernel's BPF statistics; run as root")
}

/// Ids of all loaded programs.
pub fn program_ids() -> Result<Vec<u32>> {
    Ok(loaded_programs().map(|program| program.map(|program| program.id())).collect::<Result<_, _>>()?)
}

/// Name, time (ns) and number of runs of each program, by id.
pub type Readings = BTreeMap<u32, (String, u64, u64)>;

pub fn read(ids: &[u32]) -> Result<Readings> {
    let mut readings = Readings::new();
    for program in loaded_programs() {
        let program: ProgramInfo = program?;
        if ids.contains(&program.id()) {
            let name = program.name_as_str().unwrap_or_default().to_owned();
            readings.insert(program.id(), (name, program.run_time().as_nanos() as u64, program.run_count()));
        }
    }
    Ok(readings)
}

/// The cost of a subject's programs in one run of the load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Time per run of the program at `sched_switch`, ns.
    pub switch_ns: f64,
    pub switches: u64,
    /// Time per run of the programs at wakeups, ns.
    pub wakeup_ns: f64,
    pub wakeups: u64,
    /// Total time of the program at `sched_migrate_task`, ns, and its runs: moves of waiting tasks, and wakeups on another CPU.
    pub move_ns: u64,
    pub moves: u64,
    /// Total time of all programs, ns.
    pub total_ns: u64,
    pub runs: u64,
}

impl Counted {
    pub fn between(before: &Readings, after: &Readings) -> Self {
        let mut counted = Self::default();
        let (mut switch_ns, mut wakeup_ns) = (0, 0);
        for (id, (name, time, runs)) in after {
            let (_, time_before, runs_before) = before.get(id).cloned().unwrap_or_default();
            let (time, runs) = (time - time_before, runs - runs_before);
            counted.total_ns += time;
            counted.runs += runs;
            if name.contains("switch") {
                switch_ns += time;
                counted.switches += runs;
            } else if name.contains("wakeup") {
                wakeup_ns += time;
                counted.wakeups += runs;
            } else if name.contains("move") {
                counted.move_ns += time;
                counted.moves += runs;
            }
        }
        let per_run = |ns: u64, runs: u64| if runs == 0 { 0.0 } else { ns as f64 / runs as f64 };
        counted.switch_ns = per_run(switch_ns, counted.switches);
        counted.wakeup_ns = per_run(wakeup_ns, counted.wakeups);
        counted
    }
}
