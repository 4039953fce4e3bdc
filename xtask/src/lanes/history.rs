//! The history of test runs on this machine, in a file in the user's cache. If the file is missing or unreadable, the history is
//! empty.
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::disturbance::Disturbance;
use crate::setup;
use crate::steps::{self, Failure};

/// The names of the columns of the file, separated by tabs.
const COLUMNS: &str =
    "machine\trun\tcommit\ttest\ttries\tresult\tquiet\tseconds\tothers\tbeside\tsteal\tqueue\n";
/// Used instead of a test name in the row for a run of all tests.
const WHOLE: &str = "(all)";
/// Maximum number of rows. This is enough for some 50 runs of all tests.
const ROWS: usize = 20_000;
/// Number of latest quiet runs by which a test is judged, and the number of second tries in these runs that makes it fail.
const JUDGED: usize = 10;
const TOO_MANY: usize = 3;
const WORST: usize = 10;
const RUNS: usize = 10;

/// One row of the file: a test of a run, or a run of all tests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    machine: String,
    /// When the run started, UTC.
    run: String,
    commit: String,
    test: String,
    tries: u32,
    result: String,
    /// Whether other programs left the run undisturbed.
    is_quiet: bool,
    seconds: f64,
    disturbance: Disturbance,
}

impl Row {
    fn text(&self) -> String {
        let Self { machine, run, commit, test, tries, result, is_quiet, seconds, disturbance } = self;
        let Disturbance { others, beside, steal, queue, .. } = disturbance;
        let quiet = if *is_quiet { "quiet" } else { "busy" };
        format!(
            "{machine}\t{run}\t{commit}\t{test}\t{tries}\t{result}\t{quiet}\t{seconds:.1}\t{others:.2}\t{beside:.2}\t{steal:.2}\t{queue}\n"
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let cells: [&str; 12] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let [machine, run, commit, test, tries, result, quiet, seconds, others, beside, steal, queue] = cells;
        let [machine, run, commit, test, result] = [machine, run, commit, test, result].map(str::to_owned);
        let [seconds, others, beside, steal] = [seconds, others, beside, steal].map(|cell| cell.parse().ok());
        let disturbance = Disturbance {
            cpus: 0,
            others: others?,
            beside: beside?,
            steal: steal?,
            queue: queue.parse().ok()?,
        };
        let (tries, is_quiet, seconds) = (tries.parse().ok()?, quiet == "quiet", seconds?);
        Some(Self { machine, run, commit, test, tries, result, is_quiet, seconds, disturbance })
    }
}

pub(crate) struct History {
    file: Option<PathBuf>,
    machine: String,
    run: String,
    commit: String,
}

impl History {
    pub(crate) fn open() -> Self {
        let git = ["describe", "--always", "--dirty", "--exclude=*"];
        let machine = ["/etc/machine-id", "/proc/sys/kernel/hostname"].into_iter();
        Self {
            file: setup::cache("tries.tsv", "the history of tests").ok(),
            machine: machine.filter_map(read_word).next().unwrap_or_else(|| "unknown".to_owned()),
            run: steps::date("%FT%TZ"),
            commit: steps::git(&git).unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    pub(crate) fn row(
        &self,
        test: &str,
        (tries, result): (u32, &str),
        is_quiet: bool,
        seconds: f64,
        disturbance: Disturbance,
    ) -> Row {
        let [machine, run, commit] = [&self.machine, &self.run, &self.commit].map(Clone::clone);
        let (test, result) = (test.to_owned(), result.to_owned());
        Row { machine, run, commit, test, tries, result, is_quiet, seconds, disturbance }
    }

    pub(crate) fn add_whole(&self, result: &Result<(), Failure>, seconds: f64) {
        let word = match result {
            Ok(()) => "green",
            Err(Failure::Undecided(_)) => "undecided",
            Err(Failure::Step(_)) => "red",
            // The run could not start, so it gets no row.
            Err(Failure::Usage(_) | Failure::Host(_)) => return,
        };
        let is_quiet = self.rows().iter().filter(|row| row.run == self.run).all(|row| row.is_quiet);
        self.add(&[self.row(WHOLE, (1, word), is_quiet, seconds, Disturbance::default())]);
    }

    /// Adds rows, and drops the oldest rows if there are too many. If the file cannot be written, prints the reason, but does not
    /// fail.
    pub(crate) fn add(&self, rows: &[Row]) {
        let Some(file) = &self.file else { return };
        let old = fs::read_to_string(file).unwrap_or_default();
        let new: String = rows.iter().map(Row::text).collect();
        let _ = file.parent().map(fs::create_dir_all);
        let written = if old.is_empty() || old.lines().count() > ROWS {
            let kept = newest(&old, ROWS * 9 / 10);
            fs::write(file, format!("{COLUMNS}{kept}{new}"))
        } else {
            fs::OpenOptions::new().append(true).open(file).and_then(|mut file| file.write_all(new.as_bytes()))
        };
        if let Err(why) = written {
            eprintln!("test: cannot write the history of tests to {} ({why})", file.display());
        }
    }

    /// Returns all rows of this machine, oldest first.
    fn rows(&self) -> Vec<Row> {
        let text = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        text.lines().filter_map(Row::parse).filter(|row| row.machine == self.machine).collect()
    }

    /// Lists the tests that needed a second try most often.
    pub(crate) fn worst(&self) -> String {
        let mut text = String::new();
        for (test, again, of) in worst(&self.rows()).into_iter().take(WORST) {
            text += &format!("test: needed a second try in {again} of its last {of} quiet runs: {test}\n");
        }
        text
    }

    /// Returns an error if a test needs a second try too often.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let too_often: Vec<String> = too_often(&self.rows());
        if too_often.is_empty() {
            return Ok(());
        }
        Err(Failure::Step(format!(
            "these tests needed a second try in {TOO_MANY} of their last {JUDGED} quiet runs: {}; mend them, and run each \
             {JUDGED} times (`cargo xtask test --root -- NAME`)",
            too_often.join(" ")
        )))
    }

    /// Returns a table of the latest runs of all tests, and the tests that needed most second tries.
    pub(crate) fn table(&self) -> String {
        let mut rows = self.rows();
        rows.retain(|row| row.test == WHOLE);
        let mut text = format!("{:<22}{:<18}{:>8}  result\n", "run", "commit", "seconds");
        for row in &rows[rows.len().saturating_sub(RUNS)..] {
            let busy = if row.is_quiet { "" } else { ", on a busy machine" };
            let Row { run, commit, seconds, result, .. } = row;
            text += &format!("{run:<22}{commit:<18}{seconds:>8.0}  {result}{busy}\n");
        }
        text + &self.worst()
    }
}

/// Returns the tests that needed second tries in their latest quiet runs. For each test: the name, how often, and in how many
/// runs.
fn worst(rows: &[Row]) -> Vec<(&str, usize, usize)> {
    let mut by_test: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.is_quiet && row.test != WHOLE) {
        by_test.entry(&row.test).or_default().push(row.tries > 1);
    }
    let judged = by_test.into_iter().map(|(test, again)| {
        let last = &again[again.len().saturating_sub(JUDGED)..];
        (test, last.iter().filter(|again| **again).count(), last.len())
    });
    let mut worst: Vec<_> = judged.filter(|(_, again, _)| *again != 0).collect();
    worst.sort_by_key(|(_, again, _)| std::cmp::Reverse(*again));
    worst
}

fn too_often(rows: &[Row]) -> Vec<String> {
    let bad = worst(rows).into_iter().filter(|(_, again, _)| *again >= TOO_MANY);
    bad.map(|(test, ..)| test.to_owned()).collect()
}

/// Returns the last `count` rows of the file.
fn newest(text: &str, count: usize) -> String {
    let rows = text.lines().count().saturating_sub(1);
    let kept = text.lines().skip(1 + rows.saturating_sub(count));
    kept.map(|line| format!("{line}\n")).collect()
}

fn read_word(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.split_ascii_whitespace().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Disturbance, Failure, History, Row, newest, too_often, worst};

    fn history(name: &str) -> History {
        let file = std::env::temp_dir().join(format!("cgscope-{name}-{}.tsv", std::process::id()));
        let [machine, run, commit] = ["m", "2026-01-02T03:04:05Z", "abc"].map(str::to_owned);
        History { file: Some(file), machine, run, commit }
    }

    fn rows(test: &str, tries: &[u32], is_quiet: bool) -> Vec<Row> {
        let row =
            |tries: &u32| history("rows").row(test, (*tries, "ok"), is_quiet, 1.5, Disturbance::default());
        tries.iter().map(row).collect()
    }

    #[test]
    fn three_second_tries_in_the_last_ten_quiet_runs_are_too_many() {
        let quiet = |tries: &[u32]| too_often(&rows("a", tries, true));
        assert!(quiet(&[2, 1, 2]).is_empty());
        assert_eq!(quiet(&[2, 1, 2, 1, 1, 1, 1, 1, 1, 2]), ["a"]);
        // The eleventh run replaces the first run.
        assert!(quiet(&[2, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1]).is_empty());
        assert!(too_often(&rows("a", &[2; 5], false)).is_empty(), "other programs disturbed these runs");
        let both = [rows("a", &[1, 2, 1], true), rows("b", &[2, 2, 1], true)].concat();
        assert_eq!(worst(&both), [("b", 2, 3), ("a", 1, 3)]);
    }

    #[test]
    fn rows_of_this_machine_are_read_as_they_were_written() {
        let history = history("file");
        assert!(history.rows().is_empty() && history.check().is_ok(), "no history is no failure");
        let disturbance = Disturbance { cpus: 0, others: 0.25, beside: 0.5, steal: 0.0, queue: 2 };
        let mut row = history.row("a::b", (2, "ok"), true, 1.5, disturbance);
        history.add(&[row.clone()]);
        row.machine = "another".to_owned();
        history.add(&[row.clone()]);
        history.add_whole(&Err(Failure::Undecided(String::new())), 900.0);
        row.machine = "m".to_owned();
        let read = history.rows();
        let table = history.table();
        std::fs::remove_file(history.file.as_ref().expect("a file")).expect("a file of ours");
        assert_eq!((read.len(), &read[0]), (2, &row));
        assert!(table.contains("2026-01-02T03:04:05Z  abc                    900  undecided\n"), "{table}");
        assert!(
            table.ends_with("test: needed a second try in 1 of its last 1 quiet runs: a::b\n"),
            "{table}"
        );
    }

    #[test]
    fn the_oldest_rows_are_dropped() {
        assert_eq!(newest(&format!("{COLUMNS}a\nb\nc\n"), 2), "b\nc\n");
        assert_eq!(newest("", 2), "");
    }
}
