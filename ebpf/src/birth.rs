//! Creates the storages of new tasks.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_layout::wire::{FOLLOWED, INHERIT};

use crate::{
    kernel::{Task, follow_all, is_shared},
    maps::{create_storage, storage},
};

/// Handles a task that exists but cannot have run yet (`copy_process` after everything that can fail). Allocating is allowed
/// here.
#[btf_tracepoint(function = "task_newtask")]
pub fn on_new_task(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    if follow_all() {
        let child = create_storage(task);
        if is_shared()
            && let (Some(child), Some(parent)) = (child, storage(Task::current()))
        {
            child.waits.flags |= parent.waits.flags & FOLLOWED;
        }
        return 0;
    }
    let Some(parent) = storage(Task::current()) else { return 0 };
    if parent.waits.flags & INHERIT == 0 {
        return 0;
    }
    if let Some(child) = create_storage(task) {
        child.waits.flags |= INHERIT;
    }
    0
}
