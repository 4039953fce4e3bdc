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

    /// A line for each process and below it for each of its threads, as pidstat has it (threads are selected by `--tid`)
    #[arg(short = 't', long, conflicts_with = "by")]
    pub threads: bool,

    /// A line for each of these [default: process]
    #[arg(long, value_name = "WHAT")]
    pub by: Option<StatBy>,

    /// Also those that did nothing
    #[arg(short, long)]
    pub all: bool,

    /// Also the cgroup of each process or thread
    #[arg(long)]
    pub with_cgroup: bool,

    /// Where time was spent off the CPU, by stack in the kernel: to FILE as a flame graph (.svg) or as folded stacks (any other
    /// ending); without FILE the largest are printed. Costs a walk of the stack for every 100 µs that a thread is blocked; without it
    /// there is one for every 10 ms, to tell the class
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub offcpu: Option<Option<PathBuf>>,

    /// With a command: write the summary to this file instead of standard error
    #[arg(short, long, value_name = "FILE", requires = "command")]
    pub output: Option<PathBuf>,

    /// One JSON object an interval (cgscope.interval/1) instead of text; with a command one object at its end
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatBy {
    /// Each thread, with the id of its process.
    Thread,
    /// Each process: its threads together.
    Process,
    /// Each cgroup, with all below it, and its quota.
    Cgroup,
}
