//! Runs the tests of cgscope, the fastest first.
use std::thread;
use std::time::Instant;

use crate::lanes::{History, Lanes};
use crate::steps::{self, AsRoot, Failure, Steps, cargo};
use crate::{binary, deploy, dist, fuzz, lab, long, overhead, setup, unchanged};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    without_root: bool,
    with_root: bool,
    /// Also run a part that has passed and whose files have not changed since.
    all: bool,
    /// Run only tests that take minutes.
    long: Option<long::Request>,
    /// Print only the results of earlier runs.
    only_history: bool,
    for_binaries: Vec<String>,
}

impl TestRun {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut words = arguments.iter();
        let (mut unit, mut root, mut all, mut again, mut only_history) = (false, false, false, false, false);
        let mut long: Option<long::Request> = None;
        for word in words.by_ref() {
            match word.as_str() {
                "--unit" => unit = true,
                "--root" => root = true,
                "--all" => all = true,
                "--long" => long = Some(long::Request::default()),
                "--again" => again = true,
                "--history" => only_history = true,
                "--" => break,
                other if long.is_some() && !other.starts_with('-') => {
                    long.iter_mut().try_for_each(|long| long.add(other))?;
                }
                other => return Err(Failure::Usage(format!("unknown argument `{other}` of `test`"))),
            }
        }
        if unit && (root || long.is_some()) {
            return Err(Failure::Usage(
                "`--unit` excludes `--root` and `--long`; give only one of the three".into(),
            ));
        }
        let for_binaries: Vec<String> = words.cloned().collect();
        match &mut long {
            Some(long) => (long.again, long.filters) = (again, for_binaries.clone()),
            None if again => return Err(Failure::Usage("`--again` needs `--long`".into())),
            None => {}
        }
        let (without_root, with_root) = (!(root || long.is_some()), !unit);
        Ok(Self { without_root, with_root, all, long, only_history, for_binaries })
    }

    fn is_whole(&self) -> bool {
        self.without_root && self.with_root && self.for_binaries.is_empty()
    }
}

pub(crate) fn run(tests: &TestRun) -> Result<(), Failure> {
    let history = History::open();
    if tests.only_history {
        print!("{}", history.table());
        return Ok(());
    }
    let begun = Instant::now();
    let result = run_steps(tests, &history);
    if tests.is_whole() {
        history.add_whole(&result, begun.elapsed().as_secs_f64());
    }
    result
}

fn run_steps(tests: &TestRun, history: &History) -> Result<(), Failure> {
    let mut steps = Steps::new("test");
    if let Some(request) = &tests.long {
        return long::run(request, &mut steps, history);
    }
    // Becomes root at the start, because otherwise a failure would come only after minutes of tests.
    let otherwise = "run this as root, or leave those tests out: `cargo xtask test --unit`";
    let as_root =
        tests.with_root.then(|| AsRoot::become_root("a part of the tests", otherwise)).transpose()?;
    let mut extra = Vec::new();
    if tests.with_root {
        extra.extend([setup::for_lab(), setup::FOR_DEPLOY.to_vec()].concat());
    }
    setup::ensure(&extra)?;
    if tests.without_root {
        without_root(&mut steps, &tests.for_binaries, as_root.is_some())?;
    }
    if let Some(as_root) = as_root {
        with_root(&mut steps, &as_root, tests, history)?;
    }
    steps.summary();
    Ok(())
}

fn without_root(steps: &mut Steps, for_binaries: &[String], is_root_next: bool) -> Result<(), Failure> {
    let ebpf = steps::workspace().join("ebpf");
    steps.step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    steps.step("format of ebpf/", cargo(&["fmt", "--check"]).current_dir(&ebpf))?;
    // Without `--long`, nothing else builds the fuzz targets, and `--long` refuses an outdated lock file.
    steps.step("lock file of fuzz/", cargo(&["fetch", "--locked"]).current_dir(fuzz::dir()))?;
    steps.step("lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // `--all-targets` excludes the tests that `cargo test` does not run by default.
    let root = ["clippy", "--workspace", "--test", "root", "--", "-D", "warnings"];
    steps.step("lints of the tests as root", &mut cargo(&root))?;

    // clippy checks `ebpf/` as code for this machine, not for BPF. Only another compiler has a `core` for BPF, and clippy cannot
    // read it. RUSTC_BOOTSTRAP enables the unstable features that aya-ebpf needs, because this compiler is stable.
    let target = steps::target_dir();
    let mut clippy = cargo(&["clippy", "--target-dir"]);
    clippy.arg(target.join("bpf-lints")).args(["--", "-D", "warnings"]);
    steps.step("lints of ebpf/", clippy.current_dir(&ebpf).env("RUSTC_BOOTSTRAP", "1"))?;

    steps.step("unit tests, compiled", &mut cargo(&["test", "--workspace", "--no-run"]))?;
    // These are built in parallel, because the tests and the linker use one CPU each. If a build fails, `with_root` repeats it
    // and reports the failure.
    let ahead = is_root_next.then(|| thread::spawn(|| lab::build(false)));
    let passed = steps.step("unit tests", cargo(&["test", "--workspace", "--"]).args(for_binaries));
    drop(ahead.map(thread::JoinHandle::join));
    passed
}

fn with_root(steps: &mut Steps, as_root: &AsRoot, tests: &TestRun, history: &History) -> Result<(), Failure> {
    let has_all = tests.for_binaries.is_empty();
    let due = |part: &'static unchanged::Part| if has_all { part.due(tests.all) } else { None };
    let (packages, kernels) = (due(&unchanged::PACKAGES), due(&unchanged::OTHER_KERNELS));
    // The tests run the release binary, and expect it next to their own binary.
    steps.done(
        "the binary and its packages",
        binary::build().and_then(|binary| dist::make(&binary)).map(drop),
    )?;
    if packages.is_some() {
        deploy::for_checks(steps)?;
    }
    let lanes = Lanes::prepare(as_root, history, false, false)?;
    if !has_all {
        eprintln!("test: tests as root");
        return steps.done("tests as root", lanes.run(&tests.for_binaries));
    }
    eprintln!("test: the cost of the hook");
    steps.done("the cost of the hook", overhead::for_checks(as_root))?;
    eprintln!("test: tests as root");
    let skipped =
        if packages.is_some() { Vec::new() } else { ["--skip", "packages::"].map(str::to_owned).to_vec() };
    steps.done("tests as root", lanes.run(&skipped))?;
    packages.map_or(Ok(()), unchanged::Due::passed)?;
    let Some(kernels) = kernels else { return Ok(()) };
    eprintln!("test: other kernels");
    steps.done("other kernels", lab::run(&lab::Request::for_checks(false)))?;
    kernels.passed()
}

#[cfg(test)]
mod tests {
    use super::TestRun;

    fn parse(line: &str) -> Option<TestRun> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        TestRun::parse(&words).ok()
    }

    #[test]
    fn without_arguments_every_test_runs() {
        let all = parse("").expect("valid arguments");
        assert!(all.is_whole() && !all.all && all.long.is_none());
        assert!(parse("--history").expect("valid arguments").only_history);
        assert!(parse("--all").expect("valid arguments").all);
    }

    #[test]
    fn one_part_can_be_chosen_and_arguments_passed_to_the_binaries() {
        let unit = parse("--unit").expect("valid arguments");
        assert!(unit.without_root && !unit.with_root);
        let root = parse("--root -- throttled --nocapture").expect("valid arguments");
        assert!(!root.without_root && root.with_root && !root.is_whole());
        assert_eq!(root.for_binaries, ["throttled", "--nocapture"]);
        let long = parse("--long tests lab --again -- whatif").expect("valid arguments");
        let request = long.long.expect("tests that take minutes");
        assert_eq!((request.parts, request.again), (vec!["tests".to_owned(), "lab".to_owned()], true));
        assert_eq!(request.filters, ["whatif"]);
        assert!(!long.without_root);
    }

    #[test]
    fn unknown_arguments_and_options_that_leave_no_test_are_rejected() {
        assert_eq!(parse("throttled"), None);
        assert_eq!(parse("--unit --root"), None);
        assert_eq!(parse("--unit --long"), None);
        assert_eq!(parse("--long labs"), None);
        assert_eq!(parse("lab --long"), None);
        assert_eq!(parse("--again"), None);
    }
}
