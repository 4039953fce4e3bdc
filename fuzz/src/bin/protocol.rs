//! Fuzz target for the daemon's protocol: bytes that a client sends to the daemon, or that a daemon sends to a viewer.
#![no_main]

use cgscope_fuzz::{conversation::Said, memory};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

fuzz_target!(|input: &[u8]| {
    let Some(said) = Said::new(input) else { return };
    memory::bounded(said.bytes(), || said.receive());
});
