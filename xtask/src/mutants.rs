//! Mutation tests: cargo-mutants changes one place in the arithmetic at a time. Each change must make a test fail.
//!
//! `.cargo/mutants.toml` lists the tests to run, and the mutants that no test can kill. Results are stored in the user's cache,
//! by the state of the changed code and its tests. So a run continues where the previous one stopped.
use std::{
    collections::BTreeSet,
    fmt, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    setup,
    steps::{self, Failure},
    unchanged,
};

const VERSION: &str = "27.1.0";
/// Time limit of one run. The next run continues with the remaining mutants.
const BUDGET: Duration = Duration::from_secs(30 * 60);

struct Part {
    name: &'static str,
    package: &'static str,
    /// Paths of the changed code and its tests, without extension. Each path stands for a file, and for the directory with the
    /// same name.
    files: &'static [&'static str],
    /// Minimum percentage of mutants that the tests must kill.
    least_percent: usize,
}

const CONFIG: &str = ".cargo/mutants.toml";
static PARTS: [Part; 2] = [
    Part {
        name: "ledger",
        package: "cgscope-ledger",
        files: &["crates/ledger/src/waits", "crates/ledger/src/pressure", "crates/ledger/src/demand"],
        least_percent: 95,
    },
    Part {
        name: "findings",
        package: "cgscope-model",
        files: &["crates/model/src/findings"],
        least_percent: 90,
    },
];

/// Environment variables for the tests. The tests use fewer random inputs than usual: a mutant that survives these inputs mostly
/// survives all inputs. A failure is enough, so proptest does not shrink its input.
const VARIABLES: [(&str, &str); 6] = [
    ("CARGO_INCREMENTAL", "1"),
    ("CGSCOPE_SCHEDULES", "1000"),
    ("PROPTEST_CASES", "16"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    // Each worker uses one CPU.
    ("RUST_TEST_THREADS", "1"),
    // `--fail-fast` of cargo-mutants needs this.
    ("RUSTC_BOOTSTRAP", "1"),
];

/// Prints the scores. Fails if a score is too low.
pub(crate) fn run() -> Result<(), Failure> {
    let tool = setup::program("cargo-mutants", VERSION)?;
    let kept = setup::cache("mutants")?;
    let (mut left, mut faults) = (BUDGET, Vec::new());
    for (part, parts_left) in PARTS.iter().zip((1..=PARTS.len() as u32).rev()) {
        let begun = Instant::now();
        let score = part.score(&tool, &kept, left / parts_left)?;
        left = left.saturating_sub(begun.elapsed());
        score.survivors.iter().for_each(|name| eprintln!("mutants: survived: {name}"));
        eprintln!("mutants: {}: {score}", part.name);
        faults.extend(score.fault(part));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Step(format!("mutants: {}", faults.join("; ")))) }
}

impl Part {
    fn score(&self, tool: &Path, kept: &Path, budget: Duration) -> Result<Score, Failure> {
        let place = self.place(kept);
        fs::create_dir_all(&place).map_err(|why| steps::cannot("write", &place, &why))?;
        let (out, all_killed) = (place.join("mutants.out"), place.join("killed.txt"));
        // `killed.txt` lists the mutants that this run and earlier runs killed. In the lists of cargo-mutants, mutants that
        // earlier runs caught are mixed with mutants that do not compile.
        let killed = || {
            let mut killed = names(&all_killed);
            killed.extend(["caught.txt", "timeout.txt"].iter().flat_map(|file| names(&out.join(file))));
            let lines: String = killed.iter().map(|name| format!("{name}\n")).collect();
            steps::write(&all_killed, lines).map(|()| killed)
        };
        killed()?;
        let mut command = Command::new("timeout");
        // 0 would mean that there is no limit.
        let seconds = budget.as_secs().max(1).to_string();
        command.args(["--foreground", "--signal=INT", &seconds]).arg(tool);
        let workers = thread::available_parallelism().map_or(1, usize::from).to_string();
        command.args(["mutants", "--package", self.package, "--iterate", "--shuffle", "--jobs", &workers]);
        let files = self.files.iter();
        command.args(files.flat_map(|file| [".rs", "/**"].map(|end| format!("--file={file}{end}"))));
        command.arg("--output").arg(&place);
        setup::outside(&mut command).current_dir(steps::workspace()).env("CARGO", steps::cargo_path());
        let status = steps::status(command.envs(VARIABLES))?;
        // Exit codes: 2 if a mutant survived, 3 if a test took too long, 124 if the time limit was reached.
        if !matches!(status.code(), Some(0 | 2 | 3 | 124)) {
            return Err(Failure::Step(format!("cargo-mutants failed ({status}); see its messages above")));
        }
        let survivors = names(&out.join("missed.txt"));
        let killed = killed()?.difference(&survivors).count();
        let listed = fs::read_to_string(out.join("mutants.json")).unwrap_or_default();
        let listed = serde_json::from_str::<Vec<serde_json::Value>>(&listed).unwrap_or_default().len();
        let ended = ["caught.txt", "timeout.txt", "missed.txt", "unviable.txt"];
        let ended: usize = ended.iter().map(|file| names(&out.join(file)).len()).sum();
        Ok(Score { killed, survivors, undecided: listed.saturating_sub(ended) })
    }

    /// Returns the paths of all files that decide whether a test notices a mutant.
    fn paths(&self) -> Vec<String> {
        let files = self.files.iter().flat_map(|file| [format!("{file}.rs"), (*file).to_owned()]);
        files.chain([CONFIG.to_owned()]).collect()
    }

    /// Returns the directory of the results. The directory is emptied if files differ from the commit.
    fn place(&self, kept: &Path) -> PathBuf {
        let Some(state) = unchanged::state(&self.paths().join(" ")) else {
            let place = steps::target_dir().join("mutants").join(self.name);
            let _ = fs::remove_dir_all(&place);
            return place;
        };
        let mut hasher = DefaultHasher::new();
        (VERSION, VARIABLES, state).hash(&mut hasher);
        kept.join(format!("{}-{:016x}", self.name, hasher.finish()))
    }
}

/// Returns the mutants in a list of cargo-mutants. If the file is missing, the result is empty.
fn names(file: &Path) -> BTreeSet<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[derive(Debug, Default)]
struct Score {
    killed: usize,
    survivors: BTreeSet<String>,
    undecided: usize,
}

impl Score {
    fn decided(&self) -> usize {
        self.killed + self.survivors.len()
    }

    /// Returns why a score is too low; `None` if it is high enough. Mutants without a result do not make a score too low.
    fn fault(&self, part: &Part) -> Option<String> {
        let Part { name, least_percent, .. } = part;
        (self.killed * 100 < self.decided() * least_percent).then(|| {
            format!(
                "{name}: {self}, but at least {least_percent} % must be killed; add tests, or explain in {CONFIG} why no \
                 input shows a difference"
            )
        })
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.killed as f64 / self.decided().max(1) as f64;
        write!(f, "killed {} of {} ({percent:.1} %)", self.killed, self.decided())?;
        if self.undecided == 0 { Ok(()) } else { write!(f, ", not decided yet: {}", self.undecided) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(killed: usize, survivors: usize, undecided: usize) -> Score {
        Score { killed, survivors: (0..survivors).map(|at| at.to_string()).collect(), undecided }
    }

    #[test]
    fn a_score_counts_what_is_decided() {
        assert_eq!(score(3, 0, 0).to_string(), "killed 3 of 3 (100.0 %)");
        assert_eq!(score(2, 2, 1).to_string(), "killed 2 of 4 (50.0 %), not decided yet: 1");
        assert_eq!(score(0, 0, 0).to_string(), "killed 0 of 0 (0.0 %)");
    }

    #[test]
    fn a_low_score_is_a_fault() {
        let [ledger, _] = &PARTS;
        assert_eq!(score(95, 5, 7).fault(ledger), None);
        assert!(score(94, 6, 7).fault(ledger).is_some_and(|fault| fault.contains("at least 95 %")));
        assert_eq!(score(0, 0, 3).fault(ledger), None, "nothing is decided");
    }

    #[test]
    fn every_file_exists() {
        let config = include_str!("../../.cargo/mutants.toml");
        let explained = config.lines().filter_map(|line| line.trim().strip_prefix("'")?.split(':').next());
        let explained: Vec<_> = explained.map(|path| path.replace('\\', "")).collect();
        assert!(explained.len() > 10, "{explained:?}");
        let paths = PARTS.iter().flat_map(Part::paths);
        for path in paths.chain(explained) {
            assert!(steps::workspace().join(&path).exists(), "{path}");
        }
    }
}
