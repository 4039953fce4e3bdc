//! An empty hook. It shows how much any program at this tracepoint costs.
#![no_std]
#![no_main]

mod object;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

#[btf_tracepoint(function = "sched_switch")]
fn on_switch(_: BtfTracePointContext) -> i32 {
    0
}
