//! Starts a command: forks, holds the child until the measurement is ready, and then releases the child.
//!
//! The command can run as another user, who may be hostile. A process with our controlling terminal can push characters into it
//! (`TIOCSTI`), and our shell then executes them. A process that can read from the terminal sees what is typed. So the command of
//! another user leads its own session, as under `su -c`. Its input is not a terminal, and it can only write to ours.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    os::unix::fs::OpenOptionsExt,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicI32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use cgscope_model::command_run::Usage;
use rustix::stdio::{stderr, stdout};
use tokio::sync::oneshot;

use crate::{
    exit::{Error, Result},
    users::{self, User},
};

/// The target to which signals are passed on, as in `kill(2)`: a process id, or a negative process group id; 0: no target.
pub static PASS_TO: AtomicI32 = AtomicI32::new(0);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    AsOurs,
    /// To our standard error, because our standard output carries only the result.
    ToStandardError,
    /// To /dev/null, because our screen uses the terminal.
    Nowhere,
}

pub struct Held {
    pub pid: u32,
    /// The target for `kill(2)`: the child. With its own session, its process group: keys in our terminal do not signal it.
    pub signalled: i32,
    go: io::PipeWriter,
    outcome: oneshot::Receiver<io::Result<Ended>>,
    remains: Unreaped,
}

/// While this value lives, an ended command is not reaped, so that `/proc` still shows it.
pub type Unreaped = mpsc::Sender<()>;

pub struct Running {
    pub pid: u32,
    released: Instant,
    outcome: oneshot::Receiver<io::Result<Ended>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// The resources of the command and of the children that it waited for.
    pub usage: Usage,
    at: Instant,
    /// Time since the release.
    pub lived: Duration,
}

impl Held {
    /// Forks, unless the command is empty. The child executes the command after [`Held::release`].
    pub fn start(command: &[String], user: Option<&str>, output: Output) -> Result<Option<Self>> {
        let [program, arguments @ ..] = command else { return Ok(None) };
        let failed = |error: io::Error| Error::could_not_run(format!("cannot start {program:?}: {error}"));
        let (go_reader, go) = io::pipe().map_err(failed)?;
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let mut process = Command::new(program);
        process.args(arguments);
        match output {
            Output::AsOurs => {}
            Output::ToStandardError => {
                process.stdout(io::stderr().as_fd().try_clone_to_owned().map_err(failed)?);
            }
            Output::Nowhere => {
                process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        if let Some(name) = user {
            become_user(&mut process, name)?;
            leave_terminal(&mut process, output).map_err(failed)?;
        }
        let our_end = go.as_raw_fd();
        // SAFETY: between fork and exec the closure makes only async-signal-safe calls: close, getpid, write, read.
        unsafe {
            process.pre_exec(move || {
                // If the child kept our end of the pipe open, it would wait for ever after our death.
                libc::close(our_end);
                (&pid_writer).write_all(&std::process::id().to_ne_bytes())?;
                match (&go_reader).read(&mut [0])? {
                    0 => Err(io::Error::other("cgscope could not start to measure it")),
                    _ => Ok(()),
                }
            });
        }
        let (outcome, remains) = run_in_thread(process).map_err(failed)?;
        let mut pid = [0; 4];
        let read = pid_reader.read_exact(&mut pid);
        read.map_err(|_| failed(io::Error::other("no new process could be created")))?;
        let pid = u32::from_ne_bytes(pid);
        let signalled = if user.is_some() { -(pid as i32) } else { pid as i32 };
        Ok(Some(Self { pid, signalled, go, outcome, remains }))
    }

    pub fn release(mut self) -> (Running, Unreaped) {
        let released = Instant::now();
        let _ = self.go.write_all(&[1]);
        (Running { pid: self.pid, released, outcome: self.outcome }, self.remains)
    }
}

impl Running {
    pub async fn wait(&mut self) -> io::Result<Ended> {
        let outcome = (&mut self.outcome).await;
        let ended = outcome
            .unwrap_or_else(|_| Err(io::Error::other("the thread that waits for the command has ended")))?;
        Ok(Ended { lived: ended.at.saturating_duration_since(self.released), ..ended })
    }

    pub fn terminate(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// Spawns the child on a thread, because `spawn` returns only after the child was released and has executed the command.
fn run_in_thread(mut process: Command) -> io::Result<(oneshot::Receiver<io::Result<Ended>>, Unreaped)> {
    let (done, outcome) = oneshot::channel();
    let (held, is_held) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let result = process.spawn();
        // Closes our copies of the pipes. If the fork failed, the reader then gets the end of the file.
        drop(process);
        let _ = done.send(result.and_then(|mut child| {
            let ended = end_of(&child);
            // Passes no more signals on, because the pid can be reused after the reap.
            PASS_TO.store(0, Ordering::SeqCst);
            match is_held.try_recv() {
                Err(mpsc::TryRecvError::Empty) => {
                    // Reaps the child when `Unreaped` is dropped. If no thread can be created, init reaps it after our exit.
                    let _ =
                        thread::Builder::new().spawn(move || is_held.recv().is_err().then(|| child.wait()));
                }
                _ => drop(child.wait()),
            }
            ended
        }));
    })?;
    Ok((outcome, held))
}

fn end_of(child: &Child) -> io::Result<Ended> {
    loop {
        // SAFETY: zeroes are valid values, and the kernel fills both structs. The C library's `waitid` does not take `rusage`.
        let (result, info, usage) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let mut usage: libc::rusage = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            let result =
                libc::syscall(libc::SYS_waitid, libc::P_PID, child.id(), &mut info, flags, &mut usage);
            (result, info, usage)
        };
        let at = Instant::now();
        if result == 0 {
            // SAFETY: for a child that has ended, the kernel sets si_status.
            let value = unsafe { info.si_status() };
            let status = ExitStatus::from_raw(match info.si_code {
                libc::CLD_EXITED => (value & 0xff) << 8,
                libc::CLD_DUMPED => value | 0x80,
                _ => value,
            });
            return Ok(Ended { status, usage: used(&usage), at, lived: Duration::ZERO });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn used(usage: &libc::rusage) -> Usage {
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    let ns = |time: libc::timeval| {
        (count(time.tv_sec).saturating_mul(1_000_000).saturating_add(count(time.tv_usec)))
            .saturating_mul(1_000)
    };
    Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        max_rss_bytes: count(usage.ru_maxrss).saturating_mul(1_024),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary: count(usage.ru_nvcsw),
        involuntary: count(usage.ru_nivcsw),
        blocks_in: count(usage.ru_inblock),
        blocks_out: count(usage.ru_oublock),
    }
}

/// Variables that the other user's command inherits. Other variables may be secret, or make programs load files.
const KEPT: [&str; 7] = ["PATH", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ"];

/// Makes the command run as another user, in a session without a controlling terminal.
fn become_user(process: &mut Command, name: &str) -> Result<()> {
    let mut user = users::user(name).map_err(Error::could_not_run)?;
    process.env_clear().envs(environment(&user, name, env::vars_os()));
    user.groups.push(user.gid);
    // SAFETY: only system calls between fork and exec. `setsid` succeeds, because the new process leads no process group yet.
    unsafe {
        process.pre_exec(move || {
            user.enter()?;
            close_at_exec();
            if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    Ok(())
}

/// Sets close-on-exec on all inherited descriptors except the standard ones. Makes only system calls.
fn close_at_exec() {
    const FIRST: libc::c_uint = 3;
    /// The usual maximum number of open files. Used on kernels before 5.11, which lack `close_range` with this flag.
    const MOST: libc::c_uint = 1 << 16;
    // SAFETY: only descriptor flags change.
    unsafe {
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flag) != 0 {
            for open in FIRST..MOST {
                libc::fcntl(open as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

/// The name and the value of an environment variable.
type Variable = (OsString, OsString);

fn environment(user: &User, name: &str, ours: impl Iterator<Item = Variable>) -> Vec<Variable> {
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("LC_");
    let theirs = [("HOME", user.home.as_str()), ("SHELL", &user.shell), ("USER", name), ("LOGNAME", name)];
    let theirs = theirs.map(|(name, value)| (name.into(), value.into()));
    ours.filter(|(name, _)| name.to_str().is_some_and(is_kept)).chain(theirs).collect()
}

/// Makes the command start without an input from our terminal. Reopens an inherited terminal for writing only.
fn leave_terminal(process: &mut Command, output: Output) -> io::Result<()> {
    let (to_stdout, to_stderr) = match output {
        Output::Nowhere => return Ok(()),
        Output::AsOurs => (stdout(), stderr()),
        Output::ToStandardError => (stderr(), stderr()),
    };
    if io::stdin().is_terminal() {
        process.stdin(Stdio::null());
    }
    if let Some(terminal) = for_writing(to_stdout)? {
        process.stdout(terminal);
    }
    if let Some(terminal) = for_writing(to_stderr)? {
        process.stderr(terminal);
    }
    Ok(())
}

/// Reopens a terminal for writing. Returns `None` if `open` is not a terminal.
fn for_writing(open: BorrowedFd) -> io::Result<Option<File>> {
    let path = format!("/proc/self/fd/{}", open.as_raw_fd());
    let reopen = || File::options().write(true).custom_flags(libc::O_NOCTTY).open(path);
    open.is_terminal().then(reopen).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_gets_an_environment_of_their_own() {
        let user =
            User { uid: 7, gid: 8, home: "/home/a".into(), shell: "/bin/zsh".into(), groups: Vec::new() };
        let ours = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("LD_PRELOAD", "/root/x.so"),
            ("HOME", "/root"),
            ("SUDO_UID", "1000"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
        ];
        let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let said: Vec<_> = environment(&user, "a", ours.into_iter())
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(said, ["PATH=/bin", "LC_ALL=C", "HOME=/home/a", "SHELL=/bin/zsh", "USER=a", "LOGNAME=a"]);
    }
}
