//! The BPF program of `cgscope sample`: a task iterator that reads what each thread does at one moment. It has no hook, so it
//! costs nothing between two readings.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

#[allow(dead_code, unused_imports, reason = "most of it is for the hook")]
mod kernel;
mod object;

use core::{
    ffi::c_void,
    ptr::{addr_of, read_volatile},
};

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    btf_maps::{Array, HashMap},
    helpers::generated::bpf_seq_write,
    macros::btf_map,
};
use cgscope_ledger::{
    FRAMES,
    host::Task as _,
    task_state::{DEAD, INTERRUPTIBLE, NOLOAD, PARKED, UNINTERRUPTIBLE},
    threads::{
        DISPLACED, END, HAS_SYSCALL, IOWAIT, LONGEST, ON_CPU, ON_RQ, THROTTLED, ThreadRecord, ThreadsConfig,
    },
    wire::{SELECT_PROCESS, SELECT_THREAD, SELECTED_MAX},
};

use crate::kernel::{RunQueue, Task, TaskContext};

#[unsafe(no_mangle)]
static THREADS: ThreadsConfig =
    ThreadsConfig { all_states: 0, syscall: 0, stack_bytes: 0, selected_only: 0, uid: 0, cgroup: 0 };

macro_rules! wanted {
    ($field:ident) => {
        // SAFETY: this is our own static, which user space sets before it loads the program. The read is volatile, because
        // otherwise the compiler would use the initial value.
        unsafe { read_volatile(addr_of!(THREADS.$field)) }
    };
}

/// A record and its stack. Both are written at once. If they do not fit, the kernel calls the iterator for this thread again.
#[repr(C)]
struct Reported {
    record: ThreadRecord,
    stack: [u64; FRAMES],
    /// When the reader switched in, ns of `rq->clock_task`. Later than that if a tick or another reader has updated the reader's
    /// run time.
    arrived_ns: u64,
}

/// The record is in a map, because it is too large for the stack. Only one reader runs at a time.
#[btf_map]
static REPORTED: Array<Reported, 1> = Array::new();

#[btf_map]
static SELECTED: HashMap<u64, u64, SELECTED_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The states of threads that `psn` does not count as active.
const AT_REST: u32 = INTERRUPTIBLE | PARKED | DEAD | NOLOAD;

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
/// # Safety
/// The kernel calls this function, with the context of an iterator over tasks.
pub unsafe extern "C" fn look_at_threads(ctx: *const TaskContext) -> i32 {
    // SAFETY: the kernel passes the context of an iterator over tasks.
    let (seq, task, number) = unsafe { TaskContext::parts(ctx) };
    let Some(reported) = REPORTED.get_ptr_mut(0) else { return 0 };
    // SAFETY: no other program writes this map value.
    let reported = unsafe { &mut *reported };
    reported.record.frames = 0;
    let Some(task) = task else {
        reported.record.flags = END;
        reported.record.tid = number.wrapping_add(1) as u32;
        write(seq.pointer(), reported, 0);
        return 0;
    };
    let me = Task::current();
    if number == 0 {
        reported.arrived_ns = me.counted_until_ns();
    }
    if task.tgid() == me.tgid() || wanted!(selected_only) != 0 && !is_selected(task) {
        return 0;
    }
    let state = state(task, me);
    let flags = flags(task, state, me, reported.arrived_ns);
    let is_active =
        flags & (ON_CPU | DISPLACED | THROTTLED) != 0 || state & AT_REST == 0 && task.exit_state() == 0;
    if wanted!(all_states) == 0 && !is_active {
        return 0;
    }
    emit(task, flags, state, &mut reported.record);
    let mut bytes = 0;
    let stack_bytes = wanted!(stack_bytes) as u32;
    if stack_bytes != 0 && flags & (ON_CPU | DISPLACED) == 0 {
        // SAFETY: user space requests at most the size of the array, and the verifier checks that.
        bytes = unsafe { task.stack(reported.stack.as_mut_ptr(), stack_bytes) };
        reported.record.frames = bytes / size_of::<u64>() as u32;
    }
    write(seq.pointer(), reported, bytes);
    0
}

#[inline(always)]
fn is_selected(task: Task) -> bool {
    // SAFETY: the helper does not read the value.
    unsafe {
        SELECTED.get(SELECT_PROCESS | u64::from(task.tgid())).is_some()
            || SELECTED.get(SELECT_THREAD | u64::from(task.tid())).is_some()
    }
}

/// Returns the state of a task. If the task waits for the reader's CPU because it was woken after the reader switched in, returns
/// the state from before the wakeup. In that case only the kind of sleep is known, so a kernel thread without work is reported as
/// asleep.
#[inline(always)]
fn state(task: Task, me: Task) -> u32 {
    let state = task.state();
    let queued_ns = task.last_queued_ns();
    if state != 0 || queued_ns <= me.last_arrival_ns() || cpu_of(task) != cpu_of(me) {
        state
    } else if task.contributes_to_load() {
        UNINTERRUPTIBLE
    } else {
        INTERRUPTIBLE
    }
}

#[inline(always)]
fn flags(task: Task, state: u32, me: Task, arrived_ns: u64) -> u32 {
    let mut flags = 0;
    if task.is_on_queue() {
        flags |= ON_RQ;
    }
    if task.in_iowait() {
        flags |= IOWAIT;
    }
    if task.on_cpu() {
        flags |= ON_CPU;
    } else if is_displaced(task, me, arrived_ns) {
        flags |= DISPLACED;
    } else if state == 0 && task.is_out_of_quota() {
        // A task with a nonzero state sleeps. Since Linux 6.12 a sleeping task may still be on a queue (delayed dequeue).
        flags |= THROTTLED;
    }
    flags
}

/// Returns whether the task left this CPU when the reader switched in. The task was then put back on the queue, or it blocked.
/// All times of one switch come from a single reading of the clock (`sched_info_switch`; `update_curr` of one task and
/// `set_next_task` of the other). Such a task must be reported as running: otherwise a task that shares the reader's CPU would
/// never be seen on a CPU. If the kernel cannot be preempted in its own code (PREEMPT_NONE), the task may have blocked by itself
/// just before.
#[inline(always)]
fn is_displaced(task: Task, me: Task, arrived_ns: u64) -> bool {
    let queued_ns = task.last_queued_ns();
    let has_left =
        task.counted_until_ns() == arrived_ns || queued_ns != 0 && queued_ns == me.last_arrival_ns();
    has_left && cpu_of(task) == cpu_of(me)
}

#[inline(always)]
fn cpu_of(task: Task) -> u32 {
    task.run_queue().map_or(0, RunQueue::cpu)
}

#[inline(always)]
fn emit(task: Task, flags: u32, state: u32, record: &mut ThreadRecord) {
    record.tid = task.tid();
    record.tgid = task.tgid();
    record.comm = task.comm();
    record.cgroup_id = if wanted!(cgroup) != 0 { task.cgroup_id() } else { 0 };
    record.state = state;
    record.exit_state = task.exit_state();
    record.cpu = cpu_of(task);
    record.uid = if wanted!(uid) != 0 { task.uid() } else { 0 };
    record.syscall = -1;
    record.flags = flags;
    let is_blocked = state != 0 && flags & (ON_CPU | THROTTLED | DISPLACED) == 0;
    if wanted!(syscall) != 0 && is_blocked && record.exit_state == 0 && task.has_user_space() {
        record.syscall = task.system_call();
        record.flags |= HAS_SYSCALL;
    }
}

#[inline(always)]
fn write(seq: *mut c_void, reported: &mut Reported, stack_bytes: u32) {
    let length = size_of::<ThreadRecord>() as u32 + stack_bytes;
    if length <= LONGEST as u32 {
        // SAFETY: `reported` has at least this many bytes.
        unsafe { bpf_seq_write(seq.cast(), (&raw mut *reported).cast(), length) };
    }
}
