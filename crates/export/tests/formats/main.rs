//! What each format holds: written, read back, and compared with the Intervals.
#![allow(missing_docs, reason = "tests are sentences")]

mod decode;
mod every;
mod hdr;
mod perfetto;
mod pprof;
mod support;
mod tables;
