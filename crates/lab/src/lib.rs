//! Loads that are made of more than a function, for the binary `workload`; the tests are in `tests/root`.

mod blocked;
mod prefork;

pub use blocked::blocked;
pub use prefork::{CALL, COMPUTE, PAUSE, prefork};
