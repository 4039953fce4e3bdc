//! `cgscope sample`: samples the state of every thread repeatedly, and groups the threads as psn does.
//!
//! A [`ThreadReader`] reads all threads of a round, with a task iterator in the kernel or from `/proc`. [`Sampling`] reads rounds
//! at random moments, and counts the threads that pass a [`ThreadFilter`] in a [`Tally`]. The result is [`Rounds`], printed as a
//! table or as one JSON object.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

mod reader;
mod rounds;
mod tally;
#[cfg(test)]
mod tests;

pub use reader::{ThreadReader, WantedFields};
pub use rounds::{RoundEnd, Rounds, Sampling, Schedule};
pub use tally::{GroupBy, Tally, ThreadFilter};

use tally::{GroupCell, GroupRow, ThreadNames, ThreadReading, ThreadState};
