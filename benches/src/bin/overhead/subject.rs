//! The subjects of the measurement: no tool, an empty hook, cgscope, and similar tools. Also reads the cost of their BPF
//! programs.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::PathBuf,
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

pub const NOTHING: &str = "nothing";
pub const EMPTY_HOOK: &str = "empty hook";
/// The program that [`check`](crate::together::check) compares with.
pub const YARDSTICK: &str = "yardstick";
pub const HIST: &str = "cgscope hist 1";
pub const CHAINS: &str = "cgscope hist --chains 1";

/// The subjects of the table, in its order. The other subjects are command lines.
pub const ALL: [&str; 9] = [
    NOTHING,
    EMPTY_HOOK,
    HIST,
    CHAINS,
    "cgscope stat 1",
    "cgscope stat --offcpu 1",
    "runqlat 1",
    "runqlat -P 1",
    "offcputime",
];

/// A running subject, detached on drop.
#[derive(Default)]
pub struct Running {
    pub programs: Vec<u32>,
    _hook: Option<Ebpf>,
    child: Option<Child>,
}

pub fn attach(subject: &str) -> Result<Running> {
    let before = program_ids()?;
    let mut running = match subject {
        NOTHING => return Ok(Running::default()),
        EMPTY_HOOK => by_object(EMPTY_HOOK_OBJECT, &[("on_switch", "sched_switch")])?,
        YARDSTICK => {
            let programs = [("on_switch", "sched_switch"), ("on_new_task", "task_newtask")];
            by_object(YARDSTICK_OBJECT, &programs)?
        }
        line => Running { programs: Vec::new(), _hook: None, child: Some(start(line)?) },
    };
    let end = Instant::now() + Duration::from_secs(10);
    // A subject may load several programs, one after the other.
    loop {
        pause();
        let mut now = program_ids()?;
        now.retain(|id| !before.contains(id));
        if !now.is_empty() && now == running.programs {
            return Ok(running);
        }
        if Instant::now() > end {
            bail!("{subject} did not load its BPF programs");
        }
        running.programs = now;
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

/// Attaches programs of a compiled object: each to a tracepoint.
fn by_object(object: &[u8], programs: &[(&str, &str)]) -> Result<Running> {
    let mut hook = EbpfLoader::new().allow_unsupported_maps().load(object)?;
    for (name, tracepoint) in programs {
        loaded(&mut hook, name, tracepoint)?.attach()?;
    }
    Ok(Running { programs: Vec::new(), _hook: Some(hook), child: None })
}

/// Loads this number of small programs without attaching them. They make the kernel put later programs at other addresses.
pub fn spacers(number: usize) -> Result<Vec<Ebpf>> {
    let spacers = (0..number).map(|_| {
        let mut spacer = Ebpf::load(EMPTY_HOOK_OBJECT)?;
        loaded(&mut spacer, "on_switch", "sched_switch")?;
        Ok(spacer)
    });
    spacers.collect()
}

fn loaded<'a>(object: &'a mut Ebpf, name: &str, tracepoint: &str) -> Result<&'a mut BtfTracePoint> {
    let program: &mut BtfTracePoint = object.program_mut(name).context("a program of ours")?.try_into()?;
    program.load(tracepoint, &Btf::from_sys_fs()?)?;
    Ok(program)
}

pub fn start(line: &str) -> Result<Child> {
    let mut words = line.split(' ');
    let program = match words.next().unwrap_or_default() {
        "cgscope" => built("cgscope")?,
        program => program.into(),
    };
    let mut command = Command::new(&program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("{} cannot be started", program.display()))
}

/// Returns the path of a program that cargo has built next to this one.
pub fn built(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
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

/// The runs of a program, or of several programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Runs {
    pub ns: u64,
    pub count: u64,
}

impl Runs {
    /// Returns the time of a run, ns; 0 without runs.
    pub fn each_ns(self) -> f64 {
        self.ns as f64 / self.count.max(1) as f64
    }

    fn add(&mut self, other: Self) {
        self.ns += other.ns;
        self.count += other.count;
    }
}

/// The name and the runs of each program, by id.
pub type Readings = BTreeMap<u32, (String, Runs)>;

pub fn read_counts(ids: &[u32]) -> Result<Readings> {
    let mut readings = Readings::new();
    for program in loaded_programs() {
        let program: ProgramInfo = program?;
        if ids.contains(&program.id()) {
            let name = program.name_as_str().unwrap_or_default().to_owned();
            let runs = Runs { ns: program.run_time().as_nanos() as u64, count: program.run_count() };
            readings.insert(program.id(), (name, runs));
        }
    }
    Ok(readings)
}

/// The runs of the programs of a subject, by tracepoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    pub switches: Runs,
    pub wakeups: Runs,
    /// At `sched_migrate_task`, where a waiting task moves, or a task wakes up on another CPU.
    pub moves: Runs,
    pub all: Runs,
}

impl Counted {
    pub fn between(before: &Readings, after: &Readings) -> Self {
        let mut counted = Self::default();
        for (id, (name, runs)) in after {
            let earlier = before.get(id).map(|(_, runs)| *runs).unwrap_or_default();
            let runs = Runs { ns: runs.ns - earlier.ns, count: runs.count - earlier.count };
            counted.all.add(runs);
            match name {
                name if name.contains("switch") => counted.switches.add(runs),
                name if name.contains("wakeup") || name.contains("waking") => counted.wakeups.add(runs),
                name if name.contains("move") => counted.moves.add(runs),
                _ => {}
            }
        }
        counted
    }

    /// Returns a figure of all runs relative to the number of switches.
    pub fn per_switch(&self, figure: f64) -> f64 {
        figure / self.switches.count.max(1) as f64
    }
}
