//! A recording returns what was written, up to the last complete frame, whatever happened.

mod damage;
mod format;
mod round_trip;
mod support;
mod writing;
