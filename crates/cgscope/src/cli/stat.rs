//! The arguments of `cgscope stat`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Rhythm, Select};

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
