//! `cgscope sample`: the state of every thread, read again and again, and grouped in the manner of psn.
//!
//! A [`ThreadReader`] reads all threads of one round: by a task iterator in the kernel, or from `/proc`. [`Sampling`] does it at
//! random moments, keeps the threads that a [`ThreadFilter`] wants, and counts each [`ThreadReading`] in a [`Tally`]. [`Rounds`]
//! are the result: a table, or one object.

mod filter;
mod group_by;
mod output;
mod reader;
mod rounds;
mod state;
mod tally;
#[cfg(test)]
mod tests;

pub use filter::ThreadFilter;
pub use group_by::GroupBy;
pub use reader::{ThreadReader, WantedFields};
pub use rounds::{RoundEnd, Rounds, Sampling, Schedule};
pub use state::ThreadState;
pub use tally::{GroupCell, GroupRow, GroupTable, Tally, ThreadNames, ThreadReading};
