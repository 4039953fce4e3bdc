//! Builds, tests and measures cgscope.
fn main() {}
