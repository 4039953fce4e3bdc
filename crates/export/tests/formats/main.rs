//! Tests that write each format, read the result back, and compare it with the intervals.
#![allow(missing_docs, reason = "tests are sentences")]

mod chains;
mod decode;
mod every;
mod hdr;
mod perfetto;
mod pprof;
mod support;
mod tables;
