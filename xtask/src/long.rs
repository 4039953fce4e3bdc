//! Runs the tests that take minutes, in parts. What passed at the same commit does not run again.
mod results;

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::lanes::{self, History, LONG, Lanes, SOAK};
use crate::root::AsRoot;
use crate::steps::{Steps, cargo};
use crate::{binary, dist, fuzz, lab, mutants, readers, runtimes, setup};
use results::Results;

/// A part of these tests.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    what: &'static str,
    /// Debian packages that the part needs.
    packages: fn() -> Vec<&'static str>,
    run: fn(&mut Run<'_>) -> Result<(), Failure>,
}

/// The parts in the order in which they run.
pub(crate) static PARTS: [Part; 6] = [
    Part {
        name: "fuzz",
        what: "generated recordings, clients and daemons",
        packages: || vec![setup::FOR_FUZZ],
        run: |run| fuzz::for_checks(run.steps, &[]),
    },
    Part {
        name: "schedules",
        what: "a million random schedules of the ledger and of the pressure",
        packages: Vec::new,
        run: schedules,
    },
    Part {
        name: "mutants",
        what: "changes of the arithmetic that a test must notice",
        packages: Vec::new,
        run: |run| mutants::for_checks(run.steps),
    },
    Part {
        name: TESTS,
        what: "tests as root that take minutes",
        packages: || [setup::for_lab(), setup::FOR_DEPLOY.to_vec()].concat(),
        run: |run| tests(run, TESTS, LONG),
    },
    Part {
        name: SOAK_PART,
        what: "half an hour of churn, and system calls that fail",
        packages: setup::for_lab,
        run: |run| tests(run, SOAK_PART, SOAK),
    },
    Part { name: "lab", what: "tests on other kernels", packages: setup::for_lab, run: other_kernels },
];

/// The parts that need root.
const TESTS: &str = "tests";
const SOAK_PART: &str = "soak";

/// The arguments of `test --long`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Names of parts; all if empty.
    pub(crate) parts: Vec<String>,
    /// What passed at this commit runs again.
    pub(crate) again: bool,
    /// Parts of names: other tests as root do not run. All run if empty.
    pub(crate) filters: Vec<String>,
}

/// What the parts use.
struct Run<'a> {
    request: &'a Request,
    results: Results,
    /// The tries of tests as root.
    history: &'a History,
    steps: &'a mut Steps,
    as_root: Option<&'a AsRoot>,
    /// The time of what did not run again in the current part.
    saved: Duration,
}

impl Request {
    /// Adds a part by its name.
    pub(crate) fn add(&mut self, name: &str) -> Result<(), Failure> {
        let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        if !names.contains(&name) {
            return Err(Failure::Usage(format!(
                "`--long` has no part `{name}`; its parts are {}",
                names.join(", ")
            )));
        }
        self.parts.push(name.to_owned());
        Ok(())
    }

    fn has(&self, part: &Part) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part.name)
    }
}

/// Runs the parts. A part that fails does not keep the others from running.
pub(crate) fn run(request: &Request, steps: &mut Steps, history: &History) -> Result<(), Failure> {
    let parts: Vec<&Part> = PARTS.iter().filter(|part| request.has(part)).collect();
    // Become root and install everything first, so that a failure does not come after minutes of tests.
    let otherwise = "run this as root, or choose other parts: `cargo xtask test --long fuzz schedules lab`";
    let has_tests = parts.iter().any(|part| [TESTS, SOAK_PART].contains(&part.name));
    let as_root = has_tests.then(|| AsRoot::become_root("a part of the tests", otherwise)).transpose()?;
    setup::ensure(&parts.iter().flat_map(|part| (part.packages)()).collect::<Vec<_>>())?;
    let mut run = Run {
        request,
        results: Results::open()?,
        history,
        steps,
        as_root: as_root.as_ref(),
        saved: Duration::ZERO,
    };
    let mut failed = Vec::new();
    for part in parts {
        // Without some of its tests, a part is not complete.
        let is_complete = request.filters.is_empty() || ![TESTS, SOAK_PART].contains(&part.name);
        if is_complete && run.has_passed(part.name) {
            continue;
        }
        eprintln!("test: {}: {}", part.name, part.what);
        run.saved = Duration::ZERO;
        let since = Instant::now();
        let result = (part.run)(&mut run);
        if is_complete {
            run.results.note(part.name, since.elapsed() + run.saved, &result)?;
        }
        if let Err(failure) = result {
            eprintln!("test: {}: {failure}", part.name);
            failed.push((part.name, failure));
        }
    }
    eprint!("{}", run.results.table(&PARTS.each_ref().map(|part| part.name)));
    failures("test: these parts failed; see their messages above", &failed)
}

/// An error that names what failed. It is undecided if nothing is decided.
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

impl Run<'_> {
    /// Whether this does not run again. Prints why.
    fn has_passed(&mut self, what: &str) -> bool {
        let Some(entry) = (!self.request.again).then(|| self.results.passed(what)).flatten() else {
            return false;
        };
        let (date, seconds) = (&entry.date, entry.seconds);
        eprintln!("test: {what}: passed at this commit ({date}, {seconds} s), so it does not run again");
        self.saved += Duration::from_secs(seconds);
        true
    }
}

fn schedules(run: &mut Run<'_>) -> Result<(), Failure> {
    let mut schedules = cargo(&["test", "--release", "-p", "cgscope-layout", "--lib", "ledger"]);
    run.steps.step("random schedules", schedules.env("CGSCOPE_SCHEDULES", "1000000"))
}

/// Runs each test of these modules by itself, so that the result of each is recorded.
fn tests(run: &mut Run<'_>, part: &str, modules: &str) -> Result<(), Failure> {
    let Some(as_root) = run.as_root else { return Ok(()) };
    // The tests expect the packages beside the binary.
    dist::make(&binary::build()?)?;
    let mut variables = readers::for_tests(part == TESTS);
    variables.push(runtimes::for_tests()?);
    let lanes = Lanes { binaries: lab::build(true)?, as_root, variables, history: run.history };
    let names = lab::names_of_tests(&lanes.binaries)?;
    let filters = &run.request.filters;
    let is_chosen =
        |name: &String| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let chosen: Vec<String> =
        names.into_iter().filter(|name| name.contains(modules)).filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!(
            "no test that takes minutes has `{}` in its name",
            filters.join("` or `")
        )));
    }
    let mut failed = Vec::new();
    for name in &chosen {
        let what = format!("{part} {name}");
        if run.has_passed(&what) {
            continue;
        }
        let since = Instant::now();
        let result = lanes.run(&[name, "--exact", lanes::SHOW].map(str::to_owned));
        run.results.note(&what, since.elapsed(), &result)?;
        failed.extend(result.err().map(|failure| (name.as_str(), failure)));
    }
    failed.extend(run.history.check().err().map(|failure| ("(second tries)", failure)));
    failures(&format!("{} of {} failed", failed.len(), chosen.len()), &failed)
}

fn other_kernels(run: &mut Run<'_>) -> Result<(), Failure> {
    let mut request = lab::Request::for_checks(true);
    request.keep_kernels(|kernel| !run.has_passed(&format!("lab {kernel}")));
    let results = &run.results;
    lab::run_and_report(&request, &|kernel, took, result| {
        results.note(&format!("lab {kernel}"), took, &result)
    })
}

#[cfg(test)]
mod tests {
    use super::{PARTS, Request, failures};
    use crate::failure::Failure;

    #[test]
    fn without_names_every_part_runs() {
        let mut request = Request::default();
        assert!(PARTS.iter().all(|part| request.has(part)));
        request.add("lab").expect("a part");
        assert_eq!(
            PARTS.iter().filter(|part| request.has(part)).map(|part| part.name).collect::<Vec<_>>(),
            ["lab"]
        );
        let failure = request.add("labs").expect_err("no such part").to_string();
        assert!(failure.contains("no part `labs`; its parts are fuzz,"), "{failure}");
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
    fn every_part_is_in_the_help_and_in_the_documents() {
        let document = include_str!("../../docs/building.md");
        for part in &PARTS {
            assert!(crate::HELP.contains(&format!("{}: {}", part.name, part.what)), "{}", part.name);
            assert!(document.contains(&format!("| `{}` | ", part.name)), "{}", part.name);
        }
    }
}
