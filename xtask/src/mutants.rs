//! Mutation tests: cargo-mutants changes the arithmetic in one place at a time, and each time a test must fail.
//!
//! Results stay in the user's cache, by the contents of the file and of the tests of its crate, so a run continues where the last one
//! stopped. Survivors that no test can kill are in `mutants/explained.txt`, each with the reason.

mod tree;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::{
    mutants::tree::{Tree, VARIABLES},
    setup::cache,
    steps::{self, Failure, Steps},
};

const VERSION: &str = "27.1.0";
/// The time that a part of `--long` may take. The next run decides what is left.
const BUDGET: Duration = Duration::from_secs(30 * 60);
/// Places in the code that one call of cargo-mutants changes, one after the other.
const PLACES: usize = 24;

/// Code that is changed, and its tests.
#[derive(Debug, Hash)]
struct Part {
    name: &'static str,
    package: &'static str,
    /// The directory of `files`, and of the tests that must fail.
    dir: &'static str,
    files: &'static [&'static str],
    /// Only tests with one of these in their name run.
    tests: &'static [&'static str],
    /// A setting for cargo; empty: none.
    config: &'static str,
    /// The percentage of mutants that tests must kill.
    least_percent: usize,
}

static PARTS: [Part; 2] = [
    Part {
        name: "ledger",
        package: "cgscope-ledger",
        dir: "crates/ledger/src",
        files: &[
            "waits.rs",
            "waits/segment.rs",
            "waits/split.rs",
            "waits/look_back.rs",
            "waits/history.rs",
            "waits/culprits.rs",
            "pressure.rs",
            "demand.rs",
        ],
        tests: &["demand::", "pressure::", "waits::"],
        config: "",
        least_percent: 95,
    },
    Part {
        name: "findings",
        package: "cgscope-model",
        dir: "crates/model/src",
        files: &[
            "findings.rs",
            "findings/contention.rs",
            "findings/host.rs",
            "findings/idle_cpus.rs",
            "findings/numa.rs",
            "findings/quota.rs",
            "findings/starved.rs",
        ],
        tests: &["findings::"],
        // The compiler takes nearly all of the time: 3 s for a mutant, and 47 s with optimization.
        config: "profile.dev.package.cgscope-model.opt-level=0",
        least_percent: 90,
    },
];

/// What happened to a mutant. The words are the names of the files in which cargo-mutants reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Killed,
    Survived,
    /// The compiler rejected it.
    Unviable,
}

const OUTCOMES: [(&str, Outcome); 4] = [
    ("caught", Outcome::Killed),
    ("timeout", Outcome::Killed),
    ("missed", Outcome::Survived),
    ("unviable", Outcome::Unviable),
];

/// A mutant, by the name that cargo-mutants gives it: `FILE:LINE:COLUMN: CHANGE`.
type Name = String;

/// A file with its mutants.
struct Mutated {
    part: &'static Part,
    path: String,
    source: String,
    /// Where the outcomes are kept.
    results: PathBuf,
    /// No mutant of these contents was ever tried.
    is_new: bool,
    mutants: Vec<Name>,
    outcomes: BTreeMap<Name, Outcome>,
}

/// `cargo xtask mutants [FILE...]`; named files have no time limit.
pub(crate) fn run(files: &[String]) -> Result<(), Failure> {
    let mut steps = Steps::new("mutants");
    if files.is_empty() {
        for_checks(&mut steps)?;
    } else {
        steps.done("mutants", check(files, None))?;
    }
    steps.summary();
    Ok(())
}

/// The part `mutants` of the long tests.
pub(crate) fn for_checks(steps: &mut Steps) -> Result<(), Failure> {
    steps.done("mutants", check(&[], Some(BUDGET)))
}

fn check(only: &[String], budget: Option<Duration>) -> Result<(), Failure> {
    let until = budget.map(|budget| Instant::now() + budget);
    let explained = Explained::parse(include_str!("mutants/explained.txt"))?;
    let kept = cache("mutants", "results of mutation tests")?;
    create(&kept)?;
    let tool = tree::tool(&kept)?;
    let target = steps::target_dir();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let sources = tree::sources()?;
    let tree = |at: usize| Tree::new(target.join("mutants").join(at.to_string()), &tool, &sources);
    let trees: Vec<_> = (0..workers).map(tree).collect::<Result<_, _>>()?;

    let is_asked = |path: &&String| only.is_empty() || only.iter().any(|file| path.ends_with(file.as_str()));
    let mut files = Vec::new();
    for part in &PARTS {
        let paths: Vec<_> = part.files.iter().map(|file| format!("{}/{file}", part.dir)).collect();
        for path in paths.iter().filter(is_asked) {
            files.push(mutated(part, path, &sources, &kept, trees[0].list(part, path)?));
        }
    }
    if files.is_empty() {
        return Err(Failure::Usage(format!("`mutants` does not change {}", only.join(" or "))));
    }
    let queue = Mutex::new(queue(&files, &explained));
    let files = Mutex::new(files);
    let worker = &|tree: Tree| work(tree, &queue, &files, until);
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = trees.into_iter().map(|tree| scope.spawn(move || worker(tree))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker returns its failure")).collect()
    });
    results.into_iter().collect::<Result<(), _>>()?;
    report(&files.into_inner().expect("no worker panicked"), &explained, &kept)
}

fn create(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|why| cannot_write(dir, &why))
}

fn cannot_write(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Host(format!("mutants: cannot write {} ({why}); check its directory", path.display()))
}

fn append(path: &Path, lines: &str) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(|why| cannot_write(path, &why))
}

fn git(arguments: &[&str]) -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.current_dir(steps::workspace()).args(arguments);
    let output = git.output().map_err(|why| steps::did_not_start(&git, &why))?;
    if !output.status.success() {
        return Err(Failure::Host(format!(
            "mutants: `git {}` failed; run this in a clone",
            arguments.join(" ")
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Whether a file holds tests only.
fn is_test(path: &str) -> bool {
    path.split('/').any(|word| word == "tests" || word == "tests.rs")
}

fn mutated(
    part: &'static Part,
    path: &str,
    sources: &BTreeMap<String, Vec<u8>>,
    kept: &Path,
    mutants: Vec<Name>,
) -> Mutated {
    let contents = sources.get(path).map(Vec::as_slice).unwrap_or_default();
    let tests: Vec<_> = sources
        .iter()
        .filter(|(path, _)| {
            path.starts_with(part.dir)
                && is_test(path)
                && part.tests.iter().any(|name| path.contains(name.trim_end_matches(':')))
        })
        .collect();
    let of_contents = format!("{}-{:016x}-", path.replace('/', "-"), hash(contents));
    let name = format!("{of_contents}{:016x}", hash((VERSION, part, VARIABLES, tests)));
    let there: Vec<_> =
        fs::read_dir(kept).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    let is_new = !there.iter().any(|name| name.to_string_lossy().starts_with(&of_contents));
    let results = kept.join(name);
    let outcomes = outcomes_in(&fs::read_to_string(&results).unwrap_or_default());
    let source = String::from_utf8_lossy(contents).into_owned();
    Mutated { part, path: path.to_owned(), source, results, is_new, mutants, outcomes }
}

/// The outcomes in a file of results: one a line, its word first.
fn outcomes_in(text: &str) -> BTreeMap<Name, Outcome> {
    let outcome = |line: &str| {
        let (word, name) = line.split_once(' ')?;
        let (_, outcome) = OUTCOMES.iter().find(|(known, _)| *known == word)?;
        Some((name.to_owned(), *outcome))
    };
    text.lines().filter_map(outcome).collect()
}

/// Places of one file that a call of cargo-mutants changes.
#[derive(Debug, PartialEq, Eq)]
struct Shard {
    /// Index of the file.
    file: usize,
    /// `LINE:COLUMN` of each place.
    places: Vec<String>,
}

/// What is not decided yet: first the files whose contents were never tried.
fn queue(files: &[Mutated], explained: &Explained) -> VecDeque<Shard> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|at| !files[*at].is_new);
    let shards = order.into_iter().flat_map(|file| {
        let of = &files[file];
        let is_open =
            |name: &&Name| !of.outcomes.contains_key(*name) && explained.of(name, &of.source).is_none();
        let mut places: Vec<_> = of.mutants.iter().filter(is_open).filter_map(|name| place(name)).collect();
        places.dedup();
        let shards = places.chunks(PLACES).map(|places| Shard { file, places: places.to_vec() });
        shards.collect::<Vec<_>>()
    });
    shards.collect()
}

/// The `LINE:COLUMN` of a mutant.
fn place(name: &str) -> Option<String> {
    let mut words = name.split(':').skip(1);
    Some(format!("{}:{}", words.next()?, words.next()?))
}

fn work(
    mut tree: Tree,
    queue: &Mutex<VecDeque<Shard>>,
    files: &Mutex<Vec<Mutated>>,
    until: Option<Instant>,
) -> Result<(), Failure> {
    let next = || queue.lock().expect("no worker panicked").pop_front();
    while until.is_none_or(|until| Instant::now() < until) {
        let Some(shard) = next() else { break };
        let (part, path) = {
            let file = &files.lock().expect("no worker panicked")[shard.file];
            (file.part, file.path.clone())
        };
        let lines = tree.tried(part, &path, &shard.places)?;
        let file = &mut files.lock().expect("no worker panicked")[shard.file];
        append(&file.results, &lines)?;
        file.outcomes.extend(outcomes_in(&lines));
        eprintln!("mutants: {path}: {} of {} decided", file.outcomes.len(), file.mutants.len());
    }
    Ok(())
}

/// Prints the scores, keeps them by commit, and fails if they are too low or a survivor has no explanation.
fn report(files: &[Mutated], explained: &Explained, kept: &Path) -> Result<(), Failure> {
    let (mut all, mut faults) = (String::new(), Vec::new());
    let commit = git(&["describe", "--always", "--dirty"])?;
    for part in &PARTS {
        let mut sum = Score::default();
        for file in files.iter().filter(|file| file.part.name == part.name) {
            let score = Score::of(&file.mutants, &file.outcomes, |name| explained.of(name, &file.source));
            eprintln!("mutants: {}: {score}", file.path);
            score.survivors.iter().for_each(|name| eprintln!("mutants:   survived: {name}"));
            sum.add(score);
        }
        eprintln!("mutants: {}: {sum}", part.name);
        all.push_str(&format!("{} {}: {sum}\n", commit.trim(), part.name));
        faults.extend(sum.fault(part.name, part.least_percent));
    }
    for Mutated { path, mutants, source, .. } in files {
        let unused = explained.unused(path, mutants, source);
        faults
            .extend(unused.map(|change| format!("{path} has no mutant `{change}`; remove its explanation")));
    }
    append(&kept.join("scores.txt"), &all)?;
    if faults.is_empty() { Ok(()) } else { Err(Failure::Step(format!("mutants: {}", faults.join("; ")))) }
}

#[derive(Debug, Default)]
pub(crate) struct Score {
    killed: usize,
    /// Survivors without an explanation.
    pub(crate) survivors: Vec<Name>,
    accepted: usize,
    equivalent: usize,
    undecided: usize,
}

impl Score {
    fn of(
        mutants: &[Name],
        outcomes: &BTreeMap<Name, Outcome>,
        explained: impl Fn(&str) -> Option<Kind>,
    ) -> Self {
        let mut score = Self::default();
        for name in mutants {
            match (explained(name), outcomes.get(name)) {
                (Some(Kind::Equivalent), _) => score.equivalent += 1,
                (Some(Kind::Accepted), _) => score.accepted += 1,
                (None, Some(Outcome::Killed)) => score.killed += 1,
                (None, Some(Outcome::Survived)) => score.survivors.push(name.clone()),
                (None, Some(Outcome::Unviable)) => {}
                (None, None) => score.undecided += 1,
            }
        }
        score
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.killed += other.killed;
        self.survivors.extend(other.survivors);
        self.accepted += other.accepted;
        self.equivalent += other.equivalent;
        self.undecided += other.undecided;
    }

    fn decided(&self) -> usize {
        self.killed + self.survivors.len() + self.accepted
    }

    /// What is wrong with a score; `None`: nothing. What is not decided yet is no fault.
    pub(crate) fn fault(&self, part: &str, least_percent: usize) -> Option<String> {
        if !self.survivors.is_empty() {
            return Some(format!(
                "{part}: {} survivors have no explanation; add a test that kills each, or explain it in \
                 xtask/src/mutants/explained.txt",
                self.survivors.len()
            ));
        }
        (self.killed * 100 < self.decided() * least_percent)
            .then(|| format!("{part}: {self}, but at least {least_percent} % must be killed; add tests"))
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.killed as f64 / self.decided().max(1) as f64;
        write!(f, "killed {} of {} ({percent:.1} %)", self.killed, self.decided())?;
        for (number, what) in [(self.equivalent, "equivalent"), (self.undecided, "not decided yet")] {
            if number != 0 {
                write!(f, ", {what}: {number}")?;
            }
        }
        Ok(())
    }
}

/// Whether a test could kill the mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No input shows a difference.
    Equivalent,
    /// It counts as a survivor.
    Accepted,
}

#[derive(Debug)]
struct Explanation {
    path: String,
    change: String,
    line: String,
    kind: Kind,
}

#[derive(Debug)]
pub(crate) struct Explained(Vec<Explanation>);

impl Explained {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let explanation = |lines: &[&str]| {
            let [mutant, line, reason] = lines else { return None };
            let (path, change) = mutant.split_once(": ")?;
            let kind = match reason.split_once(": ")? {
                ("equivalent", _) => Kind::Equivalent,
                ("accepted", _) => Kind::Accepted,
                _ => return None,
            };
            Some(Explanation {
                path: path.to_owned(),
                change: change.to_owned(),
                line: line.trim().to_owned(),
                kind,
            })
        };
        let parsed = |lines: &[&str]| {
            explanation(lines).ok_or_else(|| {
                let at = lines.join("\n");
                Failure::Step(format!(
                    "mutants: cannot parse explained.txt at\n{at}\nits first lines show the format"
                ))
            })
        };
        lines.chunks(3).map(parsed).collect::<Result<_, _>>().map(Self)
    }

    /// The explanation of a mutant in a file with this source.
    fn of(&self, name: &str, source: &str) -> Option<Kind> {
        let (path, change, line) = parts(name, source)?;
        self.0
            .iter()
            .find(|of| (of.path.as_str(), of.change.as_str(), of.line.as_str()) == (path, change, line))
            .map(|of| of.kind)
    }

    /// The changes that are explained for a file, but are none of its mutants.
    pub(crate) fn unused<'a>(
        &'a self,
        path: &'a str,
        mutants: &[String],
        source: &str,
    ) -> impl Iterator<Item = &'a str> {
        let there: BTreeSet<_> = mutants.iter().filter_map(|name| parts(name, source)).collect();
        let there: BTreeSet<_> =
            there.into_iter().map(|(_, change, line)| (change.to_owned(), line.to_owned())).collect();
        let of_file = self.0.iter().filter(move |of| of.path == path);
        of_file
            .filter(move |of| !there.contains(&(of.change.clone(), of.line.clone())))
            .map(|of| of.change.as_str())
    }
}

/// The file of a mutant, its change, and its line of code.
fn parts<'n>(name: &'n str, source: &'n str) -> Option<(&'n str, &'n str, &'n str)> {
    let (place, change) = name.split_once(": ")?;
    let mut words = place.split(':');
    let path = words.next()?;
    let number: usize = words.next()?.parse().ok()?;
    Some((path, change, source.lines().nth(number.checked_sub(1)?)?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(is_new: bool, mutants: &[&str], decided: &[&str]) -> Mutated {
        let outcomes = decided.iter().map(|name| ((*name).to_owned(), Outcome::Killed)).collect();
        Mutated {
            part: &PARTS[0],
            path: "a.rs".to_owned(),
            source: "a < 7\n".to_owned(),
            results: PathBuf::new(),
            is_new,
            mutants: mutants.iter().map(|name| (*name).to_owned()).collect(),
            outcomes,
        }
    }

    fn queued(files: &[Mutated]) -> Vec<(usize, String)> {
        let explained = Explained::parse("a.rs: replace < with <= in f\n  a < 7\nequivalent: never 7\n");
        let queue = queue(files, &explained.expect("it is valid"));
        queue.into_iter().map(|shard| (shard.file, shard.places.join(" "))).collect()
    }

    #[test]
    fn changed_files_come_first_and_what_is_decided_or_explained_is_not_tried_again() {
        let all = [
            "a.rs:1:3: replace < with == in f",
            "a.rs:1:3: replace < with > in f",
            "a.rs:1:5: delete ! in f",
        ];
        let known = file(false, &all, &all[2..]);
        assert_eq!(
            queued(&[known, file(true, &all, &[])]),
            [(1, "1:3 1:5".to_owned()), (0, "1:3".to_owned())]
        );
        assert_eq!(queued(&[file(true, &["a.rs:1:3: replace < with <= in f"], &[])]), []);
    }

    #[test]
    fn many_places_become_several_shards() {
        let names: Vec<_> =
            (0..=PLACES).map(|line| format!("a.rs:{line}:1: replace + with - in f")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        assert_eq!(queued(&[file(true, &names, &[])]).len(), 2);
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let outcomes =
            outcomes_in("caught a.rs:1:2: replace f with ()\ntimeout b\nmissed c\nunviable d\nother e\n");
        let outcomes: Vec<_> = outcomes.iter().map(|(name, outcome)| (name.as_str(), *outcome)).collect();
        let killed = ("a.rs:1:2: replace f with ()", Outcome::Killed);
        let others = [("b", Outcome::Killed), ("c", Outcome::Survived), ("d", Outcome::Unviable)];
        assert_eq!(outcomes, [&[killed][..], &others].concat());
    }

    #[test]
    fn a_changed_test_makes_results_invalid_and_another_crate_does_not() {
        let path = "crates/ledger/src/waits/split.rs";
        let sources = |test: &str, other: &str| -> BTreeMap<String, Vec<u8>> {
            let files = [
                (path, "code"),
                ("crates/ledger/src/waits/tests/host.rs", test),
                ("crates/view/src/tests.rs", other),
            ];
            files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into()
        };
        let results = |test, other| {
            mutated(&PARTS[0], path, &sources(test, other), Path::new("/nowhere"), Vec::new()).results
        };
        assert_ne!(results("1", "1"), results("2", "1"));
        assert_eq!(results("1", "1"), results("1", "2"));
    }

    #[test]
    fn every_file_exists() {
        for part in &PARTS {
            for file in part.files {
                let path = steps::workspace().join(part.dir).join(file);
                assert!(path.is_file(), "{}", path.display());
            }
        }
    }

    /// The score of mutants `0`, `1` and so on. `e` and `a`: equivalent and accepted; `k`, `s`, `u`: its outcome; `-`: not decided.
    fn score(mutants: &str) -> Score {
        let names: Vec<Name> = (0..mutants.len()).map(|at| at.to_string()).collect();
        let letters = names.iter().zip(mutants.chars());
        let outcome = |letter| match letter {
            'k' => Some(Outcome::Killed),
            's' => Some(Outcome::Survived),
            'u' => Some(Outcome::Unviable),
            _ => None,
        };
        let outcomes = letters.clone().filter_map(|(name, letter)| Some((name.clone(), outcome(letter)?)));
        Score::of(&names, &outcomes.collect(), |name| {
            match mutants.as_bytes()[name.parse::<usize>().ok()?] {
                b'e' => Some(Kind::Equivalent),
                b'a' => Some(Kind::Accepted),
                _ => None,
            }
        })
    }

    #[test]
    fn a_score_counts_what_the_compiler_accepts_and_is_not_equivalent() {
        assert_eq!(score("kkku").to_string(), "killed 3 of 3 (100.0 %)");
        assert_eq!(score("kksae-").to_string(), "killed 2 of 4 (50.0 %), equivalent: 1, not decided yet: 1");
        assert_eq!(score("").to_string(), "killed 0 of 0 (0.0 %)");
    }

    #[test]
    fn a_low_score_and_a_survivor_without_explanation_are_faults() {
        assert_eq!(score("kkkkkkkkka").fault("ledger", 90), None);
        assert!(score("kkkkkkkkaa").fault("ledger", 90).is_some_and(|fault| fault.contains("at least 90 %")));
        let fault = score("kkkkkkkkkkkkkkkkkkkkks").fault("ledger", 90).unwrap_or_default();
        assert!(fault.starts_with("ledger: 1 survivors have no explanation"), "{fault}");
        assert_eq!(score("---").fault("ledger", 95), None, "nothing is decided");
    }

    #[test]
    fn a_part_has_the_sums_of_its_files() {
        let mut sum = score("ks-");
        sum.add(score("kae"));
        assert_eq!(sum.to_string(), "killed 2 of 4 (50.0 %), equivalent: 1, not decided yet: 1");
        assert_eq!(sum.survivors, ["1"]);
    }

    const SOURCE: &str = "fn f(a: u32) -> bool {\n    a < 7\n}\n";
    const TEXT: &str = "# Why.\n\na.rs: replace < with <= in f\n    a < 7\nequivalent: it is never 7\n";

    #[test]
    fn an_explanation_stays_valid_if_lines_move_but_not_if_the_line_changes() {
        let explained = Explained::parse(TEXT).expect("it is valid");
        assert_eq!(explained.of("a.rs:2:7: replace < with <= in f", SOURCE), Some(Kind::Equivalent));
        let moved = format!("\n{SOURCE}");
        assert_eq!(explained.of("a.rs:3:7: replace < with <= in f", &moved), Some(Kind::Equivalent));
        let changed = SOURCE.replace('7', "8");
        assert_eq!(explained.of("a.rs:2:7: replace < with <= in f", &changed), None);
        assert_eq!(explained.of("a.rs:2:7: replace < with > in f", SOURCE), None);
        assert_eq!(explained.of("b.rs:2:7: replace < with <= in f", SOURCE), None);
    }

    #[test]
    fn an_explanation_without_its_mutant_is_unused() {
        let explained = Explained::parse(TEXT).expect("it is valid");
        let unused = |mutant: &str| explained.unused("a.rs", &[mutant.to_owned()], SOURCE).count();
        assert_eq!(unused("a.rs:2:7: replace < with <= in f"), 0);
        assert_eq!(unused("a.rs:2:7: replace < with > in f"), 1);
        assert_eq!(explained.unused("b.rs", &[], SOURCE).count(), 0, "of another file");
    }

    #[test]
    fn an_explanation_needs_its_three_lines_and_a_known_reason() {
        assert!(Explained::parse("a.rs: replace < with <= in f\n    a < 7\n").is_err());
        let error = Explained::parse(&TEXT.replace("equivalent", "unlikely")).expect_err("an unknown reason");
        assert!(error.to_string().contains("a.rs: replace < with <= in f"), "{error}");
        assert!(Explained::parse(include_str!("mutants/explained.txt")).is_ok());
    }
}
