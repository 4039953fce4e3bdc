//! The yardstick: a program at the same tracepoint as the hook, with one storage lookup and some loads and additions. `cargo
//! xtask overhead --check` compares the hook with this program, because a time in ns is valid only for one machine at one moment.
//! A change of this program makes the ratios in `benches/hook-cost.txt` invalid.
#![no_std]
#![no_main]

mod object;

use core::{
    ffi::c_void,
    ptr::{self, read_volatile, write_volatile},
};

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE},
    helpers::generated::bpf_task_storage_get,
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};

/// Number of words to which each switch adds other words.
const WORDS: usize = 16;

/// A storage value of 4 KiB, as large as the storage of the hook.
struct Storage {
    from: [u64; WORDS],
    to: [u64; WORDS],
    _rest: [u64; 400],
}

/// A BPF map for task storage, as in `maps.rs`.
#[repr(C)]
struct TaskStorageMap {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const Storage,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: no code reads or writes this value as memory. The kernel protects the map itself.
unsafe impl Sync for TaskStorageMap {}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static TASKS: TaskStorageMap = TaskStorageMap {
    r#type: ptr::null(),
    key: ptr::null(),
    value: ptr::null(),
    max_entries: ptr::null(),
    map_flags: ptr::null(),
};

#[inline(always)]
fn storage(task: *const c_void, flags: u64) -> Option<&'static mut Storage> {
    // SAFETY: the helper expects this map and task. The value exists as long as the task.
    unsafe {
        let map = (&raw const TASKS).cast_mut().cast();
        bpf_task_storage_get(map, task.cast_mut().cast(), ptr::null_mut(), flags).cast::<Storage>().as_mut()
    }
}

/// Creates the storage of each task of the load. The load starts after the yardstick. Memory may be allocated here.
#[btf_tracepoint(function = "task_newtask")]
fn on_new_task(ctx: BtfTracePointContext) -> i32 {
    storage(ctx.arg::<*const c_void>(0), BPF_LOCAL_STORAGE_GET_F_CREATE.into());
    0
}

#[btf_tracepoint(function = "sched_switch")]
fn on_switch(ctx: BtfTracePointContext) -> i32 {
    if let Some(storage) = storage(ctx.arg::<*const c_void>(2), 0) {
        for (from, to) in storage.from.iter().zip(&mut storage.to) {
            // SAFETY: the pointers come from references. The accesses are volatile, so that each word takes a load, an addition
            // and a store.
            unsafe {
                write_volatile(to, read_volatile(to).wrapping_add(read_volatile(from)).wrapping_add(1))
            };
        }
    }
    0
}
