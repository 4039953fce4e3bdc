//! Reports created, removed and renamed cgroups to user space. So user space knows the name even of a cgroup that exists only
//! between two readings.
//!
//! The kernel calls these hooks under `trace_cgroup_path_lock` (`TRACE_CGROUP_PATH`, Linux 4.19 to 6.18). So only one of them
//! runs at a time on the whole host, and events are in order.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_RB_NO_WAKEUP,
    helpers::generated::{bpf_probe_read_kernel, bpf_probe_read_kernel_str, bpf_ringbuf_output},
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};
use cgscope_ledger::{
    Loss,
    wire::{CGROUP_PATH, CgroupEvent, cgroup_event},
};

use crate::{
    kernel::{Cgroup, argument},
    maps::{cgroup_event, cgroup_events, lost},
};

/// Reports a new cgroup. The kernel calls `cgroup_mkdir` after all steps that can fail, and before the cgroup can contain a task.
#[btf_tracepoint(function = "cgroup_mkdir")]
pub fn on_cgroup_made(ctx: BtfTracePointContext) -> i32 {
    emit(&ctx, cgroup_event::MADE)
}

/// Reports a removed cgroup. Tasks that are still in the cgroup will soon switch out for the last time.
#[btf_tracepoint(function = "cgroup_rmdir")]
pub fn on_cgroup_removed(ctx: BtfTracePointContext) -> i32 {
    emit(&ctx, cgroup_event::REMOVED)
}

/// Reports a renamed cgroup. A cgroup can be renamed only in a v1 hierarchy. The tracepoint passes the new path.
#[btf_tracepoint(function = "cgroup_rename")]
pub fn on_cgroup_renamed(ctx: BtfTracePointContext) -> i32 {
    emit(&ctx, cgroup_event::RENAMED)
}

#[inline(always)]
fn emit(ctx: &BtfTracePointContext, kind: u32) -> i32 {
    let cgroup = Cgroup::new(argument(ctx, 0));
    let id = cgroup.id();
    if id == 0 || !cgroup.is_in_our_hierarchy() {
        return 0;
    }
    let Some(event) = cgroup_event() else { return 0 };
    event.kind = kind;
    event.is_cut = 0;
    event.id = id;
    let path = if kind == cgroup_event::MADE { take_path(event, ctx.arg::<*const c_void>(1)) } else { 0 };
    // This is never true, but the verifier requires the check.
    if path > CGROUP_PATH as u64 {
        return 0;
    }
    let size = CgroupEvent::HEAD as u64 + path;
    // The event does not wake the reader, because the reader polls. A wakeup would cost more than the rest of this function.
    let flags = u64::from(BPF_RB_NO_WAKEUP);
    // SAFETY: `event` is a map value that has at least `size` bytes.
    if unsafe { bpf_ringbuf_output(cgroup_events(), (&raw mut *event).cast(), size, flags) } != 0 {
        lost(Loss::CgroupEventLost);
    }
    0
}

/// Copies the path into the event. Returns its length, including the NUL.
#[inline(always)]
fn take_path(event: &mut CgroupEvent, path: *const c_void) -> u64 {
    let into = event.path.as_mut_ptr();
    // SAFETY: the helper writes only bytes of the event, and checks the address that it reads from.
    let length = unsafe { bpf_probe_read_kernel_str(into.cast(), CGROUP_PATH as u32, path) };
    if length == CGROUP_PATH as i64 {
        let mut last = 0u8;
        // SAFETY: as above. If the path fits, its NUL is at this position.
        unsafe {
            let at = path.cast::<u8>().wrapping_add(CGROUP_PATH - 1);
            bpf_probe_read_kernel((&raw mut last).cast(), 1, at.cast());
        }
        event.is_cut = u32::from(last != 0);
    }
    if length < 0 {
        event.is_cut = 1;
        return 0;
    }
    length as u64
}
