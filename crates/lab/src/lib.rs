//! Larger loads for the `workload` binary. The tests in `tests/root` use these loads.

pub mod baselines;
mod blocked;
mod convoy;
mod prefork;
pub mod requests;

pub use blocked::blocked;
pub use convoy::convoy;
pub use prefork::{CALL, COMPUTE, PAUSE, prefork};
