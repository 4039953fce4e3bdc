//! Writes each format, reads it back, and compares the result with the intervals.
#![allow(missing_docs, reason = "tests are sentences")]

mod decode;
mod every;
mod hdr;
mod perfetto;
mod pprof;
mod support;
mod tables;
