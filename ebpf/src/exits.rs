//! Adds a task's unreported figures to its cgroup when the task exits or moves to another cgroup.
//!
//! At a task's last switch (`TASK_DEAD`), its waits and counters are final. The reader skips a task that has begun to exit. So at
//! this point no figure is missed or counted twice. Nothing is allocated here, because the run queue lock is held. The entries
//! were created by the hook for new tasks and by the reader.

use core::{ffi::c_void, ptr::read_volatile};

use aya_ebpf::helpers::generated::bpf_loop;
use cgscope_ledger::{
    BLOCKED_STATES, CAUSES, Cause, Loss, bucket_of,
    cause::{BUCKETS_OF_ROW, ROWS, WHOLE, cell_of, row_of},
    host::Task as _,
    verifier::{add_atomic, opaque},
    wire::{Accounts, Exited, TaskStorage, Totals},
};

use crate::{
    chains, changes,
    kernel::{Task, born_after_ns, follow_all, keeps_accounts, root_cgroup_id},
    maps::{exited, lost, sleeper, storage},
};

/// Adds the unreported figures of an exited task. This function is not inlined, because exits are rare compared with switches.
#[inline(never)]
pub fn report_exit(task: Task) {
    let Some(storage) = storage(task) else { return report_unfollowed_exit(task) };
    chains::flush_of(task);
    if storage.is_handed_over != 0 {
        return;
    }
    storage.is_handed_over = 1;
    changes::exited(task, storage);
    if let Some(place) = place_for(task, storage.cgroup_id) {
        count_unseen_arrival(task, storage);
        let now = task.all_totals(&storage.waits, storage);
        add_atomic(&mut place.tasks, 1);
        hand_over_rest(task, storage, place, &now);
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
        let totals = Totals { wait_ns: totals.run_delay_ns, by_cause, ..totals };
        place.totals.add_since(&totals, &Totals::NONE, add_atomic);
        add_atomic(&mut place.complete, 1);
    }
}

/// Returns the first entry that exists: for the task's cgroup, for the cgroup `otherwise`, or for the root.
#[inline(always)]
fn place_for(task: Task, otherwise: u64) -> Option<&'static mut Exited> {
    let place = exited(task.cgroup_id_rarely()).or_else(|| {
        lost(Loss::ExitedInOtherCgroup);
        exited(otherwise).or_else(|| exited(root_cgroup_id()))
    });
    if place.is_none() {
        lost(Loss::ExitedNotCounted);
    }
    place
}

/// Adds the unreported figures to the cgroup's entry, and marks them as reported.
#[inline(always)]
pub fn hand_over_rest(task: Task, storage: &mut TaskStorage, place: &mut Exited, now: &Totals) {
    let reported = &mut storage.reported;
    place.totals.add_since(now, &reported.totals, add_atomic);
    reported.totals = *now;
    if keeps_accounts() {
        let accounts = Accounts { blocked_ns: storage.blocked.ns, ..task.accounts() };
        add_accounts(&mut place.accounts, &accounts, &mut reported.accounts);
    }
    let longest_ns = storage.waits.max_ns;
    if longest_ns > place.max_ns {
        // If two CPUs write at the same time, the smaller value may remain. The histogram includes the longer wait in any case.
        place.max_ns = longest_ns;
    }
    let mut rows = Rows { storage, place };
    // A plain loop would be expensive to verify: the verifier would follow each iteration, which made up two fifths of all
    // instructions that it followed.
    // SAFETY: the kernel passes `rows` to the function, which does not keep the pointer.
    unsafe { bpf_loop(ROWS as u32, add_row as *mut c_void, (&raw mut rows).cast(), 0) };
    add_atomic(&mut place.complete, 1);
}

struct Rows<'a> {
    storage: &'a mut TaskStorage,
    place: &'a mut Exited,
}

/// Adds the unreported part of one histogram row: its eight buckets, and its cells by cause. Returns 1 to stop the loop.
extern "C" fn add_row(row: u32, rows: &mut Rows<'_>) -> u64 {
    let row = opaque(row as usize);
    if row >= ROWS {
        return 1;
    }
    let (histogram, reported) = (&rows.storage.histogram, &mut rows.storage.reported.histogram);
    for bucket in row * BUCKETS_OF_ROW..(row + 1) * BUCKETS_OF_ROW {
        add_count(&mut rows.place.counts[bucket], &histogram.counts[bucket], &mut reported.counts[bucket]);
    }
    for cell in cell_of(row, 0)..cell_of(row + 1, 0) {
        add_count(&mut rows.place.shares[cell], &histogram.shares[cell], &mut reported.shares[cell]);
    }
    0
}

#[inline(always)]
fn add_count(sum: &mut u64, count: &u32, reported: &mut u32) {
    // SAFETY: the pointer comes from a reference. The value is read only once, because the hook on another CPU may change it.
    let now = unsafe { read_volatile(count) };
    if now != *reported {
        add_atomic(sum, u64::from(now.wrapping_sub(*reported)));
        *reported = now;
    }
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
pub fn count_unseen_arrival(task: Task, storage: &mut TaskStorage) {
    let waits = &mut storage.waits;
    let unseen_ns = task.run_delay_ns().wrapping_sub(waits.expected_run_delay_ns);
    // The number is negative if the task has just switched in and the kernel has not added the wait yet.
    if (unseen_ns as i64) <= 0 {
        return;
    }
    waits.expected_run_delay_ns = waits.expected_run_delay_ns.wrapping_add(unseen_ns);
    storage.moved.ns = 0;
    waits.total_ns += unseen_ns;
    storage.by_cause[Cause::Unattributed as usize] += unseen_ns;
    waits.count += 1;
    if unseen_ns > waits.max_ns {
        waits.max_ns = unseen_ns;
    }
    let bucket = bucket_of(unseen_ns);
    if let Some(count) = storage.histogram.counts.get_mut(bucket) {
        *count = count.wrapping_add(1);
    }
    let cell = cell_of(row_of(bucket), Cause::Unattributed as usize);
    if let Some(share) = storage.histogram.shares.get_mut(cell) {
        *share = share.wrapping_add(WHOLE);
    }
}
