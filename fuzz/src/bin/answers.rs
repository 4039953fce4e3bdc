//! Fuzz target for all results that are computed from recordings.
#![no_main]

use cgscope_fuzz::{answers, recordings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| answers::give(&recordings::recording(input)));
