//! `cgscope stat`: the counters of pidstat with the wait split, and a summary of a command like that of `time`.

mod command;
mod offcpu;
mod table;

use std::time::Duration;

use crate::{cli::Stat, exit::Result};

/// Blocked time of a thread between two stack walks: enough to show where most time was spent. A walk takes some microseconds.
const STACK_EVERY: Duration = Duration::from_millis(10);
/// The same for a command. It is shorter, because a command may be short and all its blocked time matters.
const STACK_EVERY_OF_COMMAND: Duration = Duration::from_millis(1);

pub async fn run(options: &Stat) -> Result {
    if options.select.command.is_empty() { table::run(options).await } else { command::run(options).await }
}

/// The blocked time of a thread between two stack walks.
fn stack_every(options: &Stat) -> Duration {
    match (&options.offcpu, options.select.command.is_empty()) {
        (Some(_), _) => offcpu::STACK_EVERY,
        (None, true) => STACK_EVERY,
        (None, false) => STACK_EVERY_OF_COMMAND,
    }
}
