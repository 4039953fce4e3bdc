//! Limits the memory of task storages. The kernel charges them to the memory cgroup of the map's owner, beyond its
//! limit if necessary (`GFP_ATOMIC`). Without our own limit, anybody who starts threads could get user space killed.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use cgscope_ledger::{
    verifier::add_atomic,
    wire::{SLEEPER_BYTES, TASK_BYTES},
};

use crate::{
    kernel::Task,
    maps::{memory_left, sleeper, storage},
};

#[inline(always)]
pub fn is_left(bytes: u64) -> bool {
    // SAFETY: a word of a map value, which others may write at the same time.
    memory_left()
        .is_none_or(|memory_left| unsafe { core::ptr::read_volatile(memory_left) } as i64 >= bytes as i64)
}

#[inline(always)]
pub fn take(bytes: u64) {
    if let Some(memory_left) = memory_left() {
        add_atomic(memory_left, bytes.wrapping_neg());
    }
}

/// Gives the memory back when the kernel frees a task with its storages. An exited task stays until its parent collects it.
#[btf_tracepoint(function = "sched_process_free")]
pub fn on_task_freed(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    let mut bytes = 0;
    if storage(task).is_some() {
        bytes += TASK_BYTES;
    }
    if sleeper(task).is_some() {
        bytes += SLEEPER_BYTES;
    }
    if let Some(memory_left) = memory_left() {
        add_atomic(memory_left, bytes);
    }
    0
}
