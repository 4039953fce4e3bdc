//! The iterators over all tasks and over exited tasks. They write records that user space reads as a stream.
//!
//! The kernel gathers records in a buffer of 32 KiB. If a record does not fit, the kernel passes the buffer to user space and
//! calls the iterator for the same task again. `reported` must contain exactly what user space received, so the free space is
//! checked before anything is written.

use cgscope_ledger::{
    CAUSES, Cause, Loss, Stack,
    host::{Host as _, Task as _},
    segment,
    verifier::{get, set},
    waits,
    wire::{
        AccountsRecord, Exited, ExitedRecord, HAS_ACCOUNTS, HAS_BASE, HAS_BASE_HISTOGRAM, HAS_HISTOGRAM,
        HAS_PLACEMENT, HAS_STACK, Histogram, INHERIT, ON_CPU, ON_RQ, Placement, Reported, SAME,
        SELECT_PROCESS, SELECT_THREAD, SameRecord, TaskRecord, TaskStorage, UNCHANGED,
    },
};

use crate::{
    accounts, chains, changes,
    exits::{EXITED, TO_HISTOGRAM, count_unseen_arrival, hand_over_exited, take_waits},
    host::{Exported, Kernel, exported},
    kernel::{
        EntryContext, SeqFile, Task, TaskContext, born_after_ns, follow_all, has_nodes, hook_allocates,
        keeps_accounts, select_born_before_ns,
    },
    maps::{
        accounts_record, copy, copy_zeroes, create_sleeper, create_storage_at, histogram, lost, make_place,
        mark, moved, no_exited, no_waits, placement, put_totals_asleep, record, remove_moved, same_record,
        selected, sleeper, stack, unreported, wake_for_reader,
    },
    moves,
    slots::storage,
};

/// Maximum size of a record with all parts that may follow the record, bytes.
pub const LONGEST: usize = size_of::<TaskRecord>()
    + size_of::<Reported>()
    + size_of::<Placement>()
    + size_of::<AccountsRecord>()
    + size_of::<Stack>()
    + 2 * size_of::<Histogram>();

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn read_tasks(ctx: *const TaskContext) -> i32 {
    // SAFETY: the kernel passes the context of an iterator over tasks.
    let (seq, task, _) = unsafe { TaskContext::parts(ctx) };
    let Some(task) = task else { return 0 };
    if task.is_exiting() {
        // The hook adds the remaining figures of this task at the task's last switch. If the task were reported now, these
        // figures could count twice.
        return 0;
    }
    if storage(task).is_none() {
        match sleeper(task) {
            None => {
                // If the record does not fit, the kernel calls the iterator for this task again. Until then, cgscope must not
                // begin to follow the task.
                let Some(record) = record() else { return 0 };
                if seq.space_left() <= size_of::<TaskRecord>() as u64 {
                    seq.write(record);
                    return 0;
                }
                if adopt(task) == ADOPTED_ASLEEP {
                    emit_asleep(seq, task);
                    return 0;
                }
            }
            Some(sleeper) => {
                mark(task, &mut sleeper.flags);
                if !task.is_active() && task.face() == sleeper.face {
                    emit_same(seq, SAME, sleeper.serial, sleeper.flags);
                    return 0;
                }
                wake_for_reader(task, sleeper);
                if storage(task).is_none() {
                    // The hook is creating it at this moment, or there is no memory.
                    emit_same(seq, SAME, sleeper.serial, sleeper.flags);
                    return 0;
                }
            }
        }
    }
    let Some(storage) = storage(task) else { return 0 };
    mark(task, &mut storage.flags);
    chains::flush_of(task);
    if !keeps_accounts() && is_same(task, storage) {
        emit_same(seq, SAME, storage.serial, storage.flags);
        return 0;
    }
    // `seq_write` needs one byte more than it writes.
    if seq.space_left() <= LONGEST as u64 {
        // The longest record might not fit. These writes are too large on purpose: the kernel then passes the buffer to user
        // space and repeats this task.
        let Some(long) = no_exited() else { return 0 };
        seq.write(long);
        seq.write(long);
        return 0;
    }
    report(seq, task, storage);
    0
}

/// Writes the full report of a task. This function is inlined, because the kernel allows at most eight nested calls.
#[inline(always)]
pub fn report(seq: SeqFile, task: Task, storage: &mut TaskStorage) {
    let histogram = histogram(task);
    let has_histogram = histogram.is_some().into();
    let Some(histogram) = histogram.or_else(no_waits) else { return };
    if begin_report(storage, histogram, has_histogram) != 0
        && let Some(record) = record()
    {
        let mut placement = if has_nodes() { placement(task) } else { None };
        if let Some(placement) = &mut placement {
            placement.preferred_node = task.preferred_node();
            has(record, HAS_PLACEMENT, size_of::<Placement>());
        }
        put_accounts(task, storage, record);
        write(seq, storage, placement, record);
    }
    end_report(storage, histogram);
}

exported! {
    /// Locks a storage, and prepares the record of its task. Returns 0 if there is nothing to report.
    fn begin_report([storage: TaskStorage], [histogram: Histogram], has_histogram: u64) -> u32 =
        prepare(Task::of(storage), storage, histogram, has_histogram != 0);
    fn was_throttled([storage: TaskStorage]) =
        segment::was_throttled::<Exported>(Task::of(storage), &mut storage.start);
    /// Unlocks a storage. If the task has exited in the meantime, adds its figures.
    fn end_report([storage: TaskStorage], [histogram: Histogram]) = {
        moves::unlock(storage);
        if get(&mut storage.is_handed_over) == EXITED {
            hand_over_exited(storage, histogram);
        }
    };
}

/// Returns whether a task has not changed since its last report. A task that was active at its last report counts as changed.
#[inline(always)]
fn is_same(task: Task, storage: &mut TaskStorage) -> bool {
    get(&mut storage.has_changed) == UNCHANGED && !task.is_active() && task.face() == storage.face
}

/// Writes the report that a task has not changed, or has exited. If the record does not fit, the kernel calls the iterator for
/// this task again.
#[inline(always)]
pub fn emit_same(seq: SeqFile, flags: u32, serial: u64, followed: u64) {
    let Some(record) = same_record() else { return };
    *record = SameRecord { len: size_of::<SameRecord>() as u32, flags, serial, followed };
    seq.write(record);
}

/// Writes the first report of a sleeping task that has no storage.
#[inline(never)]
fn emit_asleep(seq: SeqFile, task: Task) {
    let Some(record) = record() else { return };
    let Some(sleeper) = sleeper(task) else { return };
    begin(record);
    put(task, sleeper.serial, sleeper.cgroup_id, record);
    put_totals_asleep(task, sleeper, &mut record.totals);
    copy_zeroes(&mut record.waits);
    record.waits.expected_run_delay_ns = sleeper.run_delay_ns;
    record.followed = sleeper.flags;
    seq.write(record);
}

// If the longest record might not fit, then two of these entries certainly do not fit.
const _: () = assert!(2 * size_of::<Exited>() > LONGEST);

/// Maximum number of attempts to lock a storage. A move holds the lock for some microseconds, and these attempts take at least
/// ten times as long. The hook never waits for the lock.
const LOCK_TRIES: u32 = 4096;

/// Locks a storage. If another program holds the lock for too long, counts a loss, and the reading continues without the lock.
/// The function returns nothing, because the verifier would follow each result as a separate code path.
#[inline(never)]
fn lock(storage: &mut TaskStorage) {
    if moves::try_lock(storage) {
        return;
    }
    let mut locking = (storage, false);
    <Kernel>::repeat(
        LOCK_TRIES,
        |(storage, has_lock)| {
            *has_lock = moves::try_lock(storage);
            *has_lock
        },
        &mut locking,
    );
    if !locking.1 {
        lost(Loss::ReadingOvertaken);
    }
}

/// Detects a move that no program has seen: the process of this thread has moved, and the thread has not switched in since.
#[inline(never)]
fn settle_in(task: Task<false>, storage: &mut TaskStorage, histogram: &mut Histogram, has_histogram: bool) {
    let cgroup_id = task.cgroup_id_rarely();
    if storage.cgroup_id != cgroup_id {
        make_place(cgroup_id);
        moves::hand_over(storage, histogram, has_histogram, cgroup_id);
    }
}

/// Returned by [`adopt`] if the task sleeps and has no storage yet.
const ADOPTED_ASLEEP: u32 = 1;

/// Begins to follow a task that started before cgscope, or that got no storage when it started.
#[inline(never)]
fn adopt(task: Task) -> u32 {
    let born_later = task.start_ns() > born_after_ns();
    let mut flags = 0;
    if !follow_all() {
        // A task that started later can only inherit that it is followed: its id may be the reused id of a selected task. A
        // thread that started while cgscope started is an exception, because it had nothing to inherit from.
        if task.start_ns() > select_born_before_ns() {
            return 0;
        }
        if selected(SELECT_PROCESS | u64::from(task.tgid())) {
            flags = INHERIT;
        } else if !selected(SELECT_THREAD | u64::from(task.tid())) {
            return 0;
        }
    }
    let switches = task.switches();
    if hook_allocates()
        && !born_later
        && !task.is_active()
        && create_sleeper(task, flags).is_some()
        // If the task is active now, it switched in before the hook knew the task.
        && !task.is_active()
        && task.switches() == switches
    {
        return ADOPTED_ASLEEP;
    }
    // If the task started after cgscope, its waits before this moment count too.
    if let Some(storage) = create_storage_at(task, task.run_delay_ns(), born_later) {
        storage.flags |= flags;
        if task.is_throttled() {
            was_throttled(storage);
        } else if task.last_queued_ns() == 0 {
            // The task may have switched in while its storage was created. The hook did not count the wait before that switch. So
            // the wait is counted now. Otherwise, until the next switch in, user space would receive a sum that lacks this wait.
            count_unseen_arrival(task, storage);
        }
    }
    0
}

/// Begins a record that has no parts and no current wait.
#[inline(always)]
fn begin(record: &mut TaskRecord) {
    set(&mut record.flags, 0);
    set(&mut record.len, size_of::<TaskRecord>() as u32);
    record.pending = [0; CAUSES];
    record.pending_cause = Cause::Unattributed as u64;
}

#[inline(always)]
fn prepare(
    task: Task<false>,
    storage: &mut TaskStorage,
    histogram: &mut Histogram,
    has_histogram: bool,
) -> u32 {
    let Some(record) = record() else { return 0 };
    lock(storage);
    // The first is 0 while the storage is being created. If the second is not, the figures already count for the task's cgroup.
    if get(&mut storage.task) == 0 || get(&mut storage.is_handed_over) != 0 {
        return 0;
    }
    changes::begin_report(task, storage);
    storage.face = task.face();
    settle_in(task, storage, histogram, has_histogram);
    let mut waits = storage.waits;
    if storage.start.switches != task.switches() as u32 {
        // The task has run since that wait.
        waits.unstamped_since_ns = 0;
    }
    begin(record);
    put_pending(task, storage, record);
    take_unreported(storage, histogram, record);
    what_is_reported(task, storage, record);
    put(task, storage.serial, storage.cgroup_id, record);
    record.last_queued_ns = waits::waits_since_ns(task, &waits);
    task.put_totals(&waits, storage, &mut record.totals);
    copy(&waits, &mut record.waits);
    record.followed = storage.flags;
    1
}

/// Writes the record of a task and its parts.
#[inline(always)]
fn write(
    seq: SeqFile,
    storage: &mut TaskStorage,
    placement: Option<&mut Placement>,
    record: &mut TaskRecord,
) {
    seq.write(record);
    if get(&mut record.flags) & HAS_BASE != 0 {
        // The figures at the latest move are written before the new figures overwrite them.
        seq.write(&mut storage.reported);
        if get(&mut record.flags) & HAS_BASE_HISTOGRAM != 0 {
            if let Some(moved) = moved(storage.reported.serial) {
                seq.write(moved);
            }
            remove_moved(storage.reported.serial);
        }
        storage.reported.serial = storage.serial;
    }
    copy(&record.totals, &mut storage.reported.totals);
    if let Some(placement) = placement {
        seq.write(placement);
    }
    write_accounts(seq, storage, record);
    if get(&mut record.flags) & HAS_HISTOGRAM != 0
        && let Some(unreported) = unreported()
    {
        seq.write(unreported);
    }
}

/// Sets a flag of the record, and adds the size of the part for which the flag stands. Flags and size stay in memory, so that the
/// verifier does not follow each combination as a separate code path.
#[inline(always)]
fn has(record: &mut TaskRecord, flag: u32, bytes: usize) {
    let (flags, len) = (get(&mut record.flags), get(&mut record.len));
    set(&mut record.flags, flags | flag);
    set(&mut record.len, len + bytes as u32);
}

/// Sets the flags of the record, and the total length of the record and the parts that follow.
#[inline(always)]
fn what_is_reported(task: Task<false>, storage: &mut TaskStorage, record: &mut TaskRecord) {
    if storage.reported.serial != storage.serial {
        has(record, HAS_BASE, size_of::<Reported>());
        if moved(storage.reported.serial).is_some() {
            has(record, HAS_BASE_HISTOGRAM, size_of::<Histogram>());
        }
    }
    if task.on_cpu() {
        has(record, ON_CPU, 0);
    }
}

/// Takes the waits since the last report, and sets the flag of the record if there are any.
#[inline(never)]
fn take_unreported(storage: &mut TaskStorage, histogram: &mut Histogram, record: &mut TaskRecord) {
    let (Some(none), Some(waits), Some(place)) = (no_waits(), unreported(), no_exited()) else { return };
    copy(none, waits);
    if take_waits(storage, histogram, place, waits, TO_HISTOGRAM) != 0 {
        has(record, HAS_HISTOGRAM, size_of::<Histogram>());
    }
}

#[inline(always)]
fn put_pending(task: Task<false>, storage: &TaskStorage, record: &mut TaskRecord) {
    if !task.is_on_queue() || task.sleeps_on_queue() {
        return;
    }
    if !task.on_cpu() {
        record.pending_cause =
            waits::pending::<Kernel<false, false>>(task, storage, &mut record.pending) as u64;
    }
    has(record, ON_RQ, 0);
}

#[inline(always)]
fn put<const IS_TRUSTED: bool>(task: Task<IS_TRUSTED>, serial: u64, cgroup_id: u64, record: &mut TaskRecord) {
    record.serial = serial;
    record.tid = task.tid();
    record.tgid = task.tgid();
    record.comm = task.comm();
    record.start_ns = task.start_ns();
    record.cgroup_id = cgroup_id;
    record.cpu = task.cpu();
    record.state = task.state();
    record.last_queued_ns = task.last_queued_ns();
    record.rq_clock_ns = task.clock_ns();
}

/// Prepares the accounts and the stack that follow the record.
#[inline(always)]
fn put_accounts(task: Task, storage: &mut TaskStorage, record: &mut TaskRecord) {
    if !keeps_accounts() {
        return;
    }
    let Some(accounts) = accounts_record() else { return };
    accounts::emit(task, &mut storage.blocked, accounts);
    has(record, HAS_ACCOUNTS, size_of::<AccountsRecord>());
    let since_ns = storage.blocked.since_ns;
    if accounts.is_due == 0 || since_ns == storage.blocked.reported_since_ns {
        return;
    }
    let Some(stack) = stack() else { return };
    storage.blocked.reported_since_ns = since_ns;
    accounts::take_stack(task, stack);
    has(record, HAS_STACK, size_of::<Stack>());
}

#[inline(always)]
fn write_accounts(seq: SeqFile, storage: &mut TaskStorage, record: &mut TaskRecord) {
    if !keeps_accounts() {
        return;
    }
    if get(&mut record.flags) & HAS_ACCOUNTS != 0
        && let Some(accounts) = accounts_record()
    {
        copy(&accounts.own, &mut storage.reported.accounts);
        seq.write(accounts);
    }
    if get(&mut record.flags) & HAS_STACK != 0
        && let Some(stack) = stack()
    {
        seq.write(stack);
    }
}

/// Maximum size of a record with the entry that may follow the record, bytes.
const LONGEST_EXITED: usize = size_of::<ExitedRecord>() + size_of::<Exited>();

// If the longest record might not fit, then two entries certainly do not fit.
const _: () = assert!(2 * size_of::<Exited>() > LONGEST_EXITED);

/// Iterates over the figures of exited tasks, by cgroup. A host has thousands of cgroups, and in most of them no task has exited
/// recently. So an entry is written in full only if it has changed.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map_elem")]
pub extern "C" fn read_exited(ctx: *const EntryContext) -> i32 {
    // SAFETY: the kernel passes the context of an iterator over `EXITED`, the only map to which this program is attached.
    let (seq, Some((cgroup_id, place))) = (unsafe { EntryContext::parts::<u64, Exited>(ctx) }) else {
        return 0;
    };
    if seq.space_left() <= LONGEST_EXITED as u64 {
        // The longest record might not fit. These writes are too large on purpose: the kernel then passes the buffer to user
        // space and repeats this entry.
        seq.write(place);
        seq.write(place);
        return 0;
    }
    // `complete` is read before the figures. So the figures include every addition that `complete` counts.
    let (complete, reported) = (get(&mut place.complete), get(&mut place.reported));
    let mut record = ExitedRecord { cgroup_id, follows: (!Exited::is_reported(complete, reported)).into() };
    seq.write(&mut record);
    if record.follows != 0 {
        seq.write(place);
        // No other program writes `reported`.
        set(&mut place.reported, [complete, reported[0]]);
    }
    0
}
