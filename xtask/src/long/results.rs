//! The results of the tests that take minutes, in the user's cache.
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::{git, setup};

/// The file of results: a line each, the newest last.
pub(crate) struct Results {
    file: PathBuf,
    commit: Option<String>,
}

/// A line of the file. Its fields are separated by tabs, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// UTC.
    pub(crate) date: String,
    /// Ends with `+` if files differ from the commit.
    commit: String,
    /// A part such as `lab`, or something in it, such as `lab 6.1`.
    what: String,
    pub(crate) seconds: u64,
    /// `passed`, or what failed.
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
        fs::create_dir_all(&place).map_err(|why| cannot_write(&place, &why))?;
        Ok(Self { file: place.join("results.tsv"), commit: git::clean_commit() })
    }

    fn entries(&self) -> Vec<Entry> {
        fs::read_to_string(&self.file).unwrap_or_default().lines().filter_map(Entry::parse).collect()
    }

    /// The newest result at this commit, if it passed. `None` if files differ from the commit.
    pub(crate) fn passed(&self, what: &str) -> Option<Entry> {
        passed(self.entries(), self.commit.as_deref()?, what)
    }

    /// Adds a result.
    pub(crate) fn note(
        &self,
        what: &str,
        took: Duration,
        result: &Result<(), Failure>,
    ) -> Result<(), Failure> {
        let date = Command::new("date").args(["-u", "+%F %R"]).output();
        let commit = match &self.commit {
            // A commit or an edit during the run: what ran is unclear.
            Some(commit) if self.commit == git::clean_commit() => commit.clone(),
            Some(commit) => format!("{commit}+"),
            None => {
                git::said(&["rev-parse", "--short=8", "HEAD"]).unwrap_or_default().trim().to_owned() + "+"
            }
        };
        let entry = Entry {
            date: date
                .map(|date| String::from_utf8_lossy(&date.stdout).trim().to_owned())
                .unwrap_or_default(),
            commit,
            what: what.to_owned(),
            seconds: took.as_secs(),
            result: result.as_ref().err().map_or_else(|| "passed".to_owned(), ToString::to_string),
        };
        let file = File::options().create(true).append(true).open(&self.file);
        file.and_then(|mut file| file.write_all(entry.line().as_bytes()))
            .map_err(|why| cannot_write(&self.file, &why))
    }

    /// The newest result of each of these.
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

fn cannot_write(path: &Path, why: &std::io::Error) -> Failure {
    Failure::Host(format!("test: cannot write {}: {why}; no result was recorded", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Entry, passed, table};

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
