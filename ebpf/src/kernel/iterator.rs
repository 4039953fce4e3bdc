//! The context structures that the kernel passes to iterators.

use core::{ffi::c_void, ptr::read_volatile};

use super::{Base, SeqFile, Task};

/// `struct bpf_iter__task` (Linux 5.8). Each member is a pointer of 8 bytes.
#[repr(C)]
pub struct TaskContext {
    meta: *const Meta,
    task: *const c_void,
}

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *const c_void,
    _session_id: u64,
    number: u64,
}

/// `struct bpf_iter__bpf_map_elem` (Linux 5.9).
#[repr(C)]
pub struct EntryContext {
    meta: *const Meta,
    _map: *const c_void,
    key: *const c_void,
    value: *mut c_void,
}

impl EntryContext {
    /// Returns the file to write to, and the key and value of an entry. After the last entry, the key and value are missing.
    ///
    /// # Safety
    /// `this` must be the context of an iterator over a map with keys of type `K` and values of type `V`.
    #[inline(always)]
    pub unsafe fn parts<K, V>(this: *const Self) -> (SeqFile, Option<(K, &'static mut V)>) {
        // SAFETY: the caller guarantees that `this` is such a context.
        unsafe {
            let meta = read_volatile(&raw const (*this).meta);
            let seq = SeqFile::new(Base::known(read_volatile(&raw const (*meta).seq)));
            let key = read_volatile(&raw const (*this).key).cast::<K>();
            let value = read_volatile(&raw const (*this).value);
            let is_end = key.is_null() || value.is_null();
            (seq, if is_end { None } else { Some((read_volatile(key), &mut *value.cast::<V>())) })
        }
    }
}

impl TaskContext {
    /// Returns the file to write to, the task, and the task's number. After the last task, there is no task, and the number is
    /// that of the last task.
    ///
    /// # Safety
    /// `this` must be the context of an iterator over tasks.
    #[inline(always)]
    pub unsafe fn parts(this: *const Self) -> (SeqFile, Option<Task>, u64) {
        // SAFETY: the caller guarantees that `this` is such a context.
        unsafe {
            let task = read_volatile(&raw const (*this).task);
            let meta = read_volatile(&raw const (*this).meta);
            let seq = SeqFile::new(Base::known(read_volatile(&raw const (*meta).seq)));
            let number = read_volatile(&raw const (*meta).number);
            (seq, Base::new(task).map(Task::new), number)
        }
    }
}
