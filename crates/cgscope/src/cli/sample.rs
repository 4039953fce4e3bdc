//! The arguments of `cgscope sample`.

use std::time::Duration;

use cgscope_psn::GroupBy;
use clap::Args;

use super::{Select, interval};

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

/// The maximum rate: reading a few hundred threads at this rate takes a tenth of a CPU.
const MOST_HZ: f64 = 1_000.0;

fn hertz(text: &str) -> Result<f64, String> {
    let hz: f64 = text.parse().map_err(|_| "the rate must be a number like 20 or 0.5".to_owned())?;
    let is_possible = (0.01..=MOST_HZ).contains(&hz);
    if is_possible { Ok(hz) } else { Err(format!("the rate must be between 0.01 and {MOST_HZ}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(words: &[&str]) -> Sample {
        let all = ["cgscope", "sample"].iter().chain(words);
        let Command::Sample(sample) = Cli::parse_from(all).command else { panic!() };
        sample
    }

    #[test]
    fn columns_are_added_or_replaced() {
        assert_eq!(parsed(&[]).columns(), GroupBy::DEFAULT);
        assert_eq!(
            parsed(&["-G", "syscall,wchan"]).columns(),
            [GroupBy::Comm, GroupBy::State, GroupBy::Syscall, GroupBy::Wchan]
        );
        assert_eq!(parsed(&["-g", "pid", "-G", "state"]).columns(), [GroupBy::Tgid, GroupBy::State]);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [["--hz", "0"], ["--hz", "nan"], ["--hz", "2000"], ["-G", "colour"], ["-d", "0"]] {
            assert!(Cli::try_parse_from(["cgscope", "sample"].iter().chain(&words)).is_err(), "{words:?}");
        }
    }
}
