//! The replay of a recording on the screen: its position, its movement, and what the screen shows of both.

pub(crate) mod draw;
pub mod player;
pub mod state;
#[cfg(test)]
mod tests;
pub mod time;
