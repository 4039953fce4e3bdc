//! Reads of a task's current state that only the reader needs.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_get_task_stack, bpf_task_pt_regs};

use super::{Task, throttles_tasks};

/// PF_IO_WORKER (Linux 5.12, commit 46fe18b16c46). A thread with this flag was never in user space.
const IO_WORKER: u32 = 0x10;

impl Task {
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions, and the kernel never returns null.
        Self::new(unsafe { bpf_get_current_task_btf() }.cast())
    }

    /// Returns EXIT_ZOMBIE or EXIT_DEAD; 0 until the task has exited.
    #[inline(always)]
    pub fn exit_state(self) -> u32 {
        field!(self.0, task_exit_state)
    }

    #[inline(always)]
    pub fn uid(self) -> u32 {
        field!(field!(self.0, task_cred: *const c_void), cred_uid)
    }

    /// Returns whether the task can be in a system call. Kernel threads and io_uring workers never are.
    #[inline(always)]
    pub fn has_user_space(self) -> bool {
        !self.is_kernel_thread() && field!(self.0, task_flags: u32) & IO_WORKER == 0
    }

    /// Returns the number of the system call of a blocked task; negative if the task is in no system call.
    #[inline(always)]
    pub fn system_call(self) -> i32 {
        // SAFETY: the verifier trusts this task.
        let registers = unsafe { bpf_task_pt_regs(self.pointer().cast()) };
        // The field is an `s32`, or a `long` of which only the lower half is needed.
        field!(registers as *const c_void, regs_syscall: u32) as i32
    }

    /// Walks the stack of a task that is off its CPU. Writes at most `bytes` of return addresses. Returns the number of bytes
    /// that were written.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes`.
    #[inline(always)]
    pub unsafe fn stack(self, into: *mut u64, bytes: u32) -> u32 {
        // SAFETY: the caller guarantees that `into` is valid.
        let taken = unsafe { bpf_get_task_stack(self.pointer().cast(), into.cast(), bytes, 0) };
        if taken < 0 { 0 } else { taken as u32 }
    }

    /// Returns whether the task cannot run because a quota is used up. Before Linux 6.18, the kernel takes whole queues off their
    /// CPU.
    #[inline(always)]
    pub fn is_out_of_quota(self) -> bool {
        if throttles_tasks() {
            return self.is_throttled();
        }
        self.on_rq() && !self.is_real_time() && self.cfs_rq().levels_out_of_quota() != 0
    }
}
