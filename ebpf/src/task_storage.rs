//! A BPF map for task storage, which aya-ebpf 0.2 lacks.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE},
    helpers::generated::bpf_task_storage_get,
};

/// A map with a value for each task. The pointers only describe types to BTF and are never dereferenced.
#[repr(C)]
pub struct TaskStorageMap<T> {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: no code reads or writes this value as memory. The kernel protects the map itself.
unsafe impl<T> Sync for TaskStorageMap<T> {}

impl<T> TaskStorageMap<T> {
    pub const NEW: Self = Self {
        r#type: ptr::null(),
        key: ptr::null(),
        value: ptr::null(),
        max_entries: ptr::null(),
        map_flags: ptr::null(),
    };

    /// Returns the value of a task. A value that does not exist is created from `initial`, if `flags` requests it.
    #[inline(always)]
    pub fn get(&self, task: *mut c_void, initial: *mut T, flags: u64) -> Option<&'static mut T> {
        let map = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the helper expects this map and this task. The value exists as long as the task, and the task exists until this
        // program returns.
        unsafe { bpf_task_storage_get(map, task.cast(), initial.cast(), flags).cast::<T>().as_mut() }
    }
}
