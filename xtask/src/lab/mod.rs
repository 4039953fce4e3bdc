//! Runs the tests that need root on other kernels, each in a virtual machine.
mod arch;
mod archive;
mod image;
mod kernels;
mod results;
mod vm;
pub(crate) use arch::Arch;
pub(crate) use archive::Apt;
pub(crate) use image::Binaries;

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::PathBuf, time::Instant};

use kernels::{Kernel, Series};
use results::{KernelReport, Outcome};
use vm::{Cpus, Qemu};

use crate::lanes::{BUILT_KERNEL, Disturbance, SYSTEMD_HOST, in_parallel};
use crate::steps::{self, Failure};
use crate::{binary, dist, setup};

/// Maximum number of machines that run at the same time. Each machine has four CPUs, and its tests mostly wait.
const MACHINES: usize = 2;

/// A short selection of tests: sums, migrations, every cause, and readings that several viewers share.
const SHORT: [&str; 3] = ["truth::sums_are_equal_for_two_busy", "ledger::all_causes", "shared::"];

#[derive(clap::Args, Debug)]
pub(crate) struct Request {
    /// A series such as 6.12; arm64: the kernels for arm64; scx: a kernel with sched_ext, which is built first; systemd: a
    /// Debian host with systemd and container runtimes [default: 5.10, 6.1, 6.12, 6.16, 7.2]
    #[arg(value_name = "KERNEL", value_parser = Series::parse)]
    kernels: Vec<Series>,
    /// The architecture of the machines
    #[arg(long, value_enum, default_value_t)]
    arch: Arch,
    /// Every test on each kernel
    #[arg(long)]
    all: bool,
    /// Open a shell in the machine
    #[arg(long, requires = "kernels")]
    shell: bool,
    /// Run a shell script, not the tests
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Number of CPUs that are online, and of possible CPUs
    #[arg(long, value_name = "ONLINE[/POSSIBLE]", value_parser = Cpus::parse, default_value = "4")]
    cpus: Cpus,
    /// Only tests with one of these words in their names
    #[arg(last = true, value_name = "FILTER")]
    filters: Vec<String>,
}

impl Request {
    /// Returns a request for the oldest and the newest kernel. Its tests show the differences between these kernels. If
    /// `is_long`, adds the kernel that the lab builds and the machine with systemd. Otherwise keeps only those tests that
    /// together take a minute or two.
    pub(crate) fn for_checks(is_long: bool) -> Self {
        let mut kernels = vec![kernels::OLDEST, kernels::NEWEST];
        let mut filters = SHORT.to_vec();
        if is_long {
            kernels.extend([kernels::BUILT, kernels::SYSTEMD]);
            filters = vec!["truth::", "ledger::", "shared::", BUILT_KERNEL, SYSTEMD_HOST];
        }
        let filters = filters.into_iter().map(str::to_owned).collect();
        let cpus = Cpus { online: 4, possible: 4 };
        Self { kernels, arch: Arch::X86, all: false, shell: false, script: None, cpus, filters }
    }

    fn has(&self, test: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| test.contains(filter.as_str()))
    }
}

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    setup::ensure(&[setup::TEST_TOOLS, setup::LAB_TOOLS])?;
    if request.arch != Arch::X86
        && request.kernels.iter().any(|series| [kernels::BUILT, kernels::SYSTEMD].contains(series))
    {
        return Err(Failure::Host("lab: the machines scx and systemd exist only for x86_64".to_owned()));
    }
    let kernels = kernels::fetch(&request.kernels, request.arch)?;
    // All machines of a run have the same architecture, because the tests are built once.
    let arch = kernels.first().map_or(request.arch, |kernel| kernel.id.arch);
    if kernels.iter().any(|kernel| kernel.id.arch != arch) {
        return Err(Failure::Host("lab: run the kernels of arm64 and of x86_64 separately".to_owned()));
    }
    let qemu = Qemu::find(arch, request.cpus)?;
    let mut binaries = build(false, Some(arch))?;
    if kernels.iter().any(|kernel| kernel.root.is_some()) {
        binaries.package = Some(dist::make(&binaries.cgscope)?);
    }
    if request.shell {
        return kernels.iter().try_for_each(|kernel| {
            vm::shell(&qemu, kernel, &image::initrd(&binaries, kernel, include_bytes!("shell.sh"))?)
        });
    }
    if let Some(file) = &request.script {
        let script = fs::read(file).map_err(|why| steps::cannot("read", file, &why))?;
        return kernels.iter().try_for_each(|kernel| {
            let initrd = image::initrd(&binaries, kernel, &script)?;
            let stopped = vm::run(&qemu, kernel, &initrd, |_, piece| print!("{piece}"))?;
            let failed = |why| format!("lab: the machine of {} was stopped: {why}", kernel.id);
            stopped.map_or(Ok(()), |why| Err(Failure::Step(failed(why))))
        });
    }
    let tests = names_of_tests(&binaries)?;
    let is_unknown = |filter: &&String| !tests.iter().any(|test| test.contains(*filter));
    if let Some(filter) = request.filters.iter().find(is_unknown) {
        return Err(Failure::Host(format!("no test has `{filter}` in its name; check the filter")));
    }
    let of_debian = |series: &Series| series.name().is_none() && kernels::is_supported(*series);
    let supported = || kernels.iter().map(|kernel| kernel.id.series).filter(of_debian);
    let ends = [supported().min(), supported().max()];
    let mut reports = in_parallel(&kernels, vec![(); MACHINES], |kernel, ()| {
        let whole = request.all || ends.contains(&Some(kernel.id.series));
        let wanted =
            tests.iter().filter(|test| request.has(test) && kernels::runs(test, kernel.id.series, whole));
        run_one(&qemu, kernel, &binaries, &wanted.map(String::as_str).collect())
    })?;
    reports.sort_by_key(|report| report.kernel);
    print(&reports);
    let failed = reports.iter().filter(|report| !report.has_passed());
    let failed: Vec<String> = failed.map(|report| report.kernel.to_string()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Step(format!("lab: failed on {}; see the failures above", failed.join(", "))))
}

/// Builds the release binary and its tests.
///
/// `--workspace` is used because it reuses the output of the unit tests. A single package would enable other features of its
/// dependencies. The tests that take minutes measure code that is linked into them, so the tests are optimised too.
pub(crate) fn build(is_long: bool, arch: Option<Arch>) -> Result<Binaries, Failure> {
    let cgscope = binary::build_for(arch)?;
    let mut cargo = steps::cargo(&["test", "--workspace", "--test", "root", "--no-run"]);
    if is_long {
        cargo.arg("--release");
    }
    binary::for_target(&mut cargo, arch)?;
    let built = binary::executables(cargo.arg("--message-format=json-render-diagnostics"))?;
    let (tests, workload) = (binary::named(&built, "root")?, binary::named(&built, "workload")?);
    Ok(Binaries { arch, cgscope, tests, workload, package: None })
}

pub(crate) fn names_of_tests(binaries: &Binaries) -> Result<Vec<String>, Failure> {
    let mut list = image::runner(binaries.arch, &binaries.tests)?;
    let listed = steps::output(list.args(["--list", "--format", "terse"]))?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn run_one(
    qemu: &Qemu,
    kernel: &Kernel,
    binaries: &Binaries,
    tests: &BTreeSet<&str>,
) -> Result<KernelReport, Failure> {
    let initrd = image::initrd(binaries, kernel, job(tests).as_bytes())?;
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
            eprintln!("lab: {} {how} {name} ({seconds:.1} s)", kernel.id);
            if *outcome == Outcome::Failed {
                blames.entry(name.clone()).or_insert_with(|| disturbance.blame());
            }
            last = now;
        }
        reported = outcomes;
    })?;
    let mut outcomes: BTreeMap<String, Outcome> =
        tests.iter().map(|test| ((*test).to_owned(), Outcome::Unfinished)).collect();
    outcomes.extend(reported);
    let code = |what| results::reported(&log, what).and_then(|code| code.parse().ok());
    let mut report = KernelReport {
        kernel: kernel.id,
        release: results::reported(&log, "kernel").unwrap_or_default().to_owned(),
        outcomes,
        blames,
        seconds: since.elapsed().as_secs(),
        doctor: code("doctor"),
        tests: code("tests"),
        stopped,
        log,
    };
    report.refuse_repeats();
    eprintln!("lab: {}: {} (seconds: {})", report.kernel, report.ending(), report.seconds);
    Ok(report)
}

fn job(tests: &BTreeSet<&str>) -> String {
    let mut job = "cgscope doctor\necho \"lab: doctor $?\"\n".to_owned();
    if !tests.is_empty() {
        let names: Vec<&str> = tests.iter().copied().collect();
        job += &format!("names='{}'\n{}", names.join(" "), include_str!("tests.sh"));
    }
    job
}

/// Prints the output of failed tests, then the results.
fn print(reports: &[KernelReport]) {
    for report in reports.iter().filter(|report| !report.has_passed()) {
        // libtest prints the output of the failed tests between two lists of failures.
        let parts = report.log.split("\nfailures:\n").skip(1).step_by(2);
        let said = parts.map(str::trim).collect::<Vec<_>>().join("\n\n");
        if !said.is_empty() {
            println!("--- {} ---\n{said}\n", report.kernel);
        }
        if let Some(why) = &report.stopped {
            println!("--- {}: the machine was stopped: {why}\n", report.kernel);
        }
    }
    reports.iter().for_each(|report| print!("{report}"));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Request, Series};
    use crate::{Arguments, Task};

    fn parse(line: &str) -> Option<Request> {
        let words = ["xtask", "lab"].into_iter().chain(line.split_whitespace());
        match Arguments::try_parse_from(words).ok()?.task {
            Task::Lab(request) => Some(request),
            _ => None,
        }
    }

    #[test]
    fn without_arguments_all_tests_run() {
        let request = parse("").expect("valid arguments");
        assert!(request.kernels.is_empty() && request.has("truth::a") && !request.all);
        assert_eq!((request.cpus.online, request.cpus.possible), (4, 4));
    }

    #[test]
    fn kernels_tests_and_cpus_can_be_chosen() {
        let request = parse("7.2 6.1 --cpus 64 -- truth ledger::a").expect("valid arguments");
        assert_eq!(request.kernels, [Series(7, 2), Series(6, 1)]);
        assert!(request.has("truth::b") && request.has("ledger::a_b") && !request.has("ledger::c"));
        assert_eq!(request.cpus.online, 64);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for line in ["newest", "--shell", "7.2 --cpus", "7.2 --cpus 5000"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
