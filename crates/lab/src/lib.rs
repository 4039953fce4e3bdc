//! The larger loads of the `workload` binary, which the tests in `tests/root` start.

pub mod baselines;
mod blocked;
mod convoy;
mod prefork;
pub mod published;
pub mod requests;
pub mod wakes;

pub use blocked::blocked;
pub use convoy::convoy;
pub use prefork::{CALL, COMPUTE, PAUSE, prefork};
