//! Fuzz target for the reader of recordings.
#![no_main]

use cgscope_fuzz::{memory, recordings};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

fuzz_target!(|input: &[u8]| {
    let file = recordings::recording(input);
    memory::bounded(file.len(), || recordings::read(&file));
});
