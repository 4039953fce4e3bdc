//! Room for the storages of tasks. The kernel charges them to the memory cgroup of who made their table, past its limit if need be
//! (`GFP_ATOMIC`): without a bound of our own anybody could have user space killed by starting threads.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{
    burial::add,
    kernel::Task,
    maps::{room, storage},
};

/// True if there is room for one more.
#[inline(always)]
pub fn is_left() -> bool {
    // SAFETY: a word of a map value, which others write meanwhile.
    room().is_none_or(|room| unsafe { core::ptr::read_volatile(room) } as i64 > 0)
}

/// One was made.
#[inline(always)]
pub fn take() {
    if let Some(room) = room() {
        add(room, u64::MAX);
    }
}

/// Nothing refers to a task any more: its storage goes with it. One that has only exited may stay for as long as its parent likes.
#[btf_tracepoint(function = "sched_process_free")]
pub fn on_task_freed(ctx: BtfTracePointContext) -> i32 {
    if storage(Task::new(ctx.arg::<*const c_void>(0))).is_some()
        && let Some(room) = room()
    {
        add(room, 1);
    }
    0
}
