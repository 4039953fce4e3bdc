//! A virtual machine: QEMU, emulating every instruction, so that it runs where there is no virtualization.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::lab::kernels::Kernel;
use crate::lab::qemu::Qemu;
use crate::steps;

/// So long may it say nothing.
const SILENCE: Duration = Duration::from_secs(150);
/// So long may it run.
const LIFE: Duration = Duration::from_secs(900);
/// Of the console, where it ended badly.
const LAST_LINES: usize = 25;

/// Kernel messages of errors only; no rests that only real machines need.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=4 panic=-1 mitigations=off nowatchdog random.trust_cpu=on \
                            rcupdate.rcu_cpu_stall_suppress=1 tsc=reliable no_timer_check";

/// How a machine ended.
pub(crate) enum End {
    /// By itself.
    Off,
    /// It was ended; in words why, with the console's last lines.
    Stopped(String),
}

/// Where the files of a run are: `initrd`, `console.log`.
pub(crate) fn place(kernel: &Kernel) -> PathBuf {
    let target = steps::users_target_dir().unwrap_or_else(|| steps::workspace().join("target"));
    target.join("lab").join(kernel.series.to_string())
}

/// The command line, but for the two serial lines.
fn machine(qemu: &Qemu, kernel: &Kernel, initrd: &Path) -> Command {
    // With us it ends, also where we are killed: QEMU knows no such option.
    let mut qemu = qemu.command_after(&["setpriv", "--pdeathsig", "KILL", "--"]);
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
    qemu.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-m",
        "2048",
        "-smp",
        "4",
    ]);
    for node in 0..2 {
        let memory = format!("memory-backend-ram,id=m{node},size=1024M");
        let cpus = format!("node,nodeid={node},cpus={}-{},memdev=m{node}", 2 * node, 2 * node + 1);
        qemu.args(["-object", &memory, "-numa", &cpus]);
    }
    qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initrd).args(["-append", COMMAND_LINE]);
    qemu
}

/// Runs a machine to its end, and hands over what it says as it comes. `said` is one piece at a time, not a line.
pub(crate) fn run(
    qemu: &Qemu,
    kernel: &Kernel,
    initrd: &[u8],
    mut said: impl FnMut(&str),
) -> Result<End, Failure> {
    let place = place(kernel);
    let initrd = put(&place, initrd)?;
    let console = place.join("console.log");
    let mut command = machine(qemu, kernel, &initrd);
    command.arg("-serial").arg(format!("file:{}", console.display())).args(["-serial", "stdio"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|why| steps::did_not_start(&command, &why))?;
    let mut machine = Machine(child);
    let pieces = steps::pieces(&mut machine.0);
    let end = Instant::now() + LIFE;
    let why = loop {
        match pieces.recv_timeout(SILENCE.min(end.saturating_duration_since(Instant::now()))) {
            Ok(piece) => said(&String::from_utf8_lossy(&piece)),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= end => {
                break Some(format!("it was not done after {} s", LIFE.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {
                break Some(format!("it said nothing for {} s", SILENCE.as_secs()));
            }
        }
    };
    let status = machine.end(why.is_none());
    let _ = fs::remove_file(initrd);
    let why = why.or_else(|| match status {
        Some(status) if status.success() => None,
        status => Some(format!("QEMU ended with {status:?}")),
    });
    Ok(why.map_or(End::Off, |why| End::Stopped(format!("{why}\n{}", last_lines(&console)))))
}

/// Runs a machine with the console in this terminal.
pub(crate) fn shell(qemu: &Qemu, kernel: &Kernel, initrd: &[u8]) -> Result<(), Failure> {
    let initrd = put(&place(kernel), initrd)?;
    let mut command = machine(qemu, kernel, &initrd);
    // Ctrl-C belongs to the shell inside; Ctrl-A X ends the machine.
    command.args(["-chardev", "stdio,id=terminal,mux=on,signal=off", "-serial", "chardev:terminal"]);
    // The second line is there in every machine.
    let ended = steps::status(command.args(["-mon", "chardev=terminal", "-serial", "null"]));
    let _ = fs::remove_file(initrd);
    ended.map(drop)
}

fn put(place: &Path, initrd: &[u8]) -> Result<PathBuf, Failure> {
    let path = place.join("initrd");
    fs::create_dir_all(place).and_then(|()| fs::write(&path, initrd)).map_err(|why| {
        Failure::Host(format!("lab: {} cannot be written ({why}), so nothing can be run", path.display()))
    })?;
    Ok(path)
}

fn last_lines(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n    ");
    format!("the console's last lines (all are in {}):\n    {last}", path.display())
}

/// A process that ends with its value.
struct Machine(Child);

impl Machine {
    fn end(&mut self, by_itself: bool) -> Option<ExitStatus> {
        if !by_itself {
            let _ = self.0.kill();
        }
        self.0.wait().ok()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
