//! The kernel's own count of the time in BPF programs.

use std::{collections::BTreeMap, fs, os::fd::OwnedFd};

use anyhow::{Context, Result};
use aya::{
    programs::{ProgramInfo, loaded_programs},
    sys::{Stats, enable_stats},
};

/// While it lives the kernel counts, as with `kernel.bpf_stats_enabled` set to 1 (Linux 5.8). The setting itself is left
/// alone: this ends with the process, however that ends.
pub struct Counting(OwnedFd);

impl Counting {
    /// Begins to count.
    pub fn start() -> Result<Self> {
        Ok(Self(enable_stats(Stats::RunTime).context("the kernel cannot be told to count; root is needed")?))
    }

    /// Ends it.
    pub fn stop(self) {
        drop(self.0);
    }
}

/// True if the host counts all the time: then the runs without counting have it, too.
pub fn is_always_on() -> bool {
    fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text.trim() == "1")
}

/// Ids of all programs that are loaded now.
pub fn program_ids() -> Result<Vec<u32>> {
    Ok(loaded_programs().map(|program| program.map(|program| program.id())).collect::<Result<_, _>>()?)
}

/// Time (ns) and runs of a program.
pub type Readings = BTreeMap<u32, (String, u64, u64)>;

/// Of the programs with these ids.
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

/// What the programs of a subject cost under one run of the load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// ns a run of the program at the switch.
    pub switch_ns: f64,
    /// Its runs.
    pub switches: u64,
    /// ns a run of the programs at wakeups.
    pub wakeup_ns: f64,
    /// Their runs.
    pub wakeups: u64,
    /// ns of all programs together.
    pub total_ns: u64,
    /// Runs of all programs together.
    pub runs: u64,
}

impl Counted {
    /// What came between two readings.
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
            }
        }
        let per_run = |ns: u64, runs: u64| if runs == 0 { 0.0 } else { ns as f64 / runs as f64 };
        counted.switch_ns = per_run(switch_ns, counted.switches);
        counted.wakeup_ns = per_run(wakeup_ns, counted.wakeups);
        counted
    }
}
