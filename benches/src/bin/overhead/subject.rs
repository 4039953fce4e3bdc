//! The subjects of the measurement: no tool, an empty hook, cgscope, and similar tools. Also reads the cost of their BPF
//! programs.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aya::{
    Btf, Ebpf, EbpfLoader,
    programs::{BtfTracePoint, ProgramInfo, loaded_programs},
    sys::{Stats, enable_stats},
};
use cgscope_collect::{EMPTY_HOOK_OBJECT, YARDSTICK_OBJECT};

use crate::pause;

cgscope_ledger::named! {
    /// A tool that is attached while the load runs. The table lists the tools in this order.
    Subject {
        Nothing = "nothing",
        EmptyHook = "empty hook",
        /// The program that [`check`](crate::together::check) compares with.
        Yardstick = "yardstick",
        Cgscope = "cgscope hist 1",
        /// `cgscope hist 1` built from an earlier commit.
        Before = "before: hist 1",
        Stat = "cgscope stat 1",
        StatOffcpu = "cgscope stat --offcpu 1",
        Runqlat = "runqlat 1",
        RunqlatPerProcess = "runqlat -P 1",
        Offcputime = "offcputime",
    }
}

/// A running subject, detached on drop.
pub struct Running {
    pub programs: Vec<u32>,
    _hook: Option<Ebpf>,
    child: Option<Child>,
}

impl Subject {
    /// Starts the subject. `earlier` is the binary for [`Self::Before`].
    pub fn start(self, earlier: Option<&Path>) -> Result<Running> {
        let before = program_ids()?;
        let mut running = match self {
            Self::Nothing => return Ok(Running { programs: Vec::new(), _hook: None, child: None }),
            Self::EmptyHook => by_object(EMPTY_HOOK_OBJECT, &["sched_switch"])?,
            Self::Yardstick => by_object(YARDSTICK_OBJECT, &["sched_switch", "task_newtask"])?,
            Self::Cgscope => by_command(cgscope()?, &["hist", "1"])?,
            Self::Before => by_command(earlier.context("no earlier binary")?.into(), &["hist", "1"])?,
            Self::Stat => by_command(cgscope()?, &["stat", "1"])?,
            Self::StatOffcpu => by_command(cgscope()?, &["stat", "--offcpu", "1"])?,
            Self::Runqlat => by_command("runqlat".into(), &["1"])?,
            Self::RunqlatPerProcess => by_command("runqlat".into(), &["-P", "1"])?,
            Self::Offcputime => by_command("offcputime".into(), &[])?,
        };
        let end = Instant::now() + Duration::from_secs(10);
        while running.programs.is_empty() {
            if Instant::now() > end {
                bail!("{} did not load a BPF program", self.name());
            }
            pause();
            running.programs = program_ids()?.into_iter().filter(|id| !before.contains(id)).collect();
        }
        // A subject may load several programs, one after the other.
        loop {
            pause();
            let now: Vec<u32> = program_ids()?.into_iter().filter(|id| !before.contains(id)).collect();
            if now == running.programs {
                break;
            }
            running.programs = now;
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return pause() };
        // SAFETY: the pid is valid, because `child` is our child and has not been reaped.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        let _ = child.wait();
        pause();
    }
}

/// Attaches the programs of a compiled object to these tracepoints, in this order.
fn by_object(object: &[u8], tracepoints: &[&str]) -> Result<Running> {
    let btf = Btf::from_sys_fs()?;
    let mut hook = EbpfLoader::new().allow_unsupported_maps().load(object)?;
    for (name, tracepoint) in ["on_switch", "on_new_task"].into_iter().zip(tracepoints) {
        let program: &mut BtfTracePoint = hook.program_mut(name).context("a program of ours")?.try_into()?;
        program.load(tracepoint, &btf)?;
        program.attach()?;
    }
    Ok(Running { programs: Vec::new(), _hook: Some(hook), child: None })
}

/// Loads this number of small programs without attaching them. They make the kernel put later programs at other addresses.
pub fn spacers(number: usize) -> Result<Vec<Ebpf>> {
    let btf = Btf::from_sys_fs()?;
    let spacers = (0..number).map(|_| {
        let mut spacer = Ebpf::load(EMPTY_HOOK_OBJECT)?;
        let program: &mut BtfTracePoint =
            spacer.program_mut("on_switch").context("the empty hook")?.try_into()?;
        program.load("sched_switch", &btf)?;
        Ok(spacer)
    });
    spacers.collect()
}

fn by_command(program: PathBuf, args: &[&str]) -> Result<Running> {
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
    Ok(Running { programs: Vec::new(), _hook: None, child: Some(child) })
}

pub fn cgscope() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("cgscope");
    if !path.exists() {
        bail!("{} does not exist: run `cargo xtask overhead`, which builds it", path.display());
    }
    Ok(path)
}

/// Enables the kernel's BPF statistics until the result is dropped, like `kernel.bpf_stats_enabled` = 1 (Linux 5.8). The kernel
/// also disables the statistics if this process is killed.
pub fn count() -> Result<OwnedFd> {
    enable_stats(Stats::RunTime).context("cannot enable the kernel's BPF statistics; run as root")
}

pub fn program_ids() -> Result<Vec<u32>> {
    Ok(loaded_programs().map(|program| program.map(|program| program.id())).collect::<Result<_, _>>()?)
}

/// Name, time (ns) and number of runs of each program, by id.
pub type Readings = BTreeMap<u32, (String, u64, u64)>;

pub fn read_counts(ids: &[u32]) -> Result<Readings> {
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

#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Time per run of the program at `sched_switch`, ns.
    pub switch_ns: f64,
    pub switches: u64,
    /// Time per run of the programs at wakeups, ns.
    pub wakeup_ns: f64,
    pub wakeups: u64,
    /// Total time of the program at `sched_migrate_task`, ns. It runs when a waiting task moves, and at wakeups on another CPU.
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
