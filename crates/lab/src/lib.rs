//! Larger loads for the `workload` binary. The tests that use them are in `tests/root`.

mod blocked;
mod prefork;
pub mod requests;

pub use blocked::blocked;
pub use prefork::{CALL, COMPUTE, PAUSE, prefork};
