//! Limits how many task storages may be created. The kernel charges them to the memory cgroup of the map's owner, beyond its
//! limit if necessary (`GFP_ATOMIC`). Without our own limit, anybody who starts threads could get user space killed.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{
    burial::add,
    kernel::Task,
    maps::{room, storage},
};

#[inline(always)]
pub fn is_left() -> bool {
    // SAFETY: a word of a map value, which others may write at the same time.
    room().is_none_or(|room| unsafe { core::ptr::read_volatile(room) } as i64 > 0)
}

#[inline(always)]
pub fn take() {
    if let Some(room) = room() {
        add(room, u64::MAX);
    }
}

/// Adds one to the limit when the kernel frees a task with its storage. An exited task stays until its parent collects it.
#[btf_tracepoint(function = "sched_process_free")]
pub fn on_task_freed(ctx: BtfTracePointContext) -> i32 {
    if storage(Task::new(ctx.arg::<*const c_void>(0))).is_some()
        && let Some(room) = room()
    {
        add(room, 1);
    }
    0
}
