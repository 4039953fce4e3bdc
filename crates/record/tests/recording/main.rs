//! Tests that a recording returns what was written, up to the last complete frame, after any failure.

mod damage;
mod format;
mod round_trip;
mod support;
mod writing;
