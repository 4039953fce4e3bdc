//! A recording on the screen: where it is, how it moves, and what is drawn of that.

pub(crate) mod draw;
pub mod player;
pub mod state;
#[cfg(test)]
mod tests;
pub mod time;
