//! Creates the storage of each new task.

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_ledger::wire::{FOLLOWED, INHERIT, serial};

use crate::{
    kernel::{Task, argument, follow_all, is_shared},
    maps::{create_storage, flags},
    slots::{self, storage},
};

/// Handles a new task that has certainly not run yet (in `copy_process`, after all steps that can fail). Memory may be allocated
/// here.
#[btf_tracepoint(function = "task_newtask")]
pub fn on_new_task(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(argument(&ctx, 0));
    // The program that frees the slots may have missed an earlier task. (A reader may already have found the new task.)
    if storage(task).is_some_and(|storage| storage.serial != serial(task.tid(), task.start_ns())) {
        slots::free(task);
    }
    if follow_all() {
        if let Some(child) = create_storage(task)
            && is_shared()
        {
            child.flags |= flags(Task::current()) & FOLLOWED;
        }
        return 0;
    }
    if flags(Task::current()) & INHERIT == 0 {
        return 0;
    }
    if let Some(child) = create_storage(task) {
        child.flags |= INHERIT;
    }
    0
}
