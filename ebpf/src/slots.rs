//! The storages of tasks. Most are in an array, [`SLOTS`]: each task may use only the slot of its address, so that the hook finds
//! it without a search. If another task has this slot, the storage is in the kernel's task storage, [`TASKS`].
//!
//! A storage is created under a lock of the slot, for which no program waits. So only one program creates the storage of a task. The
//! slot is free again when the kernel frees the task.

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_F_MMAPABLE, BPF_LOCAL_STORAGE_GET_F_CREATE},
    btf_maps::Array,
    macros::btf_map,
};
use cgscope_ledger::{
    host::Task as _,
    verifier::{exchange, get, set},
    wire::{TaskStorage, serial, slot_of},
};

use crate::{
    kernel::{Task, address_of, last_slot, slot_factor},
    maps::{copy, copy_zeroes},
    task_storage::TaskStorageMap,
};

/// Figures of the tasks that have no slot.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static TASKS: TaskStorageMap<TaskStorage> = TaskStorageMap::NEW;

/// A slot begins with a cache line.
#[repr(C, align(64))]
struct Slot {
    /// [`TaskStorage::task`] is 0 while the slot is free.
    storage: TaskStorage,
    /// Not 0 while a program creates the storage of a task that may use this slot.
    lock: u64,
}

/// Figures of tasks, at the place of their address. The loader sets the number of entries, a power of two. The kernel aligns such
/// an array to a page.
#[btf_map]
static SLOTS: Array<Slot, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Returns the only slot that a task may use. It never changes, not even in `execve`. Tasks that start one after another mostly have
/// neighbouring slots, so their slots are in few pages.
#[inline(always)]
fn slot(task: Task) -> Option<&'static mut Slot> {
    let place = slot_of(address_of(task), slot_factor());
    // SAFETY: the map value exists until this program returns.
    SLOTS.get_ptr_mut(place as u32 & last_slot()).map(|slot| unsafe { &mut *slot })
}

/// Returns the storage of a task, if the task has run or waited since cgscope began to follow it. This function never creates a
/// storage.
#[inline(always)]
pub fn storage(task: Task) -> Option<&'static mut TaskStorage> {
    if let Some(slot) = slot(task)
        && get(&mut slot.storage.task) == task.handle()
    {
        return Some(&mut slot.storage);
    }
    TASKS.get(task.pointer(), ptr::null_mut(), 0)
}

/// Creates the storage of a task from `initial`, or with zeroes. Returns 0 if it was not created: it exists, or another program is
/// creating a storage for this slot, or there is no memory. Task storage may allocate memory here.
#[inline(never)]
pub fn create(task: Task, initial: Option<&mut TaskStorage>) -> u32 {
    let Some(slot) = slot(task) else { return 0 };
    if exchange(&mut slot.lock, 1) != 0 {
        // Otherwise a host that starts many tasks at once would lose some. A new task has no other storage yet.
        return if initial.is_none() { create_apart(task, None) } else { 0 };
    }
    let mut is_new = 0;
    if get(&mut slot.storage.task) != 0 {
        is_new = create_apart(task, initial);
    } else if TASKS.get(task.pointer(), ptr::null_mut(), 0).is_none() {
        match initial {
            Some(initial) => {
                set(&mut initial.task, 0);
                copy(initial, &mut slot.storage);
            }
            None => {
                copy_zeroes(&mut slot.storage);
                identify(task, &mut slot.storage);
            }
        }
        // From here on, other programs use the storage.
        exchange(&mut slot.storage.task, task.handle());
        is_new = 1;
    }
    exchange(&mut slot.lock, 0);
    is_new
}

/// Creates a task storage, unless the task has a storage.
#[inline(always)]
fn create_apart(task: Task, initial: Option<&mut TaskStorage>) -> u32 {
    if storage(task).is_some() {
        return 0;
    }
    let initial = initial.map_or(ptr::null_mut(), |initial| {
        set(&mut initial.task, task.handle());
        ptr::from_mut(initial)
    });
    let created = TASKS.get(task.pointer(), initial, BPF_LOCAL_STORAGE_GET_F_CREATE.into());
    let Some(storage) = created else { return 0 };
    if get(&mut storage.task) == 0 {
        identify(task, storage);
        set(&mut storage.task, task.handle());
    }
    1
}

/// Sets who the task is in a storage of zeroes.
#[inline(always)]
pub fn identify(task: Task, storage: &mut TaskStorage) {
    storage.serial = serial(task.tid(), task.start_ns());
    storage.reported.serial = storage.serial;
    storage.cgroup_id = task.cgroup_id_rarely();
}

/// Frees the slot of a task that the kernel frees, or of an earlier task with the same address.
#[inline(always)]
pub fn free(task: Task) {
    if let Some(slot) = slot(task)
        && get(&mut slot.storage.task) == task.handle()
    {
        exchange(&mut slot.storage.task, 0);
    }
}
