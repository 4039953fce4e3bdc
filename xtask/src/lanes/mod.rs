//! Runs each test that needs root in a separate process. If a test fails, decides whether the reason is cgscope or the machine.

mod disturbance;
mod schedule;
mod verdict;

use std::io::{self, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::{fs, os::unix::process::ExitStatusExt, path::PathBuf, thread, time::Duration};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait},
};

use crate::{
    lab::{self, Binaries},
    readers,
    steps::{self, AsRoot, Failure},
};
pub(crate) use disturbance::{Disturbance, Reading};
pub(crate) use schedule::{Lease, Test, in_parallel};
pub(crate) use verdict::{History, Try, decide};

/// Prefix of the tests that take minutes. These tests run only if they are requested by name.
pub(crate) const LONG: &str = "long::";
/// Prefix of the tests that take half an hour. They are a separate part.
pub(crate) const SOAK: &str = "soak::";
/// Prefix of the tests that need the kernel that the lab builds.
pub(crate) const BUILT_KERNEL: &str = "built_kernel::";
/// Prefix of the tests that need systemd as the first process.
pub(crate) const SYSTEMD_HOST: &str = "systemd_host::";
/// Prefixes of all tests that run only if they are requested by name.
const SKIPPED: [&str; 4] = [LONG, SOAK, BUILT_KERNEL, SYSTEMD_HOST];
/// Options of libtest. With any of them, the output of each test is printed when the test has ended.
pub(crate) const SHOW: &str = "--show-output";
const NO_CAPTURE: &str = "--nocapture";
/// Maximum duration of a normal test, and of a test that takes minutes, seconds.
const LIMIT: &str = "300";
const LONG_LIMIT: &str = "3600";

fn takes_minutes(test: &str) -> bool {
    [LONG, SOAK].iter().any(|module| test.contains(module))
}

/// The test binaries, the command prefix that runs them as root, and their environment variables.
pub(crate) struct Lanes<'a> {
    pub(crate) binaries: Binaries,
    as_root: &'a AsRoot,
    variables: Vec<(&'static str, PathBuf)>,
}

impl<'a> Lanes<'a> {
    /// Builds the tests, and installs the programs that the tests call. If `with_kubernetes` is true, also installs the programs
    /// that only long tests call.
    pub(crate) fn prepare(
        as_root: &'a AsRoot,
        is_long: bool,
        with_kubernetes: bool,
    ) -> Result<Self, Failure> {
        let variables = readers::for_tests(with_kubernetes)?;
        Ok(Self { binaries: lab::build(is_long, None)?, as_root, variables })
    }

    /// Runs the tests that libtest selects for these arguments, for example for parts of test names. Returns an error unless each
    /// of these tests passed. A test that failed while it was disturbed gets a second try.
    pub(crate) fn run(&self, words: &[String]) -> Result<(), Failure> {
        let tests = self.tests(words)?;
        if tests.is_empty() {
            return Err(Failure::Step(format!("no test has `{}` in its name", words.join(" "))));
        }
        let is_shown = words.iter().any(|word| word == SHOW || word == NO_CAPTURE);
        let (is_quiet, _) = disturbance::becomes_quiet(Duration::ZERO);
        let mut tries = schedule::run(&tests, |test, cpu| self.once(test, cpu, is_shown))?;
        tries.sort_by(|a, b| a.test.name.cmp(&b.test.name));
        eprint!("{}", History::with_run(&tries, is_quiet).text());
        decide(&tries, |test| {
            eprintln!("test: second try of {}", test.name);
            let cpu = if test.lease == Lease::One { schedule::cpus().last().copied() } else { None };
            Ok(self.once(test, cpu, is_shown)?.has_passed)
        })
    }

    fn tests(&self, words: &[String]) -> Result<Vec<Test>, Failure> {
        let mut list = Command::new(&self.binaries.tests);
        list.args(["--list", "--format=json", "-Zunstable-options"]).args(words);
        // A stable libtest supports this format only with RUSTC_BOOTSTRAP.
        let found = steps::output(list.env("RUSTC_BOOTSTRAP", "1"))?;
        let is_wanted = |test: &Test| {
            let is_named = |module: &&str| words.iter().any(|word| word.contains(module));
            SKIPPED.iter().filter(|module| test.name.contains(**module)).all(is_named)
        };
        Ok(listed(&found).filter(is_wanted).collect())
    }

    fn command(&self, test: &Test, cpu: Option<u32>) -> Command {
        let mut command = self.as_root.command("env");
        // A background job may have been started with ignored signals, and a shell cannot trap a signal that was ignored when the
        // shell started.
        command.arg("--default-signal").current_dir(steps::workspace().join("crates/lab"));
        command.args(self.variables.iter().map(|(name, value)| format!("{name}={}", value.display())));
        command.arg(format!("CGSCOPE_BIN={}", self.binaries.cgscope.display()));
        command.arg(format!("CGSCOPE_TEST_CPU={}", test.lease.variable(cpu)));
        if let Some(cpu) = cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        let limit = if takes_minutes(&test.name) { LONG_LIMIT } else { LIMIT };
        // cargo may have replaced the file of xtask since this process started.
        command.arg(format!("/proc/{}/exe", std::process::id())).args(["supervise", "timeout", "--verbose"]);
        command.args(["--foreground", "--signal=KILL", limit]).arg(&self.binaries.tests);
        command.args(["--include-ignored", "--test-threads=1", NO_CAPTURE, "--color=never"]);
        command.args(["--exact", &test.name]).stdin(Stdio::null());
        command
    }

    fn once(&self, test: &Test, cpu: Option<u32>, is_shown: bool) -> Result<Try, Failure> {
        let name = &test.name;
        let logs = steps::target_dir().join("root-tests");
        let log = logs.join(format!("{}.log", name.replace("::", ".")));
        let cannot_write = |why: io::Error| steps::cannot("write", &log, &why);
        let file = fs::create_dir_all(&logs).and_then(|()| fs::File::create(&log)).map_err(cannot_write)?;
        let mut command = self.command(test, cpu);
        command.stdout(file.try_clone().map_err(cannot_write)?).stderr(file);
        let before = Reading::take();
        let (status, own_s) = timed(&mut command)?;
        let after = Reading::take();
        let mut disturbance = Disturbance::between(&before, &after, cpu, own_s);
        // Tests that run at the same time are in each other's queue, so the queue is checked only for a test that runs alone.
        if test.lease == Lease::All {
            disturbance.queue = before.queue();
        }
        let seconds = (after.at - before.at).as_secs_f64();
        let said = fs::read(&log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let has_passed = status.success() && said.contains("test result: ok. 1 passed;");
        let outcome = if has_passed { "ok" } else { "FAILED" };
        let mut line = format!("test {name} ... {outcome} <{seconds:.1}s, {own_s:.1}s of CPU>");
        if let Some(why) = disturbance.blame() {
            line += &format!(" ({why})");
        }
        if is_shown || !has_passed {
            line += &format!("\n{}", said.trim());
        }
        let _ = writeln!(io::stdout().lock(), "{line}");
        Ok(Try { test: test.clone(), has_passed, disturbance })
    }
}

/// Parses the list that libtest prints in JSON, with one object in each line.
fn listed(text: &str) -> impl Iterator<Item = Test> {
    text.lines().filter_map(|line| {
        let object: serde_json::Value = serde_json::from_str(line).ok()?;
        let mark = (object["ignore"] == true).then(|| object["ignore_message"].as_str().unwrap_or_default());
        let name = object["name"].as_str().filter(|_| object["type"] == "test")?.to_owned();
        // Tests that take minutes measure something, so no other test may run at the same time.
        let lease = if takes_minutes(&name) { Lease::All } else { Lease::of(mark) };
        Some(Test { name, lease })
    })
}

/// Numbers of pauses while this process waits for processes that a test has left behind: before it kills them, and before it
/// gives up.
const GRACE: u32 = 50;
const PATIENCE: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a program, and exits with its status. Becomes the parent of all processes that the test leaves behind. So their CPU time
/// counts for the test, and they end with it. Users do not call this.
pub(crate) fn supervise(words: &[String]) -> Result<(), Failure> {
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

    use super::{Lease, Test, listed, timed};

    #[test]
    fn the_list_of_libtest_has_names_and_marks() {
        let text = r#"{ "type": "suite", "event": "discovery" }
{ "type": "test", "event": "discovered", "name": "a::b", "ignore": false, "ignore_message": "", "no_run": false }
{ "type": "test", "event": "discovered", "name": "a::c", "ignore": true, "ignore_message": "one CPU: \"shares\"" }
{ "type": "suite", "event": "completed", "tests": 2 }"#;
        let test = |name: &str, lease| Test { name: name.to_owned(), lease };
        assert_eq!(listed(text).collect::<Vec<_>>(), [test("a::b", Lease::Shared), test("a::c", Lease::One)]);
    }

    #[test]
    fn the_cpu_time_of_a_child_includes_that_of_its_reaped_children() {
        let busy = "sh -c 'n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done'; exit 3";
        let (status, seconds) = timed(Command::new("sh").args(["-c", busy])).expect("a shell");
        assert_eq!(status.code(), Some(3));
        assert!(seconds > 0.01, "{seconds}");
    }
}
