//! Runs the tests that take minutes. They are divided into parts. A part that has already passed at this commit does not run
//! again.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    binary, dist, fuzz, lab,
    lanes::{self, History, LONG, Lanes, SOAK},
    mutants, setup,
    steps::{self, AsRoot, Failure, Steps, cargo},
};

pub(crate) struct Part {
    pub(crate) name: &'static str,
    what: &'static str,
    packages: fn() -> Vec<&'static str>,
    run: fn(&mut Run<'_>) -> Result<(), Failure>,
}

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

/// Names of the parts that need root.
const TESTS: &str = "tests";
const SOAK_PART: &str = "soak";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// Names of the chosen parts; if empty, all parts run.
    pub(crate) parts: Vec<String>,
    /// Whether to run parts again that have passed at this commit.
    pub(crate) again: bool,
    /// Parts of the names of tests that run as root; if empty, all of them run.
    pub(crate) filters: Vec<String>,
}

/// The state that all parts share.
struct Run<'a> {
    request: &'a Request,
    results: Results,
    /// The history of the tests that ran as root.
    history: &'a History,
    steps: &'a mut Steps,
    as_root: Option<&'a AsRoot>,
    /// Total time of those steps of the current part that did not run again.
    saved: Duration,
}

impl Request {
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

pub(crate) fn run(request: &Request, steps: &mut Steps, history: &History) -> Result<(), Failure> {
    let parts: Vec<&Part> = PARTS.iter().filter(|part| request.has(part)).collect();
    // Becomes root and installs everything at the start, because otherwise a failure would come only after minutes of tests.
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
        // A part does not count as complete if some of its tests are left out.
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

impl Run<'_> {
    /// Returns whether `what` has already passed at this commit, so that it does not run again. In that case, prints it.
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
    let mut schedules = cargo(&["test", "--release", "-p", "cgscope-ledger", "--lib", "ledger"]);
    run.steps.step("random schedules", schedules.env("CGSCOPE_SCHEDULES", "1000000"))
}

/// Runs each test of these modules separately, so that each test's result is recorded.
fn tests(run: &mut Run<'_>, part: &str, modules: &str) -> Result<(), Failure> {
    let Some(as_root) = run.as_root else { return Ok(()) };
    // The tests expect the packages next to the binary.
    dist::make(&binary::build()?)?;
    let lanes = Lanes::prepare(as_root, run.history, true, part == TESTS)?;
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

/// The file of results. Each line is one result, the newest last.
pub(crate) struct Results {
    file: PathBuf,
    commit: Option<String>,
}

/// A line of the file. The fields of the line have this order and are separated by tabs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) date: String,
    /// The commit, followed by `+` if files differ from the commit.
    commit: String,
    /// A part such as `lab`, or a step of a part such as `lab 6.1`.
    what: String,
    pub(crate) seconds: u64,
    /// `passed`, or the error message.
    result: String,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, '\t').map(str::to_owned);
        let (date, commit, what) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { date, commit, what, seconds: fields.next()?.parse().ok()?, result: fields.next()? })
    }

    fn line(&self) -> String {
        let Self { date, commit, what, seconds, result } = self;
        format!("{date}\t{commit}\t{what}\t{seconds}\t{}\n", result.replace(['\n', '\t'], " "))
    }

    fn has_passed(&self) -> bool {
        self.result == "passed"
    }
}

impl Results {
    pub(crate) fn open() -> Result<Self, Failure> {
        let place = setup::cache("long", "results")?;
        fs::create_dir_all(&place).map_err(|why| steps::cannot("write", &place, &why))?;
        Ok(Self { file: place.join("results.tsv"), commit: steps::clean_commit() })
    }

    fn entries(&self) -> Vec<Entry> {
        fs::read_to_string(&self.file).unwrap_or_default().lines().filter_map(Entry::parse).collect()
    }

    /// Returns the newest result of `what` at this commit, if that result is a pass. Returns `None` if files differ from the
    /// commit.
    pub(crate) fn passed(&self, what: &str) -> Option<Entry> {
        passed(self.entries(), self.commit.as_deref()?, what)
    }

    pub(crate) fn note(
        &self,
        what: &str,
        took: Duration,
        result: &Result<(), Failure>,
    ) -> Result<(), Failure> {
        let commit = match &self.commit {
            // If there was a commit or an edit during the run, it is unclear which code ran.
            Some(commit) if self.commit == steps::clean_commit() => commit.clone(),
            Some(commit) => format!("{commit}+"),
            None => steps::git(&["rev-parse", "--short=8", "HEAD"]).unwrap_or_default() + "+",
        };
        let entry = Entry {
            date: steps::date("%F %R"),
            commit,
            what: what.to_owned(),
            seconds: took.as_secs(),
            result: result.as_ref().err().map_or_else(|| "passed".to_owned(), ToString::to_string),
        };
        steps::append(&self.file, &entry.line())
    }

    /// Returns a table with the newest result of each part.
    pub(crate) fn table(&self, of: &[&str]) -> String {
        format!("{}results of every test: {}\n", table(&self.entries(), of), self.file.display())
    }
}

fn passed(entries: Vec<Entry>, commit: &str, what: &str) -> Option<Entry> {
    let newest = entries.into_iter().rfind(|entry| entry.commit == commit && entry.what == what);
    newest.filter(Entry::has_passed)
}

fn table(entries: &[Entry], of: &[&str]) -> String {
    let newest: Vec<_> =
        of.iter().map(|what| (what, entries.iter().rfind(|entry| entry.what == **what))).collect();
    let mut lines =
        format!("{:<10} {:>7}  {:<16}  {:<9}  result\n", "part", "seconds", "date (UTC)", "commit");
    for (what, entry) in &newest {
        lines += &match entry {
            Some(Entry { date, commit, seconds, result, .. }) => {
                format!("{what:<10} {seconds:>7}  {date:<16}  {commit:<9}  {result}\n")
            }
            None => format!("{what:<10} {:>7}  has not run on this machine\n", "-"),
        };
    }
    let seconds: u64 = newest.iter().filter_map(|(_, entry)| *entry).map(|entry| entry.seconds).sum();
    lines + &format!("{:<10} {seconds:>7}  {} minutes\n", "sum", seconds.div_ceil(60))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let document = include_str!("../../docs/testing.md");
        for part in &PARTS {
            assert!(crate::HELP.contains(&format!("{}: {}", part.name, part.what)), "{}", part.name);
            assert!(document.contains(&format!("| `{}` | ", part.name)), "{}", part.name);
        }
    }

    const FILE: &str = "\
2026-11-26 10:00\taaaa\ttests\t2900\tpassed
2026-11-26 11:00\taaaa\tlab\t900\tfailed on 6.1
2026-11-26 12:00\tbbbb+\ttests\t3000\tpassed
2026-11-26 13:00\taaaa\tlab\t800\tpassed
2026-11-26 14:00\taaaa\ttests\t10\tfailed twice: a::b
a torn line\taaaa
";

    fn entries() -> Vec<Entry> {
        FILE.lines().filter_map(Entry::parse).collect()
    }

    #[test]
    fn the_newest_result_of_the_same_commit_counts() {
        let passed = |commit, what| passed(entries(), commit, what).map(|entry| entry.seconds);
        assert_eq!(passed("aaaa", "lab"), Some(800));
        assert_eq!(passed("aaaa", "tests"), None, "failed last");
        assert_eq!(passed("bbbb", "tests"), None, "files differed from the commit");
        assert_eq!(passed("aaaa", "fuzz"), None);
    }

    #[test]
    fn a_line_is_parsed_as_it_was_written() {
        let mut entry = entries().remove(1);
        assert_eq!(Entry::parse(entry.line().trim_end()).as_ref(), Some(&entry));
        entry.result = "two\nlines\tand a tab".to_owned();
        let parsed = Entry::parse(entry.line().trim_end()).expect("a line");
        assert_eq!(parsed.result, "two lines and a tab");
    }

    #[test]
    fn the_table_has_the_newest_results_and_their_sum() {
        let table = table(&entries(), &["tests", "lab", "fuzz"]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "tests           10  2026-11-26 14:00  aaaa       failed twice: a::b");
        assert_eq!(lines[2], "lab            800  2026-11-26 13:00  aaaa       passed");
        assert_eq!(lines[3], "fuzz             -  has not run on this machine");
        assert_eq!(lines[4], "sum            810  14 minutes");
    }
}
