//! Runs the tests that need root, in two lanes: four at a time, then one by one the tests marked `#[ignore = "alone: ..."]`.
//! Failed tests run once more, alone. The end of the output lists these, undecided tests and the slowest tests.
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::failure::Failure;
use crate::lab::Binaries;
use crate::quiet;
use crate::root::AsRoot;
use crate::steps;

/// Tests in modules with this name take minutes, so neither lane runs them.
pub(crate) const LONG: &str = "long::";
/// Tests in this module need the kernel that the lab builds.
pub(crate) const BUILT_KERNEL: &str = "built_kernel::";
/// Tests in this module need systemd as the first process.
pub(crate) const SYSTEMD_HOST: &str = "systemd_host::";
/// What neither lane runs.
const SKIPPED: [&str; 6] = ["--skip", LONG, "--skip", BUILT_KERNEL, "--skip", SYSTEMD_HOST];
/// These tests wait most of the time, so four can run at once.
const SOME_AT_A_TIME: &str = "--test-threads=4";
const ONE_BY_ONE: &str = "--test-threads=1";
/// Maximum time without output. Every test in the lanes takes less.
const SILENCE: Duration = Duration::from_secs(300);
/// Maximum time to wait for a quiet machine before failed tests that need one run again.
const PATIENCE: Duration = Duration::from_secs(60);
const SLOWEST: usize = 10;

/// The test binaries, how to run them as root, and environment variables for the tests.
pub(crate) struct Lanes<'a> {
    pub(crate) binaries: Binaries,
    pub(crate) as_root: &'a AsRoot,
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

/// For each test name: whether the test passed, and its duration in seconds.
type Results = BTreeMap<String, (bool, f64)>;

impl Lanes<'_> {
    /// Runs both lanes.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let company = self.results(&[&[SOME_AT_A_TIME], &SKIPPED[..]].concat())?;
        let alone = self.results(&[&[ONE_BY_ONE, "--ignored"], &SKIPPED[..]].concat())?;
        let (mut failed, mut undecided) = (failed(&company), self::failed(&alone));
        if quiet::comes_within(PATIENCE) {
            failed.append(&mut undecided);
        }
        let again = if failed.is_empty() { Results::new() } else { self.again(&failed)? };
        eprint!("{}", slowest(&company, &alone));
        say("failed at first, and passed when repeated", &passed(&again));
        say("NOT DECIDED: failed, but need a quiet machine, and this machine was busy", &undecided);
        let failed = self::failed(&again);
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::Step(format!("failed twice: {}", failed.join(" "))))
    }

    /// Runs one by one the tests that libtest selects with these arguments, such as a part of a name.
    pub(crate) fn run_only(&self, words: &[String]) -> Result<(), Failure> {
        let mut all = vec![ONE_BY_ONE, "--include-ignored"];
        for kind in [LONG, BUILT_KERNEL, SYSTEMD_HOST] {
            if !words.iter().any(|word| word.contains(kind)) {
                all.extend(["--skip", kind]);
            }
        }
        all.extend(words.iter().map(String::as_str));
        let status = steps::status(self.command().args(all))?;
        if status.success() { Ok(()) } else { Err(Failure::Step(status.to_string())) }
    }

    fn again(&self, failed: &[String]) -> Result<Results, Failure> {
        let names = failed.iter().map(String::as_str);
        let mut again = self.results(
            &[&[ONE_BY_ONE, "--include-ignored", "--exact"][..], &names.collect::<Vec<_>>()].concat(),
        )?;
        // A test that did not end also counts as failed.
        for name in failed {
            again.entry(name.clone()).or_insert((false, 0.0));
        }
        Ok(again)
    }

    fn command(&self) -> std::process::Command {
        let mut command = self.as_root.command("env");
        // A background job may ignore signals, and a shell cannot trap a signal that was ignored when the shell started.
        command.arg("--default-signal");
        command.current_dir(steps::workspace().join("crates/lab"));
        for (name, value) in &self.variables {
            command.arg(format!("{name}={}", value.display()));
        }
        command.arg(format!("CGSCOPE_BIN={}", self.binaries.cgscope.display()));
        // A stable libtest reports times only with RUSTC_BOOTSTRAP.
        command.arg("RUSTC_BOOTSTRAP=1").arg(&self.binaries.tests).args([
            "-Z",
            "unstable-options",
            "--report-time",
        ]);
        command
    }

    fn results(&self, words: &[&str]) -> Result<Results, Failure> {
        let mut command = self.command();
        command.args(words).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|why| steps::did_not_start(&command, &why))?;
        let said = follow(&mut child)?;
        let status = child
            .wait()
            .map_err(|why| Failure::Step(format!("cannot wait for the end of the tests: {why}")))?;
        let results = parse(&said);
        if !said.contains("\ntest result: ") || (status.success() != failed(&results).is_empty()) {
            return Err(Failure::Step(format!("the test binary ended before its last test ({status})")));
        }
        Ok(results)
    }
}

/// Shows and returns the output of a child. Kills the child after [`SILENCE`] without output.
fn follow(child: &mut Child) -> Result<String, Failure> {
    let pieces = steps::pieces(child);
    let mut said = Vec::new();
    loop {
        match pieces.recv_timeout(SILENCE) {
            Ok(piece) => {
                let _ = io::stdout().write_all(&piece).and_then(|()| io::stdout().flush());
                said.extend(piece);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                let last = String::from_utf8_lossy(&said);
                return Err(Failure::Step(format!(
                    "no output for {} s, so the tests were killed; the last line: {}",
                    SILENCE.as_secs(),
                    last.lines().last().unwrap_or_default()
                )));
            }
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Parses the outcomes in the output of libtest. Output of a test's children may precede the outcome.
fn parse(said: &str) -> Results {
    let mut results = Results::new();
    let mut running = None;
    for line in said.lines() {
        let mut rest = line;
        if let Some((name, then)) = line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
            (running, rest) = (Some(name.to_owned()), then);
        }
        let Some((outcome, seconds)) = rest.rsplit_once(" <") else { continue };
        let Some(seconds) = seconds.strip_suffix("s>").and_then(|seconds| seconds.parse().ok()) else {
            continue;
        };
        let has_passed = outcome.ends_with("ok");
        if (has_passed || outcome.ends_with("FAILED"))
            && let Some(name) = running.take()
        {
            results.insert(name, (has_passed, seconds));
        }
    }
    results
}

fn failed(results: &Results) -> Vec<String> {
    results.iter().filter(|(_, (has_passed, _))| !has_passed).map(|(name, _)| name.clone()).collect()
}

fn passed(results: &Results) -> Vec<String> {
    results.iter().filter(|(_, (has_passed, _))| *has_passed).map(|(name, _)| name.clone()).collect()
}

fn say(what: &str, names: &[String]) {
    if !names.is_empty() {
        eprintln!("test: {what}: {}", names.join(" "));
    }
}

fn slowest(company: &Results, alone: &Results) -> String {
    let mut all: Vec<_> = company.iter().chain(alone).map(|(name, (_, seconds))| (*seconds, name)).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let of = |results: &Results| (results.len(), results.values().map(|(_, seconds)| seconds).sum::<f64>());
    let ((some, some_s), (ones, ones_s)) = (of(company), of(alone));
    let heading = format!(
        "test: {some} tests in parallel (sum: {some_s:.0} s), {ones} tests one by one ({ones_s:.0} s); the slowest:\n"
    );
    all.iter()
        .take(SLOWEST)
        .fold(heading, |text, (seconds, name)| text + &format!("{seconds:>8.1} s {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::{Results, failed, parse, slowest};

    #[test]
    fn outcomes_and_times_are_parsed_after_output_of_children() {
        let said = "running 3 tests\ntest a::b ... ok <1.250s>\ntest a::c ... a child\nspeaks FAILED <0.500s>\n\
                    test a::d ... ignored, alone: shares\ntest result: FAILED. 1 passed; finished in 2.00s\n";
        let results = parse(said);
        let expected = [("a::b", (true, 1.25)), ("a::c", (false, 0.5))];
        assert_eq!(results, expected.map(|(name, result)| (name.to_owned(), result)).into());
        assert_eq!(failed(&results), ["a::c"]);
        let text = slowest(&results, &Results::new());
        assert!(text.ends_with("     1.2 s a::b\n     0.5 s a::c\n"), "{text}");
    }
}
