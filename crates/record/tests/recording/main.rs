//! What a recording promises: it gives back what was written, up to the last whole frame, whatever happened.

mod damage;
mod format;
mod round_trip;
mod support;
mod writing;
