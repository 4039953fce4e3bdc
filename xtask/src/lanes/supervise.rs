//! Runs one test, and becomes the parent of all processes that the test leaves behind. So their CPU time counts for the test, and
//! they end with it.
use std::process::{Command, ExitStatus};
use std::{fs, io, os::unix::process::ExitStatusExt, thread, time::Duration};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::steps::{self, Failure};

/// Numbers of pauses while this process waits for processes that a test has left behind: before it kills them, and before it
/// gives up.
const GRACE: u32 = 50;
const PATIENCE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a program, and exits with its status. Users do not call this.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let failed =
        |why: Errno| Failure::Step(format!("cannot wait for the end of {} ({why})", words.join(" ")));
    set_child_subreaper(Some(getpid())).map_err(failed)?;
    let mut command = Command::new(&words[0]);
    let child = command.args(&words[1..]).spawn().map_err(|why| steps::did_not_start(&command, &why))?;
    let status = loop {
        match retry_on_intr(|| wait(WaitOptions::empty())).map_err(failed)? {
            Some((pid, status)) if pid == Pid::from_child(&child) => break status,
            _ => {}
        }
    };
    end_what_is_left();
    std::process::exit(status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0)))
}

/// Reaps all processes that the test has left behind. Kills the processes that do not exit by themselves.
fn end_what_is_left() {
    for round in 0..PATIENCE {
        while let Ok(Some(_)) = retry_on_intr(|| wait(WaitOptions::NOHANG)) {}
        let left = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let left: Vec<i32> = left.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        if left.is_empty() {
            return;
        }
        if round == GRACE {
            eprintln!("xtask: the test left processes, which were killed: {left:?}");
        }
        if round >= GRACE {
            // These are children of this process that are not reaped yet, so their ids are valid.
            left.iter()
                .filter_map(|pid| Pid::from_raw(*pid))
                .for_each(|pid| _ = kill_process(pid, Signal::KILL));
        }
        thread::sleep(PAUSE);
    }
}

/// Runs a command. Returns its status, and its CPU time and that of its reaped descendants, seconds.
pub(crate) fn timed(command: &mut Command) -> Result<(ExitStatus, f64), Failure> {
    let child = command.spawn().map_err(|why| steps::did_not_start(command, &why))?;
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
            let words = steps::words(command);
            return Err(Failure::Step(format!("cannot wait for the end of {words} ({why})")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::timed;

    #[test]
    fn the_cpu_time_of_a_child_includes_that_of_its_reaped_children() {
        let busy = "sh -c 'n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done'; exit 3";
        let (status, seconds) = timed(Command::new("sh").args(["-c", busy])).expect("a shell");
        assert_eq!(status.code(), Some(3));
        assert!(seconds > 0.01, "{seconds}");
    }
}
