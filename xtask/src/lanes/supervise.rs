//! Runs one test, and becomes the parent of all processes that the test leaves behind. So their CPU time counts for the test, and
//! they end with it.
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;
use std::{fs, io, thread};

use crate::steps::{self, Failure};

/// The xtask command that calls [`run`]. Users do not call it.
pub(crate) const COMMAND: &str = "supervise";
/// Numbers of pauses while this process waits for processes that a test has left behind: before it kills them, and before it
/// gives up.
const GRACE: u32 = 50;
const PATIENCE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Runs `SECONDS PROGRAM ARGS...`, and exits with the status of the program. Kills the program after SECONDS.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let [seconds, program, arguments @ ..] = words else {
        return Err(Failure::Usage(format!("`{COMMAND}` needs SECONDS and a program")));
    };
    let seconds: u64 = seconds.parse().map_err(|_| Failure::Usage(format!("`{seconds}` is not a number")))?;
    // SAFETY: the call passes no pointers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut command = Command::new(program);
    let child = command.args(arguments).spawn().map_err(|why| steps::did_not_start(&command, &why))?;
    let pid = child.id() as i32;
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(seconds));
        eprintln!("xtask: the test still ran after {seconds} s, so it was killed");
        // SAFETY: the call passes no pointers. `pid` is our child, and this process exits as soon as that child is reaped.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    });
    let status = loop {
        match reap(0) {
            Some((reaped, status)) if reaped == pid => break status,
            Some(_) => {}
            None => return Err(Failure::Step(format!("cannot wait for {program}"))),
        }
    };
    end_what_is_left();
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Reaps all processes that the test has left behind. Kills the processes that do not exit by themselves.
fn end_what_is_left() {
    for round in 0..PATIENCE {
        while let Some((pid, _)) = reap(libc::WNOHANG) {
            if pid == 0 {
                break;
            }
        }
        let left = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let left: Vec<i32> = left.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        if left.is_empty() {
            return;
        }
        if round == GRACE {
            eprintln!("xtask: the test left processes, which were killed: {left:?}");
        }
        if round >= GRACE {
            // SAFETY: the call passes no pointers. The processes are children of this process and are not reaped yet.
            left.iter().for_each(|pid| _ = unsafe { libc::kill(*pid, libc::SIGKILL) });
        }
        thread::sleep(PAUSE);
    }
}

/// Waits for any child. With WNOHANG, returns the pid 0 if no child has exited. Returns `None` if there is no child.
fn reap(options: i32) -> Option<(i32, ExitStatus)> {
    loop {
        let mut status = 0;
        // SAFETY: `status` lives longer than the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, options) };
        if pid >= 0 {
            return Some((pid, ExitStatus::from_raw(status)));
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Waits for a child. Returns the child's status, and the CPU time of the child and of its reaped descendants, seconds.
pub(crate) fn wait(child: Child) -> io::Result<(ExitStatus, f64)> {
    let mut status = 0;
    // SAFETY: the type has only integers, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: `status` and `usage` live longer than the call.
        let pid = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
        if pid >= 0 {
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            return Ok((ExitStatus::from_raw(status), seconds(usage.ru_utime) + seconds(usage.ru_stime)));
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::wait;

    #[test]
    fn the_cpu_time_of_a_child_includes_that_of_its_reaped_children() {
        let busy = "sh -c 'n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done'; exit 3";
        let child = Command::new("sh").args(["-c", busy]).spawn().expect("a shell");
        let (status, seconds) = wait(child).expect("a child");
        assert_eq!(status.code(), Some(3));
        assert!(seconds > 0.01, "{seconds}");
    }
}
