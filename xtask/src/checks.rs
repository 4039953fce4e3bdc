//! Runs the tests of cgscope, the fastest first.
use std::{process::Command, thread, time::Instant};

use crate::steps::{AsRoot, Failure, cargo, step, target_dir, workspace};
use crate::{binary, dist, fuzz, lab, lanes::Lanes, long, overhead, setup, unchanged};

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
    pub(crate) all: bool,
    /// The tests that take minutes, which no other run includes
    #[arg(long)]
    long: bool,
    /// With `--long`: only these parts
    #[arg(value_name = "PART", requires = "long")]
    pub(crate) parts: Vec<long::Part>,
    /// Arguments for the test binaries; with `--long`: only tests as root with one of these words in their names
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<String>,
}

pub(crate) fn run(tests: &TestRun) -> Result<(), Failure> {
    let begun = Instant::now();
    if tests.long {
        return long::run(tests);
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
    let ahead = is_root_next.then(|| thread::spawn(|| lab::build(false)));
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::{Arguments, Task, long::Part};

    fn parse(line: &str) -> Option<super::TestRun> {
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
}
