//! The kernel's own count of the time in BPF programs.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use aya::programs::{ProgramInfo, loaded_programs};

const SYSCTL: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// While it lives the kernel counts; then the setting is what it was.
pub struct Counting {
    before: String,
}

impl Counting {
    /// Begins to count.
    pub fn start() -> Result<Self> {
        let before = fs::read_to_string(SYSCTL).context(SYSCTL)?;
        fs::write(SYSCTL, "1").context("the kernel cannot be told to count; root is needed")?;
        Ok(Self { before })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SYSCTL, self.before.trim()) {
            eprintln!("{SYSCTL} could not be set back to {}: {error}", self.before.trim());
        }
    }
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
