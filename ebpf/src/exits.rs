//! Adds a task's unreported figures to its cgroup when the task exits or moves to another cgroup.
//!
//! At a task's last switch (`TASK_DEAD`), its waits and counters are final. The reader skips a task that has begun to exit. So at
//! this point no figure is missed or counted twice. Nothing is allocated here, because the run queue lock is held. The entries
//! were created by the hook for new tasks and by the reader.

use cgscope_ledger::{
    BLOCKED_STATES, CAUSES, Cause, Loss, bucket_of,
    cause::ROWS,
    host::{Host as _, Task as _},
    verifier::{add_atomic, exchange, get, set},
    waits::log,
    wire::{Accounts, COUNTERS_OF_ROW, Exited, Histogram, TaskStorage, Totals},
};

use crate::{
    chains, changes,
    host::{Kernel, exported},
    kernel::{Task, born_after_ns, follow_all, keeps_accounts, root_cgroup_id},
    maps::{exited, histogram, lost, no_waits, remove_moved, sleeper},
    moves,
    slots::storage,
};

/// Adds the unreported figures of an exited task. This function is not inlined, because exits are rare compared with switches.
#[inline(never)]
pub fn report_exit(task: Task) {
    let Some(storage) = storage(task) else { return report_unfollowed_exit(task) };
    chains::flush_of(task);
    if storage.is_handed_over == 0 {
        changes::exited(task, storage);
        exchange(&mut storage.is_handed_over, EXITED);
        if let Some(histogram) = histogram(task).or_else(no_waits) {
            hand_over_exited(storage, histogram);
        }
    }
}

/// In [`TaskStorage::is_handed_over`]: the task has exited, and its figures are not added yet. If the reader holds the lock of the
/// storage at the exit, it adds them when it has released the lock.
pub const EXITED: u64 = 2;

exported! {
    /// Adds the figures of an exited task, unless this is done, or the storage is locked. `histogram` is that of the task, or
    /// [`no_waits`].
    pub fn hand_over_exited([storage: TaskStorage], [histogram: Histogram]) = if moves::try_lock(storage) {
        add_exited(Task::of(storage), storage, histogram);
        moves::unlock(storage);
    };
}

#[inline(always)]
fn add_exited(task: Task<false>, storage: &mut TaskStorage, histogram: &mut Histogram) {
    if get(&mut storage.is_handed_over) != EXITED {
        return;
    }
    set(&mut storage.is_handed_over, 1);
    if let Some(place) = place_for(task, storage.cgroup_id) {
        count_unseen_arrival(task, storage);
        add_atomic(&mut place.tasks, 1);
        hand_over_rest(task, storage, histogram, place, None);
    }
    if storage.reported.serial != storage.serial {
        remove_moved(storage.reported.serial);
    }
}

/// Adds the figures of a task that exits before the next reading and has no storage. For such a task, only the kernel's sums are
/// known. Its waits are in no histogram; the loss `StorageNotCreated` was counted when the task started.
#[inline(always)]
fn report_unfollowed_exit(task: Task) {
    if sleeper(task).is_some() {
        // The task was reported, although it never had a storage.
        changes::all_may_have_changed();
    }
    if !follow_all() || task.start_ns() <= born_after_ns() {
        return;
    }
    if let Some(place) = place_for(task, root_cgroup_id()) {
        let totals = task.totals();
        add_atomic(&mut place.tasks, 1);
        let mut by_cause = [0; CAUSES];
        by_cause[Cause::Unattributed as usize] = totals.run_delay_ns;
        let totals = Totals { by_cause, ..totals };
        place.totals.add_since(&totals, &Totals::NONE, add_atomic);
        add_atomic(&mut place.complete, 1);
    }
}

/// Returns the first entry that exists: for the task's cgroup, for the cgroup `otherwise`, or for the root.
#[inline(always)]
fn place_for<const IS_TRUSTED: bool>(task: Task<IS_TRUSTED>, otherwise: u64) -> Option<&'static mut Exited> {
    let place = exited(task.cgroup_id_rarely()).or_else(|| {
        lost(Loss::ExitedInOtherCgroup);
        exited(otherwise).or_else(|| exited(root_cgroup_id()))
    });
    if place.is_none() {
        lost(Loss::ExitedNotCounted);
    }
    place
}

/// Adds the unreported figures to the cgroup's entry, and marks them as reported. If the task moves, adds its waits to `moved`, too.
#[inline(always)]
pub fn hand_over_rest(
    task: Task<false>,
    storage: &mut TaskStorage,
    histogram: &mut Histogram,
    place: &mut Exited,
    moved: Option<&'static mut Histogram>,
) {
    hand_over_totals(task, storage, place);
    let longest_ns = storage.waits.max_ns;
    if longest_ns > place.max_ns {
        // If two CPUs write at the same time, the smaller value may remain. The histogram includes the longer wait in any case.
        place.max_ns = longest_ns;
    }
    let to = if moved.is_some() { TO_PLACE | TO_HISTOGRAM } else { TO_PLACE };
    if let Some(moved) = moved.or_else(no_waits) {
        take_waits(storage, histogram, place, moved, to);
    }
    add_atomic(&mut place.complete, 1);
}

/// This function is not inlined, so that its stack is free again when the waits are added.
#[inline(never)]
fn hand_over_totals(task: Task<false>, storage: &mut TaskStorage, place: &mut Exited) {
    // If the task moves, the sum includes the wait that ends with this switch, which the kernel adds only after the hook. The sum is
    // at least the reported sum, which may include the first part of an unfinished wait.
    let run_delay_ns = storage.waits.expected_run_delay_ns.max(storage.reported.totals.run_delay_ns);
    let now = Totals {
        run_delay_ns,
        unstamped: storage.unstamped_count,
        unstamped_ns: storage.unstamped_ns,
        throttled_waits: storage.throttled_waits,
        ..task.totals()
    };
    storage.reported.totals.hand_over(&now, &storage.by_cause, &mut place.totals);
    if keeps_accounts() {
        let accounts = Accounts { blocked_ns: storage.blocked.ns, ..task.accounts() };
        add_accounts(&mut place.accounts, &accounts, &mut storage.reported.accounts);
    }
}

/// To which of its parameters [`take_waits`] adds the waits.
const TO_PLACE: u64 = 1;
pub const TO_HISTOGRAM: u64 = 2;

struct Taken<'a> {
    storage: &'a mut TaskStorage,
    histogram: &'a mut Histogram,
    place: &'a mut Exited,
    into: &'a mut Histogram,
    to: u64,
    /// Number of the next row.
    row: usize,
    /// The latest result of [`log::take`].
    latest: u64,
    /// Not 0 if there were waits.
    any: u64,
}

exported! {
    /// Takes the waits from the log and the histogram of a task. Adds them to the figures of exited tasks, or to another histogram, or
    /// to both. Returns 0 if there were none.
    pub fn take_waits([storage: TaskStorage], [histogram: Histogram], [place: Exited], [into: Histogram], to: u64) -> u32 =
        take_all(Taken { storage, histogram, place, into, to, row: 0, latest: 0, any: 0 });
}

#[inline(always)]
fn take_all(mut taken: Taken<'_>) -> u32 {
    <Kernel>::repeat(log::TAKES, take_entry, &mut taken);
    // Otherwise the hook counts the entries at this moment, and the next reading takes the histogram.
    if taken.latest == 0 {
        <Kernel>::repeat(ROWS as u32, take_row, &mut taken);
    }
    (taken.any != 0).into()
}

/// Takes the next entry of the log. Returns true if there is none.
#[inline(always)]
fn take_entry(taken: &mut Taken<'_>) -> bool {
    let entry = log::take(taken.storage);
    taken.latest = entry.into();
    if entry == 0 {
        return true;
    }
    if entry != log::AGAIN {
        taken.any = 1;
        if taken.to & TO_PLACE != 0 {
            log::add_entry_to_place(taken.place, entry);
        }
        if taken.to & TO_HISTOGRAM != 0 {
            log::add(taken.into, entry);
        }
    }
    false
}

/// Takes the next row of the histogram. Returns true if there is none.
#[inline(always)]
fn take_row(taken: &mut Taken<'_>) -> bool {
    let row = get(&mut taken.row);
    set(&mut taken.row, row + 1);
    let (Some(words), Some(into)) = (taken.histogram.words(row), taken.into.words(row)) else { return true };
    for (pair, (word, into)) in words.iter_mut().zip(into).enumerate() {
        if get(word) == 0 {
            continue;
        }
        let counters = exchange(word, 0);
        taken.any = 1;
        if taken.to & TO_HISTOGRAM != 0 {
            *into += counters;
        }
        if taken.to & TO_PLACE != 0 {
            let first = (row * COUNTERS_OF_ROW + 2 * pair) as u32;
            log::add_to_place(taken.place, first, counters as u32);
            log::add_to_place(taken.place, first + 1, (counters >> 32) as u32);
        }
    }
    false
}

#[inline(always)]
fn add_accounts(sums: &mut Accounts, now: &Accounts, reported: &mut Accounts) {
    add_time(&mut sums.user_ns, now.user_ns, &mut reported.user_ns);
    add_time(&mut sums.system_ns, now.system_ns, &mut reported.system_ns);
    add_time(&mut sums.guest_ns, now.guest_ns, &mut reported.guest_ns);
    for state in 0..BLOCKED_STATES {
        add_time(&mut sums.blocked_ns[state], now.blocked_ns[state], &mut reported.blocked_ns[state]);
    }
}

/// Adds the increase since the last report. A time can seem to decrease, because the clocks of two CPUs differ and readings
/// include unfinished times. Then nothing is added.
#[inline(always)]
fn add_time(sum: &mut u64, now: u64, reported: &mut u64) {
    if now > *reported {
        add_atomic(sum, now - *reported);
        *reported = now;
    }
}

/// Counts a wait whose end the hook did not see. A hardened kernel may run no tracing program while a hidden process is on the
/// CPU, or when that process switches out. Usually such a wait is counted when the hook next sees the task switch in. If the hook
/// sees no further switch in, this function counts the wait.
#[inline(always)]
pub fn count_unseen_arrival<const IS_TRUSTED: bool>(task: Task<IS_TRUSTED>, storage: &mut TaskStorage) {
    let waits = &mut storage.waits;
    let unseen_ns = task.run_delay_ns().wrapping_sub(waits.expected_run_delay_ns);
    // The number is negative if the task has just switched in and the kernel has not added the wait yet.
    if (unseen_ns as i64) <= 0 {
        return;
    }
    waits.expected_run_delay_ns = waits.expected_run_delay_ns.wrapping_add(unseen_ns);
    if unseen_ns > waits.max_ns {
        waits.max_ns = unseen_ns;
    }
    storage.moved.ns = 0;
    storage.by_cause[Cause::Unattributed as usize] += unseen_ns;
    log::append(storage, log::entry_of(bucket_of(unseen_ns), Cause::Unattributed));
}
