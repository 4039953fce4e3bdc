//! The subjects of the measurement: nothing, an empty hook, cgscope, and similar tools.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aya::{Btf, Ebpf, EbpfLoader, programs::BtfTracePoint};
use cgscope_collect::{EMPTY_HOOK_OBJECT, YARDSTICK_OBJECT};

use crate::{counting::program_ids, pause};

cgscope_ledger::named! {
    /// A tool that is attached while the load runs. The table lists the tools in this order.
    Subject {
        Nothing = "nothing",
        EmptyHook = "empty hook",
        /// The program that [`check`](crate::check) compares with.
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
    /// Ids of the subject's BPF programs.
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
        // SAFETY: a child of ours that has not been reaped.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        let _ = child.wait();
        pause();
    }
}

/// Attaches a compiled object, whose programs are at these tracepoints, in this order.
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

/// Loads this number of small programs, without attaching them. As long as they are loaded, the kernel puts the code of the next
/// programs elsewhere.
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

/// The cgscope binary in the directory of this binary.
pub fn cgscope() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("cgscope");
    if !path.exists() {
        bail!("{} does not exist: run `cargo xtask overhead`, which builds it", path.display());
    }
    Ok(path)
}
