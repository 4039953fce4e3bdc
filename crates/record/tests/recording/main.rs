//! Tests that, after any failure, a recording has all that was written up to the last complete frame.

mod damage;
mod format;
mod round_trip;
mod support;
mod writing;
