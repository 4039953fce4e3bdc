//! The command line. [`Target`] interprets the arguments that select what to measure.

mod recordings;

use std::{path::PathBuf, time::Duration};

use cgscope_collect::Options;
use cgscope_model::{
    Selection,
    selection::{SELECTORS, Selector},
    units::seconds,
};
use cgscope_psn::GroupBy;
use cgscope_view::{
    app::{View, list::ListKind},
    columns::Column,
};
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::{child::Output, complete, exit::Error};

pub use cgscope_view::settings::{LONGEST, SHORTEST};
pub use recordings::{Diff, Export, Record, Replay, Report, Whatif};

/// Shows why a task, process, container or service is not on a CPU although it could run
///
/// cgscope records every wait of every task for a CPU, from one hook in the kernel's scheduler. The sum of the waits equals the
/// kernel's own sum, to the nanosecond.
#[derive(Debug, Parser)]
#[command(name = "cgscope", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show live who waits for a CPU, how long, why, and behind whom
    #[command(after_long_help = "\
Examples:
  sudo cgscope top                        everything on this host
  sudo cgscope top --pid 1234             one process, its threads and its future children
  sudo cgscope top --view culprits        who makes whom wait
  sudo cgscope top -b -n 3                three intervals as text")]
    Top(Top),
    /// Print histograms of waits, like runqlat, with each bar split by cause
    ///
    /// The letters in a bar show the causes of its waits: T throttled (quota used up), o behind tasks of the same cgroup,
    /// # behind other cgroups, k behind kernel threads, . wakeup (no task ran), ? unattributed. The lines below a histogram list the
    /// causes with their figures, the cgroups whose quota was used up, and the tasks that ran during the waits.
    #[command(after_long_help = "\
Examples:
  sudo cgscope hist 1 10 -P               every second, ten times, one histogram per process
  sudo cgscope hist 5 1 --by cgroup       why the tasks of each cgroup waited, over five seconds
  sudo cgscope hist -- make -j8           one command and its children")]
    Hist(Hist),
    /// Print a line per process or cgroup, like pidstat, with %wait split by cause
    ///
    /// With a command, prints one summary when the command ends, as the command `time` does.
    #[command(after_long_help = "\
Examples:
  sudo cgscope stat 1                     every second, a line per process
  sudo cgscope stat 5 1 --by cgroup       a line per cgroup, with its quota, over five seconds
  sudo cgscope stat -- make -j8           where the time of a command went")]
    #[command(mut_arg("tid", |tid| tid.short(None)))]
    Stat(Stat),
    /// Count the states of threads, like psn: on a CPU, runnable, throttled, blocked
    ///
    /// Reads the states of all threads many times, at random moments, and counts them by group. The column `samples` shows how
    /// often a thread of the group was seen; `avg_threads` shows the average number of threads in the group. Columns for -g and
    /// -G: comm (digits as *), tgid, tid, state, syscall, wchan, kstack, cgroup, node, cpu, username, exe, cmdline.
    #[command(after_long_help = "\
Examples:
  sudo cgscope sample                     five seconds, by command name and state
  sudo cgscope sample -G syscall,wchan    also by system call and kernel function
  sudo cgscope sample -p 1234 -d 30       one process for 30 seconds")]
    Sample(Sample),
    /// Record waits to a file, for report, replay, diff and export
    #[command(after_long_help = "\
Examples:
  sudo cgscope record -o app.rec -d 1m    one minute
  sudo cgscope record --rotate-age 1h --keep-files 24
                                          the last 24 hours, one file per hour
  sudo cgscope record --keep 2m --trigger 'p99>10ms'
                                          the two minutes around each moment with long waits")]
    Record(Record),
    /// Print what happened in a recording: findings and tables
    #[command(after_long_help = "\
Examples:
  cgscope report app.rec                  findings and tables as text
  cgscope report app.rec --html app.html  one page for the browser, with charts")]
    Report(Report),
    /// Play a recording on the screen of `cgscope top`
    #[command(after_long_help = "\
Examples:
  cgscope replay app.rec                  from the start; the space bar pauses
  cgscope replay app.rec --at 14:03       from 14:03 UTC")]
    Replay(Replay),
    /// Compare two recordings and show which changes are more than noise
    ///
    /// Prints each figure of both recordings and its change, the largest change first. To find out how large a change can be by
    /// chance, cgscope cuts both recordings into blocks of time and, many times, divides the blocks at random into two groups. A
    /// change is more than noise if it is large enough to matter and if, in fewer than 1% of these divisions, any figure of the
    /// table changes as clearly. See docs/diff.md.
    #[command(after_long_help = "\
Examples:
  cgscope diff before.rec after.rec         the largest changes
  cgscope diff --json before.rec after.rec  every figure that was compared")]
    Diff(Diff),
    /// Find out which CPU quota would have been enough
    ///
    /// Without FILE, measures this host. Simulates other quotas with the demand of a cgroup. Each figure has two bounds: work arrives
    /// when it did, or everything moves later by the time that tasks were throttled. There is no advice if the simulation of the quota
    /// in force does not fit what the kernel counted. See docs/whatif.md.
    #[command(after_long_help = "\
Examples:
  sudo cgscope whatif                     measure this host for 30 seconds
  sudo cgscope whatif -d 2m --unit web.service
  cgscope whatif app.rec                  the cgroups that were throttled longest
  cgscope whatif app.rec --unit web.service --quota 0.5..2
  cgscope whatif app.rec --pod shop/cart --target 0.1%")]
    #[command(mut_args(|option| match option.get_id().as_str() {
        "mode" | "connect" | "runtime" | "verbose" => option.conflicts_with("file"),
        _ => option,
    }))]
    Whatif(Whatif),
    /// Convert a recording to the format of another tool
    #[command(after_long_help = "\
Examples:
  cgscope export app.rec -f perfetto -o app.pftrace
  cgscope export app.rec -f csv -o -")]
    Export(Export),
    /// Run the daemon: measure for all users and serve metrics to Prometheus
    ///
    /// The daemon loads BPF and then drops its privileges. Other users can run `top`, `hist`, `stat` and `record` through its Unix
    /// socket. Whoever may connect sees all tasks. It serves metrics over HTTP. SIGHUP reloads its configuration. See
    /// docs/serve.md.
    #[command(after_long_help = "\
Examples:
  sudo cgscope serve                      with /etc/cgscope/cgscope.toml
  cgscope serve --check --config new.toml")]
    Serve(Serve),
    /// Check what this host supports, what is missing, and how to enable it
    #[command(after_long_help = "\
Examples:
  sudo cgscope doctor                     each check, and what to do
  cgscope doctor --json")]
    Doctor(Doctor),
    /// Write the manual pages and shell completions of this binary, for packages
    #[command(hide = true)]
    Packaging(Packaging),
}

#[derive(Debug, Default, Args)]
pub struct Select {
    #[command(flatten)]
    pub selectors: Selectors,

    /// Also show on which NUMA nodes the memory of the selected processes lies
    ///
    /// Reads the 16 processes with the most CPU time, at most once a second. The kernel walks the page tables of each process,
    /// which takes a few milliseconds per GiB of 4 KiB pages. The process cannot map memory during the walk. All walks together
    /// take at most 1 % of the time.
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub memory: bool,

    /// Also count for whom tasks sleep, and what those who woke them did meanwhile
    ///
    /// Takes about three times the cost of the hook alone. See docs/chains.md.
    #[arg(long, hide_short_help = true, help_heading = HEADING, conflicts_with = "tid")]
    pub chains: bool,

    /// Start the command as this user
    #[arg(long, value_name = "NAME", requires = "command", hide_short_help = true, help_heading = HEADING)]
    pub user: Option<String>,

    #[command(flatten)]
    pub measure: Measure,

    /// Start this command, measure it and its children until it exits
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pid", "tid"], hide_short_help = true)]
    pub command: Vec<String>,
}

// No doc comment: clap would print it in the help of each command.
#[derive(Clone, Debug, Default, Args)]
pub struct Measure {
    /// How to measure
    #[arg(long, value_name = "MODE", default_value = "auto", hide_short_help = true)]
    pub mode: ModeChoice,

    /// Connect to the daemon (`cgscope serve`) on this socket
    ///
    /// Shows what the daemon lets you see. Default: /run/cgscope.sock, if it exists and you lack the privileges to measure.
    #[arg(long, value_name = "SOCKET", conflicts_with = "mode", hide_short_help = true)]
    pub connect: Option<PathBuf>,

    /// Where the container runtime names containers: `auto`, the path of a socket, or empty for nowhere
    #[arg(long, value_name = "SOCKET", default_value = "auto", hide_short_help = true)]
    pub runtime: String,

    /// Show paths of cgroups instead of the names of their units, pods and containers
    #[arg(long, hide_short_help = true)]
    pub paths: bool,

    /// Report progress on standard error
    #[arg(short, long, hide_short_help = true)]
    pub verbose: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Target {
    pub options: Options,
    pub measure: Measure,
    pub command: Vec<String>,
    pub user: Option<String>,
    pub output: Output,
    /// Behave like `time`: pass signals on to the command, and return 126 or 127 if it could not be executed.
    pub stands_aside: bool,
}

impl Target {
    /// Checks the arguments as far as possible without the host.
    pub fn new(select: &Select) -> Result<Self, Error> {
        let selection = select.selectors.selection().map_err(Error::could_not_run)?;
        if select.memory && selection.follows_all() && select.command.is_empty() {
            return Err(Error::could_not_run(
                "--memory reads only chosen processes: select them with --pid or --tid, or start a command",
            ));
        }
        let Select { memory, chains, .. } = *select;
        let options = Options { selection, memory, chains, demand: true, ..Options::default() };
        let (command, user) = (select.command.clone(), select.user.clone());
        Ok(Self { options, command, user, ..Self::whole_host(&select.measure) })
    }

    pub fn whole_host(measure: &Measure) -> Self {
        let options = Options { demand: true, ..Options::default() };
        Self { options, measure: measure.clone(), ..Self::default() }
    }

    pub fn words(&self) -> String {
        if !self.command.is_empty() {
            return format!("command {}", self.command.join(" "));
        }
        self.options.selection.words()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeChoice {
    /// Exact if this host supports it; else coarse, and the reason is printed
    #[default]
    Auto,
    /// Exact, from the hook in the kernel; an error if this host does not support it
    Bpf,
    /// From /proc and cgroup files, without privileges: sums of waits, no histograms, and throttling as the only cause
    Coarse,
}

#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub select: Select,

    /// Print text to standard output instead of a screen
    #[arg(short, long)]
    pub batch: bool,

    /// With -b: print one JSON object per line
    #[arg(long, hide_short_help = true, requires = "batch", conflicts_with_all = ["view", "sort", "filter"])]
    pub json: bool,

    /// With -b: include tasks and cgroups that did nothing
    #[arg(short, long, hide_short_help = true, requires = "batch")]
    pub all: bool,

    /// Also record what is shown, for `cgscope replay`
    ///
    /// An existing file is renamed to FILE.old.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// End after this number of intervals
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,

    /// Length of an interval: 500ms, 5s, 2m
    ///
    /// A plain number is in seconds. Default: 1s, or the value in the settings.
    #[arg(short, long, value_name = "SECS", value_parser = interval)]
    pub delay: Option<Duration>,

    /// The first view; with -b, only overview or cgroups
    #[arg(long, value_name = "VIEW", value_parser = view)]
    pub view: Option<View>,

    /// Sort by this column, like p99 or %CPU
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,

    /// Show only rows whose name, path or id contains this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
}

impl Top {
    /// Returns the column by which to sort a list.
    pub fn sort_of(&self, kind: ListKind) -> Result<Option<Column>, Error> {
        let Some(title) = &self.sort else { return Ok(None) };
        let found = Column::by_title(title, kind.columns());
        found.map(Some).ok_or_else(|| {
            let titles: Vec<&str> = kind.columns().iter().map(|column| column.title()).collect();
            let (name, titles) = (kind.name(), titles.join(", "));
            Error::could_not_run(if titles.is_empty() {
                format!("--sort {title:?}: the list of {name} has no columns to sort by; choose another view with --view")
            } else {
                format!("--sort: the list of {name} has no column {title:?}; its columns are {titles}")
            })
        })
    }
}

fn view(text: &str) -> Result<View, String> {
    View::by_name(text).ok_or_else(|| {
        let names: Vec<&str> = View::ALL.iter().map(|view| view.name()).collect();
        format!("the views are {}", names.join(", "))
    })
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Rhythm {
    /// Print after each interval: 500ms, 5s, 2m
    ///
    /// A plain number is in seconds. Without an interval, prints once at the end, for the whole time.
    #[arg(value_parser = interval)]
    pub interval: Option<Duration>,

    /// End after this number of intervals
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

    /// One histogram per process
    #[arg(short = 'P', long, group = "per")]
    pub per_process: bool,

    /// One histogram per thread
    #[arg(short = 'L', long, group = "per")]
    pub per_thread: bool,

    /// One histogram per CPU
    #[arg(short = 'C', long, group = "per")]
    pub per_cpu: bool,

    /// One histogram per cgroup or NUMA node
    #[arg(long, value_name = "WHAT", group = "per")]
    pub by: Option<HistBy>,

    /// Rows in milliseconds instead of microseconds
    #[arg(short, long, hide_short_help = true)]
    pub milliseconds: bool,

    /// Print the time before each interval
    #[arg(short = 'T', long, hide_short_help = true)]
    pub timestamp: bool,

    /// Print one JSON object (cgscope.interval/1) per interval
    #[arg(long)]
    pub json: bool,

    /// With --json: include tasks that did nothing
    #[arg(short, long, hide_short_help = true, requires = "json")]
    pub all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HistBy {
    /// Each cgroup with its descendants.
    Cgroup,
    /// Each NUMA node: waits for its CPUs, their load, tasks that move in and out, and memory in use.
    Node,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file (TOML)
    ///
    /// Default: /etc/cgscope/cgscope.toml if it exists, else built-in defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check the configuration and exit
    #[arg(long)]
    pub check: bool,

    /// Report progress on standard error
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print one JSON object per check
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Packaging {
    /// Directory to create
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Parses an interval like `500ms`, `5s`, `2m` or `1h`. A plain number is in seconds.
fn interval(text: &str) -> Result<Duration, String> {
    bounded(text, LONGEST, "a duration looks like 500ms, 5s, 2m or 1h", "24h")
}

/// Parses the length of a measurement whose samples are kept in memory.
fn short_time(text: &str) -> Result<Duration, String> {
    bounded(text, Duration::from_secs(600), "a duration looks like 5s or 2m", "10m")
}

/// Parses a duration like [`interval`]. Also accepts days, for commands that run for a long time.
fn long_time(text: &str) -> Result<Duration, String> {
    bounded(text, LONGEST * 365, "a duration looks like 30s, 5m, 1h or 7d", "365d")
}

fn bounded(text: &str, longest: Duration, looks: &str, longest_words: &str) -> Result<Duration, String> {
    let seconds = seconds(text).ok_or_else(|| format!("{looks}; a plain number is seconds"))?;
    if !seconds.is_finite() || seconds < SHORTEST.as_secs_f64() || seconds > longest.as_secs_f64() {
        return Err(format!("a duration must be between 10ms and {longest_words}"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[derive(Debug, Args)]
pub struct Stat {
    #[command(flatten)]
    pub rhythm: Rhythm,

    #[command(flatten)]
    pub select: Select,

    /// Also print a line per thread, below its process
    ///
    /// Like pidstat -t. To select threads, use --tid.
    #[arg(short = 't', long, conflicts_with = "by")]
    pub threads: bool,

    /// What a line stands for [default: process]
    #[arg(long, value_name = "WHAT")]
    pub by: Option<StatBy>,

    /// Include tasks and cgroups that did nothing
    #[arg(short, long)]
    pub all: bool,

    /// Also print the cgroup of each process or thread
    #[arg(long, hide_short_help = true)]
    pub with_cgroup: bool,

    /// Show off-CPU time by kernel stack
    ///
    /// Writes a flame graph if FILE ends in .svg, else folded stacks. Without FILE, prints the largest stacks. Cost: one stack
    /// walk per 100 µs that a thread is blocked. Without this option there is one walk per 10 ms (with a command: 1 ms), which is
    /// enough to show the kind of blocking.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub offcpu: Option<Option<PathBuf>>,

    /// With a command: write the summary to this file instead of standard error
    #[arg(short, long, hide_short_help = true, value_name = "FILE", requires = "command")]
    pub output: Option<PathBuf>,

    /// Print one JSON object (cgscope.interval/1) per interval
    ///
    /// With a command, prints one object when the command ends.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatBy {
    /// Each thread.
    Thread,
    /// Each process, with its threads added up.
    Process,
    /// Each cgroup with its descendants, and its quota.
    Cgroup,
}

/// The heading of the selectors in the help.
const HEADING: &str = "Selection (default: the whole host)";

/// The given selectors, each with its value as text.
#[derive(Clone, Debug, Default)]
pub struct Selectors(pub Vec<(&'static Selector, String)>);

impl Selectors {
    pub fn selection(&self) -> Result<Selection, String> {
        let mut selection = Selection::default();
        self.0.iter().try_for_each(|(selector, text)| (selector.set)(&mut selection, text))?;
        Ok(selection)
    }
}

/// Returns the option of a selector. clap checks each id, so that its error names the bad one. Other selectors are checked later.
fn argument(selector: &'static Selector) -> Arg {
    let parse = |text: &str| (selector.set)(&mut Selection::default(), text).map(|()| text.to_owned());
    let argument = Arg::new(selector.name)
        .long(selector.name)
        .value_name(selector.value)
        .help(selector.help)
        .help_heading(HEADING)
        // Keeps the short help within 24 lines.
        .hide_short_help(matches!(selector.name, "tid" | "comm" | "cpu" | "node"))
        .action(ArgAction::Set);
    let argument = complete::of_selector(selector, argument);
    if selector.is_ids {
        let argument = argument.short(selector.name.chars().next());
        argument.action(ArgAction::Append).value_delimiter(',').value_parser(parse)
    } else {
        argument
    }
}

impl Args for Selectors {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(SELECTORS.iter().map(argument))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Selectors {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |selector: &'static Selector| {
            let texts = matches.get_many::<String>(selector.name).into_iter().flatten();
            texts.map(move |text| (selector, text.clone()))
        };
        Ok(Self(SELECTORS.iter().flat_map(typed).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Sample {
    /// How long to sample [default: 5s, or until CMD ends]
    #[arg(short, long, value_name = "SECS", value_parser = interval)]
    pub duration: Option<Duration>,

    /// How often to read all threads, per second
    ///
    /// The reader runs with SCHED_FIFO priority, unless one reading takes more than 5 ms. Reading takes at most 10% of one CPU: if
    /// necessary, readings are skipped.
    #[arg(long, visible_alias = "sample-hz", value_name = "HZ", default_value = "20", value_parser = hertz)]
    pub hz: f64,

    /// Also group by these columns
    ///
    /// In addition to comm and state, or to the columns of --group-by.
    #[arg(short = 'G', long, value_name = "COLS", value_delimiter = ',', value_parser = column)]
    pub append_group_by: Vec<GroupBy>,

    /// Group only by these columns
    #[arg(short, long, value_name = "COLS", value_delimiter = ',', value_parser = column)]
    pub group_by: Vec<GroupBy>,

    /// Include threads that sleep, are idle or have exited
    #[arg(short, long)]
    pub all_states: bool,

    /// Print one JSON object (cgscope.sample/1)
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub select: Select,
}

impl Sample {
    pub fn columns(&self) -> Vec<GroupBy> {
        let own = if self.group_by.is_empty() { &GroupBy::DEFAULT[..] } else { &self.group_by };
        own.iter().chain(&self.append_group_by).copied().collect()
    }
}

fn column(text: &str) -> Result<GroupBy, String> {
    GroupBy::by_name(text).ok_or_else(|| {
        let names: Vec<&str> = GroupBy::ALL.iter().map(|column| column.name()).collect();
        format!("the columns are {}", names.join(", "))
    })
}

/// Maximum rate. Reading a few hundred threads at this rate takes a tenth of a CPU.
const MOST_HZ: f64 = 1_000.0;

fn hertz(text: &str) -> Result<f64, String> {
    let hz: f64 = text.parse().map_err(|_| "the rate must be a number like 20 or 0.5".to_owned())?;
    let is_possible = (0.01..=MOST_HZ).contains(&hz);
    if is_possible { Ok(hz) } else { Err(format!("the rate must be between 0.01 and {MOST_HZ}")) }
}

#[cfg(test)]
mod tests;
