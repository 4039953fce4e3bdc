//! Lists of changed tasks ([`cgscope_ledger::changes`]), so that a reading visits only these tasks.
//!
//! The hook adds a task to a list when the task first switches in after a report, and when the task exits. If a task is active at
//! the time of its report, the reader adds the task to the reader's own list. The next reading reports this task again, because
//! the hook does not see when an active task goes to sleep. A task that was woken and has not run yet is on no list. User space
//! detects it by the number of tasks on each run queue. After any other change without a switch, the next reading visits all
//! tasks, see [`all_may_have_changed`].

use core::{ffi::c_void, mem::transmute};

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use cgscope_ledger::{
    changes::{CHANGES, Change, TURN_SHIFT},
    feature::KERNEL_CALLS,
    host::{Host as _, Task as _},
    verifier::{exchange, exchange_half, get, set},
    wire::{ACTIVE, HAS_EXITED, LIST, LISTED, ListRecord, TaskStorage, UNCHANGED, serial},
};

use crate::{
    host::Kernel,
    kernel::{Base, RunQueue, SeqFile, Task, TaskContext, argument, readers_list},
    maps::{incomplete, list, list_record, turn},
    reading::{LONGEST, emit_same, report},
    slots::storage,
};

/// Adds `next` to a list, because it switches in for the first time since its last report. This function is not inlined, because
/// it is rarely called.
#[inline(never)]
pub fn changed(next: Task, storage: &mut TaskStorage, queue: RunQueue) {
    set(&mut storage.has_changed, LISTED);
    append(next.tid().into(), queue.cpu(), queue.address());
}

/// Adds an exited task to a list, if the task was ever reported.
#[inline(always)]
pub fn exited(prev: Task, storage: &TaskStorage) {
    if storage.face.comm[0] != 0 {
        append(storage.serial, prev.cpu(), prev.run_queue_rarely());
    }
}

#[inline(always)]
fn append(change: Change, cpu: u32, queue: u64) {
    if let Some(list) = list(cpu) {
        list.queue = queue;
        list.append(change);
    }
}

/// Makes the next reading visit all tasks, because a task may have changed without a switch.
#[inline(always)]
pub fn all_may_have_changed() {
    if let Some(word) = incomplete() {
        exchange(word, 1);
    }
}

/// Handles a renamed task. Most tasks rename themselves, and such a change needs no further action. The kernel also calls this
/// tracepoint in `execve`. If a thread calls `execve`, it has just received the id of its process, and lists may still contain
/// its old id.
#[btf_tracepoint(function = "task_rename")]
pub fn on_rename(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(argument(&ctx, 0));
    let has_own_id =
        storage(task).is_none_or(|storage| storage.serial == serial(task.tid(), task.start_ns()));
    if task.tid() != Task::current().tid() || !has_own_id {
        all_may_have_changed();
    }
    0
}

struct Taking {
    seq: SeqFile,
    place: u32,
    /// How many more entries this call may take. Entries of tasks that are gone use no space, but time.
    left: u32,
}

/// Maximum number of entries that one call takes, because the kernel does not preempt it everywhere.
const AT_ONCE: u32 = 2 * CHANGES as u32;

/// Reports the changed tasks of as many lists as fit into the kernel's buffer. This program is attached to an iterator over a
/// single task (Linux 6.1), so the kernel calls it once for each stream. The task itself does not matter.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn read_changes(ctx: *const TaskContext) -> i32 {
    // SAFETY: the kernel passes the context of an iterator over tasks.
    let (seq, Some(_), _) = (unsafe { TaskContext::parts(ctx) }) else { return 0 };
    let (first, end) = ((turn() & ((1 << TURN_SHIFT) - 1)) as u32, readers_list() + 1);
    let mut taking = Taking { seq, place: first, left: AT_ONCE };
    <Kernel>::repeat(end.saturating_sub(first), take_list, &mut taking);
    0
}

/// Reports the tasks of the next list, and the record at its end. Returns true if the buffer may not suffice for more.
#[inline(always)]
fn take_list(taking: &mut Taking) -> bool {
    let (seq, place) = (taking.seq, taking.place);
    let (Some(list), Some(record)) = (list(place), list_record()) else { return true };
    list.begin(turn() >> TURN_SHIFT);
    <Kernel>::repeat(CHANGES as u32, take_one, taking);
    let is_readers = place == readers_list();
    let is_full = taking.left == 0 || seq.space_left() <= 3 * size_of::<ListRecord>() as u64;
    let has_more = is_full || !list.is_done();
    *record = ListRecord {
        len: size_of::<ListRecord>() as u32,
        flags: LIST,
        cpu: u64::from(place),
        running: RunQueue::running_at(get(&mut list.queue)),
        has_more: has_more.into(),
        is_incomplete: (list.take_overflow() || is_readers && take_incomplete()).into(),
    };
    seq.write(record);
    taking.place = place + 1;
    has_more
}

/// Removes the next entry of a list and reports its task. Returns true at the end of the list, or if there may be too little space
/// for the next record.
#[inline(always)]
fn take_one(Taking { seq, place, left }: &mut Taking) -> bool {
    let Some(list) = list(*place) else { return true };
    if *left == 0 || list.is_done() || seq.space_left() <= LEAST {
        return true;
    }
    *left -= 1;
    let change = list.take();
    if change >> u32::BITS != 0 {
        emit_same(*seq, HAS_EXITED, change, 0);
        return false;
    }
    if let Some(task) = Base::new(task_from_pid(change as u32)) {
        report_if_listed(*seq, Task::new(task), *place);
        task_release(task.pointer());
    }
    false
}

/// Reports a task, if the entry in this list is still valid. A task can be on both the list of a CPU and the reader's list, and
/// then only one of the entries is valid.
#[inline(always)]
fn report_if_listed(seq: SeqFile, task: Task, place: u32) {
    let expected = if place == readers_list() { ACTIVE } else { LISTED };
    if !task.is_exiting()
        && let Some(storage) = storage(task)
        && get(&mut storage.has_changed) == expected
    {
        // The entry has been removed, so the task is no longer on this list.
        set(&mut storage.has_changed, LISTED);
        report(seq, task, storage);
    }
}

/// Marks a task as reported. If the task is active, it will also be reported by the next reading. If the task switches in between
/// the two exchanges, their order ensures that the hook's mark is not lost.
#[inline(always)]
pub fn begin_report(task: Task<false>, storage: &mut TaskStorage) {
    let was = exchange_half(&mut storage.has_changed, UNCHANGED);
    if task.is_active() {
        exchange_half(&mut storage.has_changed, ACTIVE);
        let change = Change::from(task.tid());
        // If the reader's list is full, the next reading visits all tasks. Then this code runs again for the task, which must not
        // be marked as active yet.
        if was != ACTIVE && !list(readers_list()).is_some_and(|list| list.append(change)) {
            set(&mut storage.has_changed, LISTED);
        }
    }
}

#[inline(always)]
fn take_incomplete() -> bool {
    incomplete().is_some_and(|word| exchange(word, 0) != 0)
}

/// Minimum free space in the buffer: enough for one record and the record at the end of the list.
const LEAST: u64 = (LONGEST + size_of::<ListRecord>()) as u64;

/// Finds a task by its id and takes a reference to it. Uses a kernel function (Linux 6.2).
#[inline(always)]
fn task_from_pid(tid: u32) -> *const c_void {
    // SAFETY: the loader replaces this number by the id of the kernel function. Otherwise the verifier rejects the program.
    let call: unsafe extern "C" fn(i32) -> *const c_void = unsafe { transmute(KERNEL_CALLS[0] as usize) };
    // SAFETY: the function accepts any number as an id.
    unsafe { call(tid as i32) }
}

#[inline(always)]
fn task_release(task: *const c_void) {
    // SAFETY: as above.
    let call: unsafe extern "C" fn(*const c_void) = unsafe { transmute(KERNEL_CALLS[1] as usize) };
    // SAFETY: the task was returned by `task_from_pid`.
    unsafe { call(task) };
}
