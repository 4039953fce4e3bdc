//! What threads do, from looking at all of them again and again: each round a [`ThreadReading`] of each, counted in a [`Tally`],
//! and printed as a [`Table`] in the manner of psn.

mod column;
mod state;
mod tally;

pub use column::Column;
pub use state::ThreadState;
pub use tally::{Cell, Names, Row, Table, Tally, ThreadReading, folded};
