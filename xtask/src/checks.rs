//! Runs the tests of cgscope, the fastest first.
use std::{process::Command, thread, time::Instant};

use clap::ValueEnum;

use crate::lanes::{History, LONG, Lanes, SHOW, SOAK};
use crate::steps::{AsRoot, Failure, cargo, step, target_dir, workspace};
use crate::unchanged::{self, EVERYTHING};
use crate::{binary, dist, fuzz, lab, mutants, overhead, setup};

#[derive(clap::Args, Debug)]
pub(crate) struct TestRun {
    /// No tests as root
    #[arg(long, conflicts_with_all = ["root", "long"])]
    unit: bool,
    /// Only tests as root
    #[arg(long)]
    root: bool,
    /// Run everything, even if it has passed and its files have not changed since: tests of the packages and on other
    /// kernels; with `--long`, each part and each test
    #[arg(long)]
    all: bool,
    /// The tests that take minutes, which no other run includes
    #[arg(long)]
    long: bool,
    /// With `--long`: only these parts
    #[arg(value_name = "PART", requires = "long")]
    parts: Vec<Part>,
    /// Arguments for the test binaries; with `--long`: only tests as root with one of these words in their names
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<String>,
}

pub(crate) fn run(tests: &TestRun) -> Result<(), Failure> {
    let begun = Instant::now();
    if tests.long {
        return run_parts(tests);
    }
    // Becomes root at the start, because otherwise a failure would come only after minutes of tests.
    let otherwise = "run this as root, or leave those tests out: `cargo xtask test --unit`";
    let as_root = (!tests.unit).then(|| AsRoot::become_root("a part of the tests", otherwise)).transpose()?;
    let packages = [setup::TEST_TOOLS, setup::LAB_TOOLS, setup::FOR_DEPLOY];
    setup::ensure(if as_root.is_some() { &packages } else { &[] })?;
    if !tests.root {
        without_root(&tests.arguments, as_root.is_some())?;
    }
    if let Some(as_root) = as_root {
        with_root(&as_root, tests)?;
    }
    eprintln!("test: passed (seconds: {})", begun.elapsed().as_secs());
    Ok(())
}

fn without_root(arguments: &[String], is_root_next: bool) -> Result<(), Failure> {
    let ebpf = workspace().join("ebpf");
    step("test: format", &mut cargo(&["fmt", "--all", "--check"]))?;
    step("test: format of ebpf/", cargo(&["fmt", "--check"]).current_dir(&ebpf))?;
    // Without `--long`, nothing else builds the fuzz targets, and `--long` refuses an outdated lock file.
    step("test: lock file of fuzz/", cargo(&["fetch", "--locked"]).current_dir(fuzz::dir()))?;
    step("test: lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // `--all-targets` excludes the tests that `cargo test` does not run by default.
    let root = ["clippy", "--workspace", "--test", "root", "--", "-D", "warnings"];
    step("test: lints of the tests as root", &mut cargo(&root))?;

    // clippy checks `ebpf/` as code for this machine, not for BPF: it cannot read the `core` for BPF, which belongs to another
    // compiler. RUSTC_BOOTSTRAP enables the unstable features that aya-ebpf needs, because this compiler is stable.
    let mut clippy = cargo(&["clippy", "--target-dir"]);
    clippy.arg(target_dir().join("bpf-lints")).args(["--", "-D", "warnings"]);
    step("test: lints of ebpf/", clippy.current_dir(&ebpf).env("RUSTC_BOOTSTRAP", "1"))?;

    step("test: unit tests, compiled", &mut cargo(&["test", "--workspace", "--no-run"]))?;
    // These are built in parallel, because the tests and the linker use one CPU each. If a build fails, `with_root` repeats it
    // and reports the failure.
    let ahead = is_root_next.then(|| thread::spawn(|| lab::build(false, None)));
    let passed = step("test: unit tests", cargo(&["test", "--workspace", "--"]).args(arguments));
    // Criterion does not know the arguments of tests.
    let mut benches = cargo(&["test", "-p", "cgscope-benches", "--benches"]);
    let passed = passed.and_then(|()| step("test: each benchmark once", &mut benches));
    drop(ahead.map(thread::JoinHandle::join));
    passed
}

fn with_root(as_root: &AsRoot, tests: &TestRun) -> Result<(), Failure> {
    // The tests run the release binary, and expect it next to their own binary.
    dist::make(&binary::build()?)?;
    let lanes = Lanes::prepare(as_root, false, false)?;
    if !tests.arguments.is_empty() {
        eprintln!("test: tests as root");
        return lanes.run(&tests.arguments);
    }
    eprintln!("test: the cost of the hook");
    overhead::for_checks(as_root)?;
    eprintln!("test: tests as root");
    lanes.run(&["--skip", "packages::"].map(str::to_owned))?;
    unchanged::unless_passed("packages", unchanged::PACKAGES, tests.all, || {
        files_in_deploy()?;
        lanes.run(&["packages::".to_owned()])
    })?;
    unchanged::unless_passed("other kernels", unchanged::OTHER_KERNELS, tests.all, || {
        lab::run(&lab::Request::for_checks(false))
    })
}

/// Checks the plugin for kubectl. Also checks rules and configuration with Debian's promtool. Later versions accept the same
/// files.
fn files_in_deploy() -> Result<(), Failure> {
    let mut shellcheck = Command::new("shellcheck");
    shellcheck.args(["deploy/kubernetes/kubectl-cgscope", "xtask/tests/kubectl/fake.sh"]);
    step("test: the plugin for kubectl", shellcheck.current_dir(workspace()))?;
    for (name, words) in [
        ("test: rules for Prometheus", ["check", "rules", "cgscope.rules.yml"]),
        ("test: tests of these rules", ["test", "rules", "cgscope.test.yml"]),
        ("test: how Prometheus scrapes", ["check", "config", "scrape.yml"]),
    ] {
        let mut promtool = Command::new("promtool");
        step(name, promtool.current_dir(workspace().join("deploy/prometheus")).args(words))?;
    }
    Ok(())
}

/// A part of the tests that take minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Generated recordings, clients and daemons
    Fuzz,
    /// A million random schedules of the ledger and of the pressure
    Schedules,
    /// Changes of the arithmetic that a test must notice
    Mutants,
    /// Tests as root that take minutes
    Tests,
    /// Half an hour of churn, and system calls that fail
    Soak,
    /// Tests on other kernels
    Lab,
}

impl Part {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn needs_root(self) -> bool {
        matches!(self, Self::Tests | Self::Soak)
    }

    /// Returns the lists of Debian packages that the part needs in addition to the build tools.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Fuzz => &[setup::FOR_FUZZ],
            Self::Schedules | Self::Mutants => &[],
            Self::Tests => &[setup::TEST_TOOLS, setup::LAB_TOOLS, setup::FOR_DEPLOY],
            Self::Soak | Self::Lab => &[setup::TEST_TOOLS, setup::LAB_TOOLS],
        }
    }

    fn run(self, tests: &TestRun) -> Result<(), Failure> {
        let run = || match self {
            Self::Fuzz => fuzz::run(&fuzz::Request::default()),
            Self::Schedules => {
                let mut schedules = cargo(&["test", "--release", "-p", "cgscope-ledger", "--lib", "ledger"]);
                step("test: random schedules", schedules.env("CGSCOPE_SCHEDULES", "1000000"))
            }
            Self::Mutants => mutants::run(),
            Self::Tests | Self::Soak => each_test(self, tests),
            Self::Lab => lab::run(&lab::Request::for_checks(true)),
        };
        // Results of tests as root are recorded one by one.
        if self.needs_root() {
            run()
        } else {
            unchanged::unless_passed(&self.name(), EVERYTHING, tests.all, run)
        }
    }
}

/// Runs the chosen parts, or all. A part that has already passed with the same files does not run again.
fn run_parts(tests: &TestRun) -> Result<(), Failure> {
    let parts = if tests.parts.is_empty() { Part::value_variants() } else { &tests.parts[..] };
    // Becomes root and installs everything at the start, because otherwise a failure would come only after minutes of tests.
    if parts.iter().any(|part| part.needs_root()) {
        become_root()?;
    }
    setup::ensure(&parts.iter().flat_map(|part| part.packages()).copied().collect::<Vec<_>>())?;
    let (mut summary, mut failed) = (String::new(), Vec::new());
    for part in parts {
        let (name, since) = (part.name(), Instant::now());
        let result = part.run(tests);
        let how = result.as_ref().map_or_else(ToString::to_string, |_| "passed".to_owned());
        summary += &format!("test: {name}: {how} (seconds: {})\n", since.elapsed().as_secs());
        failed.extend(result.err().map(|failure| (name, failure)));
    }
    eprint!("{summary}");
    failures("test: these parts failed; see their messages above", &failed)
}

fn become_root() -> Result<AsRoot, Failure> {
    let otherwise = "run this as root, or choose other parts: `cargo xtask test --long fuzz schedules lab`";
    AsRoot::become_root("a part of the tests", otherwise)
}

/// Returns an error that names the failed parts or tests. The error is undecided if all of these failures are undecided.
fn failures(what: &str, failed: &[(impl AsRef<str>, Failure)]) -> Result<(), Failure> {
    let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_ref()).collect();
    let words = format!("{what}: {}", names.join(" "));
    match failed {
        [] => Ok(()),
        failed if failed.iter().all(|(_, failure)| matches!(failure, Failure::Undecided(_))) => {
            Err(Failure::Undecided(words))
        }
        _ => Err(Failure::Step(words)),
    }
}

/// Runs each test of a part separately, so that each test's result is recorded.
fn each_test(part: Part, tests: &TestRun) -> Result<(), Failure> {
    // The tests expect the packages next to the binary.
    dist::make(&binary::build()?)?;
    let as_root = become_root()?;
    let lanes = Lanes::prepare(&as_root, true, part == Part::Tests)?;
    let (module, filters) = (if part == Part::Tests { LONG } else { SOAK }, &tests.arguments);
    let is_chosen =
        |name: &String| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let mut chosen = lab::names_of_tests(&lanes.binaries)?;
    chosen.retain(|name| name.contains(module) && is_chosen(name));
    if chosen.is_empty() {
        let filters = filters.join("` or `");
        return Err(Failure::Host(format!("no test that takes minutes has `{filters}` in its name")));
    }
    let mut failed = Vec::new();
    for name in &chosen {
        let words = [name.as_str(), "--exact", SHOW].map(str::to_owned);
        let what = format!("{} {name}", part.name());
        let result = unchanged::unless_passed(&what, EVERYTHING, tests.all, || lanes.run(&words));
        failed.extend(result.err().map(|failure| (name.as_str(), failure)));
    }
    let judged = History::with_run(&[], true).check();
    failed.extend(judged.err().map(|failure| ("(second tries)", failure)));
    failures(&format!("{} of {} failed", failed.len(), chosen.len()), &failed)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Arguments, Task};

    fn parse(line: &str) -> Option<TestRun> {
        let words = ["xtask", "test"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).ok()?.task {
            Task::Test(tests) => Some(tests),
            _ => None,
        }
    }

    #[test]
    fn one_part_can_be_chosen_and_arguments_passed_to_the_binaries() {
        let root = parse("--root -- throttled --nocapture").expect("valid arguments");
        assert!(root.root && !root.unit && !root.long && !root.all);
        assert_eq!(root.arguments, ["throttled", "--nocapture"]);
        let long = parse("--long tests lab --all -- whatif").expect("valid arguments");
        assert!(long.long && long.all);
        assert_eq!((long.parts, long.arguments), (vec![Part::Tests, Part::Lab], vec!["whatif".to_owned()]));
    }

    #[test]
    fn unknown_arguments_and_options_that_leave_no_test_are_rejected() {
        assert!(parse("").is_some() && parse("--unit").is_some());
        for line in ["throttled", "--unit --root", "--unit --long", "--long labs", "lab"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn failures_are_undecided_only_if_none_is_decided() {
        let (failed, undecided) = (|| Failure::Step("a".to_owned()), || Failure::Undecided("b".to_owned()));
        let code =
            |failed: &[(&str, Failure)]| failures("these", failed).map_err(|failure| failure.exit_code());
        assert_eq!(code(&[]), Ok(()));
        assert_eq!(code(&[("x", undecided()), ("y", undecided())]), Err(3));
        assert_eq!(code(&[("x", undecided()), ("y", failed())]), Err(1));
    }

    #[test]
    fn every_part_is_in_the_documents() {
        let document = include_str!("../../docs/testing.md");
        for part in Part::value_variants() {
            assert!(document.contains(&format!("| `{}` | ", part.name())), "{part:?}");
        }
    }
}
