//! Runs the tests that need root on other kernels, each in a virtual machine.
mod archive;
mod built;
mod image;
mod kernels;
mod plan;
mod request;
mod results;
mod vm;
pub(crate) use image::Binaries;
pub(crate) use request::Request;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use archive::Apt;
use kernels::{Kernel, Series};
use results::{KernelReport, Outcome};
use vm::Qemu;

use crate::lanes::{Disturbance, in_parallel};
use crate::steps::{self, Failure};
use crate::{binary, dist, setup};

/// Maximum number of machines that run at the same time. Each machine has four CPUs, and its tests mostly wait.
const MACHINES: usize = 2;

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    run_and_report(request, &|_, _, _| Ok(()))
}

/// A function that is called with the result of a kernel when the last test on that kernel has ended.
type OnEnd<'a> = dyn Fn(Series, Duration, Result<(), Failure>) -> Result<(), Failure> + Sync + 'a;

/// Runs the tests, and calls `on_end` after each kernel.
pub(crate) fn run_and_report(request: &Request, on_end: &OnEnd<'_>) -> Result<(), Failure> {
    if request.list {
        return list(request);
    }
    setup::ensure(&setup::for_lab())?;
    let apt = archive()?;
    let qemu = Qemu::find(&apt, request.cpus)?;
    let kernels = kernels::fetch(&apt, request)?;
    let mut binaries = build(false)?;
    if kernels.iter().any(|kernel| kernel.root.is_some()) {
        binaries.package = Some(dist::make(&binaries.cgscope)?);
    }
    if request.shell {
        return kernels.iter().try_for_each(|kernel| {
            vm::shell(&qemu, kernel, &image::initrd(&binaries, kernel, JOB_SHELL.as_bytes())?)
        });
    }
    if let Some(script) = &request.script {
        return run_script(script, &qemu, &kernels, &binaries);
    }
    let tests = names_of_tests(&binaries)?;
    if let Some(filter) = request.without_a_test(&tests) {
        return Err(Failure::Usage(format!("no test has `{filter}` in its name; check the filter")));
    }
    let reports = run_all(request, &qemu, &kernels, &binaries, &tests, on_end)?;
    print(&reports);
    let failed = reports.iter().filter(|report| !report.has_passed());
    let failed: Vec<String> = failed.map(|report| report.series.to_string()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Step(format!("lab: failed on {}; see the failures above", failed.join(", "))))
}

/// Returns the archive from which Debian packages are unpacked, not installed.
pub(crate) fn archive() -> Result<Apt, Failure> {
    Ok(Apt::new(kernels::cache()?.join("apt")))
}

fn list(request: &Request) -> Result<(), Failure> {
    for series in &request.kernels {
        let place = kernels::image(*series)?;
        let state = if place.is_file() { "here" } else { "not downloaded" };
        println!("{series:<6} {state:<14} {}", place.display());
    }
    Ok(())
}

/// Builds the release binary and its tests.
///
/// `--workspace` is used because it reuses the output of the unit tests. A single package would enable other features of its
/// dependencies. The tests that take minutes measure code that is linked into them, so the tests are optimised too.
pub(crate) fn build(is_long: bool) -> Result<Binaries, Failure> {
    let cgscope = binary::build()?;
    let mut cargo = steps::cargo(&["test", "--workspace", "--test", "root", "--no-run"]);
    if is_long {
        cargo.arg("--release");
    }
    let built = binary::executables(cargo.arg("--message-format=json-render-diagnostics"))?;
    let (tests, workload) = (binary::named(&built, "root")?, binary::named(&built, "workload")?);
    Ok(Binaries { cgscope, tests, workload, package: None })
}

pub(crate) fn names_of_tests(binaries: &Binaries) -> Result<Vec<String>, Failure> {
    let listed = steps::output(Command::new(&binaries.tests).args(["--list", "--format", "terse"]))?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs a script on one kernel after the other. Prints its output immediately.
fn run_script(file: &str, qemu: &Qemu, kernels: &[Kernel], binaries: &Binaries) -> Result<(), Failure> {
    let script = std::fs::read(file)
        .map_err(|why| Failure::Usage(format!("cannot read the script `{file}`: {why}")))?;
    for kernel in kernels {
        let initrd = image::initrd(binaries, kernel, &script)?;
        if let Some(why) = vm::run(qemu, kernel, &initrd, |_, piece| print!("{piece}"))? {
            return Err(Failure::Step(format!("lab: the machine of {} was stopped: {why}", kernel.series)));
        }
    }
    Ok(())
}

/// Runs the tests on each kernel, on up to [`MACHINES`] machines at a time.
fn run_all(
    request: &Request,
    qemu: &Qemu,
    kernels: &[Kernel],
    binaries: &Binaries,
    tests: &[String],
    on_end: &OnEnd<'_>,
) -> Result<Vec<KernelReport>, Failure> {
    let of_debian = |series: &Series| series.name().is_none() && plan::is_supported(*series);
    let supported = || kernels.iter().map(|kernel| kernel.series).filter(of_debian);
    let ends = [supported().min(), supported().max()];
    let reports = Mutex::new(BTreeMap::new());
    in_parallel(kernels, vec![(); MACHINES], |kernel, ()| {
        let whole = request.all || ends.contains(&Some(kernel.series));
        let wanted = tests.iter().filter(|test| request.has(test));
        let planned = wanted.map(|test| (test.clone(), plan::outcome(test, kernel.series, whole)));
        let report = run_one(qemu, kernel, binaries, planned.collect())?;
        let result = if report.has_passed() { Ok(()) } else { Err(Failure::Step(report.ending())) };
        on_end(report.series, Duration::from_secs(report.seconds), result)?;
        if let Ok(mut reports) = reports.lock() {
            reports.insert(report.series, report);
        }
        Ok(())
    })?;
    Ok(reports.into_inner().unwrap_or_default().into_values().collect())
}

fn run_one(
    qemu: &Qemu,
    kernel: &Kernel,
    binaries: &Binaries,
    mut outcomes: BTreeMap<String, Outcome>,
) -> Result<KernelReport, Failure> {
    let initrd = image::initrd(binaries, kernel, job(&outcomes).as_bytes())?;
    let since = Instant::now();
    let (mut log, mut reported) = (String::new(), BTreeMap::<String, Outcome>::new());
    let mut last = (since, 0.0);
    let mut blames = BTreeMap::new();
    let stopped = vm::run(qemu, kernel, &initrd, |machine, piece| {
        log += piece;
        let now = (Instant::now(), vm::waited_s(machine));
        // The first test begins after the machine has booted.
        if reported.is_empty() && piece.contains("running ") {
            last = now;
        }
        let seconds = (now.0 - last.0).as_secs_f64();
        let steal = (now.1 - last.1) / seconds.max(f64::EPSILON);
        let disturbance = Disturbance { cpus: qemu.cpus.online as usize, steal, ..Disturbance::default() };
        let outcomes = results::outcomes(&log);
        for (name, outcome) in outcomes.iter().filter(|(name, outcome)| reported.get(*name) != Some(*outcome))
        {
            let how = match outcome {
                Outcome::Passed => "ok",
                Outcome::PassedAgain => "ok when repeated",
                _ => "FAILED",
            };
            eprintln!("lab: {} {how} {name} ({seconds:.1} s)", kernel.series);
            if *outcome == Outcome::Failed {
                blames.entry(name.clone()).or_insert_with(|| disturbance.blame());
            }
            last = now;
        }
        reported = outcomes;
    })?;
    outcomes.extend(results::outcomes(&log));
    results::refuse_repeats(&mut outcomes, &blames);
    let report = KernelReport {
        series: kernel.series,
        release: results::reported(&log, "kernel").unwrap_or_default().to_owned(),
        outcomes,
        blames,
        seconds: since.elapsed().as_secs(),
        doctor: results::reported(&log, "doctor").and_then(|code| code.parse().ok()),
        tests: results::reported(&log, "tests").and_then(|code| code.parse().ok()),
        stopped,
        log,
    };
    let _ = std::fs::write(vm::place(kernel).join("tests.log"), &report.log);
    eprintln!("lab: {}: {} (seconds: {})", report.series, report.ending(), report.seconds);
    Ok(report)
}

fn job(planned: &BTreeMap<String, Outcome>) -> String {
    let runs = planned.iter().filter(|(_, outcome)| **outcome == Outcome::Unfinished);
    let names: Vec<&str> = runs.map(|(test, _)| test.as_str()).collect();
    let mut job = "cgscope doctor\necho \"lab: doctor $?\"\n".to_owned();
    if !names.is_empty() {
        job += &format!("names='{}'\n{JOB_TESTS}", names.join(" "));
    }
    job
}

/// The part of the script that runs the tests. Each failed test runs a second time. This second try counts only if the CPUs of
/// the machine waited for CPUs of the host during the first try, see `refuse_repeats`.
const JOB_TESTS: &str = "\
run() { { /lab/root --color=never --include-ignored --test-threads=1 --exact $1 2>&1; echo $? > /tmp/code; } | tee /tmp/said; }
run \"$names\"
failed=$(sed -n '/^failures:$/,$s/^    \\([a-z_0-9]*::[a-z_0-9:]*\\)$/\\1/p' /tmp/said | sort -u | tr '\\n' ' ')
if [ -n \"$failed\" ]; then
    echo 'lab: again'
    run \"$failed\"
fi
echo \"lab: tests $(cat /tmp/code)\"
";

const JOB_SHELL: &str = "\
exec > /dev/ttyS0 2>&1 < /dev/ttyS0
stty -F /dev/ttyS0 sane
echo 'cgscope is on PATH, its tests are /lab/root; Ctrl-D or Ctrl-A X ends the machine.'
setsid -c sh -i
";

fn print(reports: &[KernelReport]) {
    for report in reports.iter().filter(|report| !report.has_passed()) {
        let said = report.said_of_failures();
        if !said.is_empty() {
            println!("--- {} ---\n{said}\n", report.series);
        }
        if let Some(why) = &report.stopped {
            println!("--- {}: the machine was stopped: {why}\n", report.series);
        }
    }
    println!("{}\n{}", results::table(reports), results::notes(reports));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Outcome, job};

    #[test]
    fn the_job_contains_only_tests_that_should_run() {
        let planned = [("truth::a", Outcome::Unfinished), ("cost::b", Outcome::Elsewhere("times"))]
            .map(|(test, outcome)| (test.to_owned(), outcome));
        let job = job(&planned.into());
        assert!(job.contains("names='truth::a'\n"), "{job}");
        assert!(!self::job(&BTreeMap::new()).contains("/lab/root"));
    }
}
