//! `cgscope stat`: the counters of pidstat with the wait split, and a summary of a command in the manner of `time`.

mod command;
mod offcpu;
mod table;

use std::time::Duration;

use crate::{cli::Stat, exit::Result};

/// A walk of a stack, some microseconds, for so much time blocked: enough to tell what most of it was spent on.
const STACK_EVERY: Duration = Duration::from_millis(10);
/// The same for a command, which may be short: all that it does counts.
const STACK_EVERY_OF_COMMAND: Duration = Duration::from_millis(1);

/// Runs the command.
pub async fn run(options: &Stat) -> Result {
    if options.select.command.is_empty() { table::run(options).await } else { command::run(options).await }
}

/// A walk of a stack for so much time blocked.
fn stack_every(options: &Stat) -> Duration {
    match (&options.offcpu, options.select.command.is_empty()) {
        (Some(_), _) => offcpu::STACK_EVERY,
        (None, true) => STACK_EVERY,
        (None, false) => STACK_EVERY_OF_COMMAND,
    }
}
