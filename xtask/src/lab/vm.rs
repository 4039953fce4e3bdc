//! Runs a virtual machine in QEMU. QEMU emulates every instruction, so no hardware virtualization is needed.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io::Read, thread};

use crate::steps::{self, Failure};
use bpf_build::linker;

use crate::lab::{arch::Arch, archive::Apt, kernels::Kernel};
use crate::setup;

/// Maximum time for which a machine may print nothing.
const SILENCE: Duration = Duration::from_secs(150);
const LIFE: Duration = Duration::from_secs(900);
/// Time between two readings of the output.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of console lines that are shown after a failure.
const LAST_LINES: usize = 25;

/// The kernel command line. Because of it, the kernel logs only errors, and skips delays that real hardware needs.
const COMMAND_LINE: &str = "loglevel=4 panic=-1 mitigations=off nowatchdog random.trust_cpu=on \
                            rcupdate.rcu_cpu_stall_suppress=1 tsc=reliable no_timer_check";

/// Returns the directory of a run. It contains `initrd`, `console.log`, and the output of the tests in `tests.log`.
pub(crate) fn place(kernel: &Kernel) -> PathBuf {
    steps::target_dir().join("lab").join(kernel.id.to_string())
}

fn machine(qemu: &Qemu, kernel: &Kernel, initrd: &Path) -> Command {
    // setpriv ends QEMU when the thread that started QEMU ends, even if xtask is killed. QEMU itself has no such option.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(&qemu.program);
    if let Some(data) = &qemu.data {
        // QEMU also searches for firmware in the directory of the SeaBIOS package.
        command.arg("-L").arg(data).args(["-L", "/usr/share/seabios"]);
    }
    command.args(["-accel", "tcg,thread=multi"]).args(kernel.id.arch.machine());
    // The files of a Debian root stay in memory, so the machine needs more memory.
    let megabytes = if kernel.root.is_some() { 4096 } else { 2048 };
    command.args("-nodefaults -no-user-config -display none -no-reboot".split(' '));
    command.args(["-m", &megabytes.to_string()]);
    let Cpus { online, possible } = qemu.cpus;
    command.args(["-smp", &format!("{online},maxcpus={possible}")]);
    for (node, cpus) in qemu.cpus.on_two_nodes().into_iter().enumerate() {
        let memory = format!("memory-backend-ram,id=m{node},size={}M", megabytes / 2);
        let cpus = format!("node,nodeid={node},cpus={cpus},memdev=m{node}");
        command.args(["-object", &memory, "-numa", &cpus]);
    }
    let words = format!("console={}0 {COMMAND_LINE}", kernel.id.arch.serial_ports());
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initrd).args(["-append", &words]);
    command
}

/// Returns how long the CPUs of a machine waited for a CPU of the host, seconds. `pid` is the process of QEMU.
pub(crate) fn waited_s(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    let waited_ns = |text: String| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    texts.filter_map(waited_ns).sum::<u64>() as f64 / 1e9
}

/// Runs a machine until it ends. Calls `said` for each piece of output, with the process of QEMU.
///
/// Returns `None` if the machine ended by itself. Otherwise returns why the machine was stopped, and the last lines of its
/// console.
pub(crate) fn run(
    qemu: &Qemu,
    kernel: &Kernel,
    initrd: &Path,
    mut said: impl FnMut(u32, &str),
) -> Result<Option<String>, Failure> {
    let [console, tests] = ["console.log", "tests.log"].map(|name| place(kernel).join(name));
    steps::write(&tests, "")?;
    let mut output = fs::File::open(&tests).map_err(|why| steps::cannot("read", &tests, &why))?;
    let mut command = machine(qemu, kernel, initrd);
    for serial_port in [&console, &tests] {
        command.arg("-serial").arg(format!("file:{}", serial_port.display()));
    }
    let started = command.stdin(Stdio::null()).spawn();
    let mut child = started.map_err(|why| steps::did_not_start(&command, &why))?;
    let begun = Instant::now();
    let mut printed = begun;
    let why = loop {
        let ended = child.try_wait().ok().flatten();
        let mut piece = Vec::new();
        let _ = output.read_to_end(&mut piece);
        if !piece.is_empty() {
            printed = Instant::now();
            said(child.id(), &String::from_utf8_lossy(&piece));
        }
        match ended {
            Some(status) if status.success() => break None,
            Some(status) => break Some(format!("QEMU ended with {status}")),
            None if begun.elapsed() > LIFE => {
                break Some(format!("the machine still ran after {} s", LIFE.as_secs()));
            }
            None if printed.elapsed() > SILENCE => {
                break Some(format!("the machine printed nothing for {} s", SILENCE.as_secs()));
            }
            None => thread::sleep(PAUSE),
        }
    };
    if why.is_some() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let _ = fs::remove_file(initrd);
    Ok(why.map(|why| format!("{why}\n{}", last_lines(&console))))
}

/// Runs a machine whose console is this terminal.
pub(crate) fn shell(qemu: &Qemu, kernel: &Kernel, initrd: &Path) -> Result<(), Failure> {
    let mut command = machine(qemu, kernel, initrd);
    // Ctrl-C goes to the shell in the machine. Ctrl-A X ends the machine.
    command.args(["-chardev", "stdio,id=terminal,mux=on,signal=off", "-serial", "chardev:terminal"]);
    // The second serial port is unused here.
    let ended = steps::status(command.args(["-mon", "chardev=terminal", "-serial", "null"]));
    let _ = fs::remove_file(initrd);
    ended.map(drop)
}

fn last_lines(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n    ");
    format!("the last lines of the console (complete: {}):\n    {last}", path.display())
}

/// The oldest QEMU that works.
///
/// Before 8.1, a CPU may run an instruction that another CPU has just changed (QEMU fixed this in "accel/tcg: Always lock pages
/// before translation"). In such a QEMU, a kernel that patches its code to switch BPF statistics crashes ("Oops: int3").
const LEAST: (u32, u32) = (8, 1);

/// The CPUs of a machine, on two NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpus {
    pub(crate) online: u32,
    /// Number of CPUs for which the kernel has reserved memory.
    pub(crate) possible: u32,
}

impl Cpus {
    /// Parses a number of CPUs such as `64`, or `4/255`, which means 4 CPUs online and 255 possible.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (online, possible) = text.split_once('/').unwrap_or((text, text));
        match (online.parse::<u32>(), possible.parse::<u32>()) {
            // QEMU's default board supports at most 255 CPUs.
            (Ok(online @ 1..), Ok(possible @ 2..=255)) if online <= possible => Ok(Self { online, possible }),
            _ => Err("this is not a number from 2 to 255, or `ONLINE/POSSIBLE` such as `4/255`".to_owned()),
        }
    }

    /// Returns the CPUs of each node. The first node has half of the CPUs that are online, and the second node has all others.
    fn on_two_nodes(self) -> [String; 2] {
        let half = self.online.div_ceil(2);
        [format!("0-{}", half - 1), format!("{half}-{}", self.possible - 1)]
    }
}

/// A QEMU whose version is new enough.
pub(crate) struct Qemu {
    program: PathBuf,
    pub(crate) cpus: Cpus,
    /// The directory of QEMU's data files, if QEMU is not installed.
    data: Option<PathBuf>,
}

impl Qemu {
    /// Finds the installed QEMU. If it is too old, downloads the backport and unpacks it. Nothing is installed.
    pub(crate) fn find(arch: Arch, cpus: Cpus) -> Result<Self, Failure> {
        let name = format!("qemu-system-{}", arch.name());
        let installed = PathBuf::from(&name);
        if is_new_enough(&installed) {
            return Ok(Self { program: installed, cpus, data: None });
        }
        let place = setup::cache("lab")?.join("qemu");
        let program = place.join("usr/bin").join(&name);
        if !is_new_enough(&program) {
            let apt = Apt::new(Arch::of_this_machine())?;
            for name in [arch.qemu(), "qemu-system-data"] {
                apt.unpack(&format!("{name}/bookworm-backports"), &place)?;
            }
        }
        if !is_new_enough(&program) {
            let (major, minor) = LEAST;
            return Err(Failure::Host(format!(
                "lab: {name} {major}.{minor} or later is not available, and kernels crash in older ones; install it"
            )));
        }
        Ok(Self { program, cpus, data: Some(place.join("usr/share/qemu")) })
    }
}

fn is_new_enough(program: &Path) -> bool {
    steps::output(Command::new(program).arg("--version")).is_ok_and(|text| version(&text) >= Some(LEAST))
}

/// Parses `QEMU emulator version 10.0.2 (Debian ...)`.
fn version(text: &str) -> Option<(u32, u32)> {
    linker::release(text.split_once("version ")?.1)
}

#[cfg(test)]
mod tests {
    use super::{Cpus, version};

    #[test]
    fn cpus_are_those_online_and_those_possible() {
        assert_eq!(Cpus::parse("64"), Ok(Cpus { online: 64, possible: 64 }));
        let some = Cpus::parse("4/255").expect("valid");
        assert_eq!((some.online, some.on_two_nodes()), (4, ["0-1".to_owned(), "2-254".to_owned()]));
        assert_eq!(Cpus { online: 4, possible: 4 }.on_two_nodes(), ["0-1", "2-3"]);
        for wrong in ["0", "256", "8/4", "many", "1"] {
            assert!(Cpus::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_version_is_parsed_from_the_output_of_qemu() {
        assert_eq!(version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright"), Some((10, 0)));
        assert!(version("QEMU emulator version 7.2.22 (Debian)") < Some((8, 1)));
        assert_eq!(version("not found"), None);
    }
}
