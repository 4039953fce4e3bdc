//! The command line. [`crate::request`] interprets it.

mod recordings;
mod sample;
mod selectors;
mod stat;

use std::{path::PathBuf, time::Duration};

use cgscope_model::units::seconds;
use clap::{Args, Parser, Subcommand, ValueEnum};

use cgscope_view::{
    app::{list::ListKind, view::View},
    columns::Column,
};

use crate::exit::Error;

pub use recordings::{Diff, Export, Record, Replay, Report};
pub use sample::Sample;
pub use selectors::Selectors;
pub use stat::{Stat, StatBy};

/// Why is this task, process, container or service not on a CPU although it could run?
///
/// Every wait of every task for a CPU, from one hook in the kernel's scheduler, exact to the kernel's own figure.
#[derive(Debug, Parser)]
#[command(name = "cgscope", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Live screen: who waits for a CPU, how long, why, and behind whom
    Top(Top),
    /// Histograms of waits as text, in the manner of runqlat, with the bars split by cause
    ///
    /// A bar is divided in proportion to why its waits took as long as they did: T throttled (out of quota), o behind tasks of the own
    /// cgroup, # behind other cgroups, k behind kernel threads, . wakeup (nobody ran), ? unattributed. Below it: the causes with their
    /// figures, whose quota ran out, and who ran meanwhile.
    Hist(Hist),
    /// Counters a line per task or cgroup, in the manner of pidstat, with %wait split; or the summary of a command, like time
    #[command(mut_arg("tid", |tid| tid.short(None)))]
    Stat(Stat),
    /// What all threads do, in the manner of psn: on a CPU, runnable, throttled, blocked; grouped by what is asked for
    ///
    /// All threads are looked at again and again, at random moments, and counted. samples: times that a thread of the group was
    /// seen; avg_threads: how many of them there were on average. Columns: comm (digits as *), tgid, tid, state, syscall, wchan,
    /// kstack, cgroup, node, cpu, username, exe, cmdline.
    Sample(Sample),
    /// Write what happens to a file, for `cgscope report`
    Record(Record),
    /// What happened in a recording, in words and tables
    Report(Report),
    /// The screen of `cgscope top` over a recording: play, step, and jump to findings
    Replay(Replay),
    /// What changed from one recording to another, and what of it is more than noise
    ///
    /// Two columns and the change for each figure, the largest change first. A difference is called more than noise if the blocks
    /// of time of both recordings, dealt to the two sides at random, give the whole table one as sure in less than 1% of cases,
    /// and if it is large enough to matter. How it is judged is in docs/diff.md.
    Diff(Diff),
    /// A recording in the format of another tool
    Export(Export),
    /// The daemon: measures for all users, each of whom sees what is theirs, and serves metrics to Prometheus
    ///
    /// It loads BPF, gives up its privileges, and serves `top`, `hist`, `stat` and `record` of users over a Unix socket, and metrics by
    /// HTTP. What it does is in its configuration; docs/serve.md explains it. SIGHUP reads that again.
    Serve(Serve),
    /// What this host offers, what is off because of it, and how to mend it
    Doctor(Doctor),
    /// Write the manual pages and shell completions of this binary, for packages
    #[command(hide = true)]
    Packaging(Packaging),
}

#[derive(Debug, Default, Args)]
pub struct Select {
    #[command(flatten)]
    pub selectors: Selectors,

    /// Also read on which NUMA nodes the memory of the chosen processes lies, at most every second, of the 16 with the most CPU
    /// time. The kernel goes over their page tables for it: some milliseconds for each GiB in pages of 4 KiB, in which
    /// the process cannot map memory; so much time is left between two readings that it is at most 1 %
    #[arg(long, help_heading = selectors::HEADING)]
    pub memory: bool,

    /// Start the command as this user
    #[arg(long, value_name = "NAME", requires = "command", help_heading = selectors::HEADING)]
    pub user: Option<String>,

    /// How to measure
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub mode: ModeChoice,

    /// Look through the daemon (`cgscope serve`) whose socket this is, and show what this user may see. Without it that is done where
    /// /run/cgscope.sock is there and the privileges to measure are not
    #[arg(long, value_name = "SOCKET", conflicts_with = "mode")]
    pub connect: Option<PathBuf>,

    /// Say on standard error what is being done
    #[arg(short, long)]
    pub verbose: bool,

    /// Start this command, follow it and its children, and end with it
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pid", "tid"])]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeChoice {
    /// Exactly where this host lets us, else coarsely, saying why
    #[default]
    Auto,
    /// Exactly, from the hook in the kernel, or not at all
    Bpf,
    /// From /proc and the files of cgroups: sums of waits without histogram, and of the causes only quotas; needs no privilege
    Coarse,
}

#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub select: Select,

    /// Plain text to standard output instead of a screen
    #[arg(short, long)]
    pub batch: bool,

    /// With -b: one JSON object a line instead of text
    #[arg(long, requires = "batch", conflicts_with_all = ["view", "sort", "filter"])]
    pub json: bool,

    /// Also record what is shown, for `cgscope replay` and `cgscope report`; a file that is there is kept as FILE.old
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// End after so many intervals
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,

    /// Length of an interval: 500ms, 5s, 2m; a plain number is seconds [default: 1s, or what settings say]
    #[arg(short, long, value_name = "SECS", value_parser = interval)]
    pub delay: Option<Duration>,

    /// Begin with this view; with -b, print tasks (overview) or cgroups
    #[arg(long, value_name = "VIEW", value_parser = view)]
    pub view: Option<View>,

    /// Sort by the column of this heading, like p99 or %CPU
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,

    /// Show only rows with these letters in name, path or id
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
}

impl Top {
    /// The heading to sort by, if one of these lists has it; else an error.
    pub fn sort_among(&self, kinds: &[ListKind]) -> Result<Option<String>, Error> {
        if kinds.iter().any(|kind| self.sort_of(*kind).is_ok()) {
            return Ok(self.sort.clone());
        }
        self.sort_of(kinds[0]).map(|_| None)
    }

    /// The column to sort a list by.
    pub fn sort_of(&self, kind: ListKind) -> Result<Option<Column>, Error> {
        let Some(title) = &self.sort else { return Ok(None) };
        let found = Column::by_title(title, kind.columns());
        found.map(Some).ok_or_else(|| {
            let titles: Vec<&str> = kind.columns().iter().map(|column| column.title()).collect();
            let (name, titles) = (kind.name(), titles.join(", "));
            Error::could_not_run(if titles.is_empty() {
                format!("--sort {title:?}: the list of {name} has no columns to sort by; choose another view with --view")
            } else {
                format!("--sort {title:?} is no column of {name}; it has {titles}")
            })
        })
    }
}

fn view(text: &str) -> Result<View, String> {
    View::by_name(text).ok_or_else(|| {
        let names: Vec<&str> = View::ALL.iter().map(|view| view.name()).collect();
        format!("a view is one of {}", names.join(", "))
    })
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Rhythm {
    /// Print after each interval of this length (500ms, 5s, 2m; a plain number is seconds); without: once, over the time since the
    /// start, at the end
    #[arg(value_parser = interval)]
    pub interval: Option<Duration>,

    /// End after so many intervals
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = interval, conflicts_with = "count")]
    pub duration: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Hist {
    #[command(flatten)]
    pub rhythm: Rhythm,

    #[command(flatten)]
    pub select: Select,

    /// A histogram for each process
    #[arg(short = 'P', long, group = "per")]
    pub per_process: bool,

    /// A histogram for each thread
    #[arg(short = 'L', long, group = "per")]
    pub per_thread: bool,

    /// A histogram for each CPU
    #[arg(short = 'C', long, group = "per")]
    pub per_cpu: bool,

    /// A histogram for each of these
    #[arg(long, value_name = "WHAT", group = "per")]
    pub by: Option<HistBy>,

    /// Rows in milliseconds instead of microseconds
    #[arg(short, long)]
    pub milliseconds: bool,

    /// Print the time before each interval
    #[arg(short = 'T', long)]
    pub timestamp: bool,

    /// One JSON object an interval (cgscope.interval/1) instead of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistBy {
    /// Each cgroup, with all below it.
    Cgroup,
    /// Each NUMA node: the waits for its CPUs, how busy they are, who moves in and out, and the memory in use.
    Node,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Its configuration, TOML; without: /etc/cgscope/cgscope.toml if that is there, else the defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Only check the configuration
    #[arg(long)]
    pub check: bool,

    /// Say on standard error what is being done
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// One JSON object a finding instead of sentences
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Packaging {
    /// A directory that is not there yet
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// The shortest interval: reading 5,000 tasks takes about 10 ms.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// The longest interval: a day.
pub const LONGEST: Duration = Duration::from_secs(86_400);

/// Parses an interval like `500ms`, `5s`, `2m`, `1h`; a plain number is seconds.
fn interval(text: &str) -> Result<Duration, String> {
    bounded(text, LONGEST, "a duration looks like 500ms, 5s, 2m or 1h", "24h")
}

/// Parses a time like [`interval`], but also days, for commands that run for long.
fn long_time(text: &str) -> Result<Duration, String> {
    bounded(text, LONGEST * 365, "a duration looks like 30s, 5m, 1h or 7d", "365d")
}

fn bounded(text: &str, longest: Duration, looks: &str, longest_words: &str) -> Result<Duration, String> {
    let seconds = seconds(text).ok_or_else(|| format!("{looks}; a plain number is seconds"))?;
    if !seconds.is_finite() || seconds < SHORTEST.as_secs_f64() || seconds > longest.as_secs_f64() {
        return Err(format!("a duration lies between 10ms and {longest_words}"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command() {
        let mut all = Cli::command().term_width(100);
        all.build();
        let shown = |command: &&mut clap::Command| command.get_name() != "help" && !command.is_hide_set();
        let commands = all.get_subcommands_mut().filter(shown);
        let helps = commands.map(|command| {
            let name = command.get_name().to_owned();
            format!("# {name}\n\n{}", command.render_long_help())
        });
        insta::assert_snapshot!(helps.collect::<Vec<_>>().join("\n\n"));
    }

    #[test]
    fn the_commands_in_the_readme_are_commands() {
        let readme = include_str!("../../../README.md");
        let section = readme.split("## Use\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let code = section.lines().filter_map(|line| line.strip_prefix("    "));
        let mut seen = 0;
        for line in code {
            let line = line.trim_start_matches("sudo ");
            let words = line.split('#').next().unwrap_or_default().split_whitespace();
            let words = words.map(|word| word.trim_matches('\''));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            seen += 1;
        }
        assert!(seen >= 9, "{seen} commands");
    }

    #[test]
    fn a_column_that_is_not_there_is_refused_with_those_that_are() {
        let top = Cli::try_parse_from(["cgscope", "top", "--sort", "nonsense"]).expect("it is right");
        let Command::Top(top) = top.command else { panic!("another command") };
        for kind in ListKind::ALL.iter().copied() {
            let said = top.sort_of(kind).expect_err("there is no such column").sentence;
            let (_, columns) = said.split_once("it has ").unwrap_or_default();
            assert_eq!(columns.is_empty(), kind.columns().is_empty(), "{said}");
            assert!(!columns.is_empty() || said.contains("states has no columns"), "{said}");
        }
    }

    #[test]
    fn durations_take_units_and_plain_seconds() {
        for (text, ms) in
            [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("1", 1_000), ("0.5", 500), ("1h", 3_600_000)]
        {
            assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn nonsense_durations_are_refused() {
        for text in ["", "s", "abc", "-1", "0", "1e99", "nan", "inf", "5 s", "5x", "1ms", "25h", "5sm"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_left_running_takes_days() {
        assert_eq!(long_time("2d"), Ok(Duration::from_secs(2 * 86_400)));
        assert_eq!(long_time("90"), Ok(Duration::from_secs(90)));
        for text in ["", "0", "366d", "7w", "1dd", "-1d"] {
            assert!(long_time(text).is_err(), "{text}");
        }
    }
}
