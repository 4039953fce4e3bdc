//! Lists of changed tasks, so that a reading visits these alone: [`cgscope_ledger::changes`].
//!
//! The hook appends a task when the task first switches in after a report, and when it exits. A task that is active when it is
//! reported is on the reader's own list: it is reported again at the next reading, because the hook does not see how it goes to
//! sleep. A task that was woken and has not run yet is on no list; user space compares the number of tasks that a run queue has.
//! Everything else that can change without a switch makes the next reading visit all tasks: see [`all_may_have_changed`].

use core::{ffi::c_void, mem::transmute};

use aya_ebpf::{helpers::generated::bpf_loop, macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_ledger::{
    changes::{CHANGES, Change},
    feature::KERNEL_CALLS,
    verifier::{exchange, get, set},
    wire::{ACTIVE, HAS_EXITED, LIST, LISTED, ListRecord, SameRecord, TaskStorage, UNCHANGED, serial},
};

use crate::{
    kernel::{EntryContext, RunQueue, SeqFile, Task, readers_list},
    maps::{incomplete, list, list_record, same_record, storage, turn},
    reading::{LONGEST, report},
};

/// Lists `next`, which switches in on the CPU of `queue` for the first time since its last report. Not inlined, because it is rare.
#[inline(never)]
pub fn changed(next: Task, storage: &mut TaskStorage, queue: RunQueue) {
    set(&mut storage.has_changed, LISTED);
    append(next, storage.serial, 0, queue);
}

/// Lists an exited task, if it was ever reported.
#[inline(always)]
pub fn exited(prev: Task, storage: &TaskStorage) {
    if storage.face.comm[0] != 0 {
        append(prev, storage.serial, 1, prev.run_queue());
    }
}

#[inline(always)]
fn append(task: Task, serial: u64, has_exited: u32, queue: RunQueue) {
    if let Some(list) = list(queue.cpu()) {
        list.queue = queue.address();
        list.append(Change { serial, tid: task.tid(), has_exited });
    }
}

/// Puts an active task on the reader's own list, the last one. Returns whether it fits.
#[inline(always)]
fn remains_active(task: Task, serial: u64) -> bool {
    list(readers_list()).is_some_and(|list| list.append(Change { serial, tid: task.tid(), has_exited: 0 }))
}

/// Makes the next reading visit all tasks: one of them may have changed without a switch.
#[inline(always)]
pub fn all_may_have_changed() {
    if let Some(word) = incomplete() {
        exchange(word, 1);
    }
}

/// A task gets another name. Most tasks name themselves. `execve` also gets here; if a thread calls it, the thread has just got the
/// id of its process, and lists may hold the old id.
#[btf_tracepoint(function = "task_rename")]
pub fn on_rename(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    let has_own_id =
        storage(task).is_none_or(|storage| storage.serial == serial(task.tid(), task.start_ns()));
    if task.tid() != Task::current().tid() || !has_own_id {
        all_may_have_changed();
    }
    0
}

/// What [`take_one`] needs.
struct Taking {
    seq: SeqFile,
    place: u32,
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map_elem")]
pub extern "C" fn read_changes(ctx: *const EntryContext) -> i32 {
    // SAFETY: the context of an iterator over `CHANGES`, the only map that this program is attached to.
    let (seq, Some(place)) = (unsafe { EntryContext::place(ctx) }) else { return 0 };
    let (Some(list), Some(record)) = (list(place), list_record()) else { return 0 };
    if seq.space_left() <= LEAST {
        // Overflow the buffer on purpose. The kernel then passes it to user space and repeats this list.
        seq.write(list);
        return 0;
    }
    list.begin(turn());
    let mut taking = Taking { seq, place };
    // SAFETY: the callback gets what it expects.
    unsafe { bpf_loop(CHANGES as u32, take_one as *mut c_void, (&raw mut taking).cast(), 0) };
    let is_readers = place == readers_list();
    *record = ListRecord {
        len: size_of::<ListRecord>() as u32,
        flags: LIST,
        cpu: u64::from(place),
        running: RunQueue::running_at(get(&mut list.queue)),
        has_more: (!list.is_done()).into(),
        is_incomplete: (list.take_overflow() || is_readers && take_incomplete()).into(),
    };
    seq.write(record);
    0
}

/// Takes the next entry of a list, and reports the task. Returns 1 at the end, or if the next record may not fit.
extern "C" fn take_one(_: u64, taking: *mut c_void) -> i64 {
    // SAFETY: the pointer that `read_changes` passes.
    let Taking { seq, place } = unsafe { &*taking.cast::<Taking>() };
    let Some(list) = list(*place) else { return 1 };
    if list.is_done() || seq.space_left() <= LEAST {
        return 1;
    }
    let change = list.take();
    if change.has_exited != 0 {
        emit_exited(*seq, change.serial);
        return 0;
    }
    let task = task_from_pid(change.tid);
    if !task.is_null() {
        report_if_listed(*seq, Task::new(task), *place);
        task_release(task);
    }
    0
}

/// A list contains a task twice if both the hook and the reader put it there: only one entry counts.
#[inline(always)]
fn report_if_listed(seq: SeqFile, task: Task, place: u32) {
    let expected = if place == readers_list() { ACTIVE } else { LISTED };
    if !task.is_exiting()
        && let Some(storage) = storage(task)
        && get(&mut storage.has_changed) == expected
    {
        // It is on this list no longer.
        set(&mut storage.has_changed, LISTED);
        report(seq, task, storage);
    }
}

/// Marks a task as reported. If it is active, it counts as changed at the next reading, too. In this order: the mark of a switch in
/// between is not lost.
#[inline(always)]
pub fn begin_report(task: Task, storage: &mut TaskStorage) {
    let was = exchange(&mut storage.has_changed, UNCHANGED);
    if task.is_active() {
        exchange(&mut storage.has_changed, ACTIVE);
        // If the list is full, the next reading visits all tasks. The task then gets here again, not yet marked as active.
        if was != ACTIVE && !remains_active(task, storage.serial) {
            set(&mut storage.has_changed, LISTED);
        }
    }
}

#[inline(always)]
fn emit_exited(seq: SeqFile, serial: u64) {
    let Some(record) = same_record() else { return };
    *record = SameRecord { len: size_of::<SameRecord>() as u32, flags: HAS_EXITED, serial, followed: 0 };
    seq.write(record);
}

#[inline(always)]
fn take_incomplete() -> bool {
    incomplete().is_some_and(|word| exchange(word, 0) != 0)
}

/// Space for a record, and for the end of the list.
const LEAST: u64 = (LONGEST + size_of::<ListRecord>()) as u64;

/// Finds a task and takes a reference to it (a kernel function, Linux 6.2).
#[inline(always)]
fn task_from_pid(tid: u32) -> *const c_void {
    // SAFETY: the loader replaces the number by the function's id; otherwise the verifier rejects the program.
    let call: unsafe extern "C" fn(i32) -> *const c_void = unsafe { transmute(KERNEL_CALLS[0] as usize) };
    // SAFETY: any number is allowed.
    unsafe { call(tid as i32) }
}

#[inline(always)]
fn task_release(task: *const c_void) {
    // SAFETY: as above.
    let call: unsafe extern "C" fn(*const c_void) = unsafe { transmute(KERNEL_CALLS[1] as usize) };
    // SAFETY: a task from `task_from_pid`.
    unsafe { call(task) };
}
