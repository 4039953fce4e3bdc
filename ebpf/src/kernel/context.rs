//! In which context the kernel runs a program.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;

use cgscope_ledger::host::Task as _;

use super::{RunQueue, Task};

/// Bit of the preempt count that is set while a CPU serves a soft interrupt. (The bits above it also count sections with disabled
/// soft interrupts. All versions.)
const SERVING_SOFT_INTERRUPT: u32 = 1 << 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A task runs, in the kernel.
    Task,
    SoftInterrupt,
    /// An interrupt, or a non-maskable one.
    Interrupt,
    /// The kernel does not show it.
    Unknown,
}

/// Returns the context of the current program. A task of a kernel with PREEMPT_RT may seem to run while it serves a soft
/// interrupt.
#[inline(always)]
pub fn context() -> Context {
    // The variables of a CPU are at fixed distances from each other, in all kernels. The run queue is one of them.
    let base = match small_setting!(preempt_count_in) {
        0 => return Context::Unknown,
        1 => Task::current().run_queue().map_or(0, RunQueue::address),
        _ => Task::current().handle(),
    };
    let mut count = 0u32;
    let from = base.wrapping_add(setting!(preempt_count_at)) as *const c_void;
    // SAFETY: the helper writes four bytes of `count`, and checks the address that it reads from.
    unsafe { bpf_probe_read_kernel((&raw mut count).cast(), 4, from) };
    if count & setting!(interrupt_bits) as u32 != 0 {
        Context::Interrupt
    } else if count & SERVING_SOFT_INTERRUPT != 0 {
        Context::SoftInterrupt
    } else {
        Context::Task
    }
}
