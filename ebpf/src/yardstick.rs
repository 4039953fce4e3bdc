//! The yardstick: a program at the same tracepoint as the hook, with one storage lookup and some loads and additions. `cargo
//! xtask overhead --check` compares the hook with this program, because a time in ns is valid only for one machine at one moment.
//! A change of this program makes the ratios in `benches/hook-cost.txt` invalid.
#![no_std]
#![no_main]

mod object;
mod task_storage;

use core::{
    ffi::c_void,
    ptr::{self, read_volatile, write_volatile},
};

use aya_ebpf::{
    bindings::BPF_LOCAL_STORAGE_GET_F_CREATE, macros::btf_tracepoint, programs::BtfTracePointContext,
};

use crate::task_storage::TaskStorageMap;

/// Number of words to which each switch adds other words.
const WORDS: usize = 16;

/// A storage value of 4 KiB, as large as the storage of the hook.
struct Storage {
    from: [u64; WORDS],
    to: [u64; WORDS],
    _rest: [u64; 400],
}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static TASKS: TaskStorageMap<Storage> = TaskStorageMap::NEW;

/// Creates the storage of each task of the load. The load starts after the yardstick. Memory may be allocated here.
#[btf_tracepoint(function = "task_newtask")]
fn on_new_task(ctx: BtfTracePointContext) -> i32 {
    TASKS.get(ctx.arg::<*mut c_void>(0), ptr::null_mut(), BPF_LOCAL_STORAGE_GET_F_CREATE.into());
    0
}

#[btf_tracepoint(function = "sched_switch")]
fn on_switch(ctx: BtfTracePointContext) -> i32 {
    if let Some(storage) = TASKS.get(ctx.arg::<*mut c_void>(2), ptr::null_mut(), 0) {
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
