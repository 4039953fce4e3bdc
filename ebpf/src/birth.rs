//! Tasks that are born.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::generated::bpf_get_current_task_btf, macros::btf_tracepoint, programs::BtfTracePointContext,
};
use cgscope_layout::wire::INHERIT;

use crate::{
    kernel::{Task, follow_all},
    maps::{create_storage, storage},
};

/// A task was made and cannot have run yet (`copy_process` after everything that can fail). Allocating is allowed.
#[btf_tracepoint(function = "task_newtask")]
pub fn on_new_task(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    if follow_all() {
        create_storage(task);
        return 0;
    }
    // SAFETY: the helper has no preconditions.
    let parent = Task::new(unsafe { bpf_get_current_task_btf() }.cast());
    let Some(parent) = storage(parent) else { return 0 };
    if parent.waits.flags & INHERIT == 0 {
        return 0;
    }
    if let Some(child) = create_storage(task) {
        child.waits.flags |= INHERIT;
    }
    0
}
