//! The wait ledger: splits each wait by cause, into parts that sum to the wait.
//!
//! The history of the CPU explains a wait. While the CPU ran other tasks, the task waited behind them. While the CPU ran nobody,
//! the task was being woken. Throttled time is taken from the beginning of a wait, because the quota took the task off its CPU;
//! who ran during that time does not matter.

use cgscope_layout::{
    ByCause, Cause, Loss,
    cause::{SHARED_CAUSES, WHOLE, cell_of, row_of},
    history::Ring,
    ledger::{IDLE, KERNEL, Left, NO_CPU, RUNTIME, kind},
    look_back::cause_of,
    verifier::opaque,
    wire::{Histogram, TaskStorage},
};

use crate::{
    by_cpu,
    culprits::{Place, charge},
    kernel::{CfsRunQueue, Task, counts_by_cpu, has_nodes, throttles_tasks},
    look_back::{Wait, Work, is_charged, look_back},
    maps::{cpu_counters, lost, ring, work},
    placement,
};

/// Splits a wait and records it. Most waits begin and end within one slice. `who`: what the history calls the task.
#[inline(always)]
pub fn enter(next: Task, who: u64, storage: &mut TaskStorage, wait: Wait, ring: &mut Ring) {
    let number = ring.head;
    let latest = ring.slice(number);
    let is_long = latest.who == IDLE && wait.ns > LONGEST_WAKEUP_NS;
    let simple = wait.elsewhere_ns == 0 && storage.left.limit == 0 && throttles_tasks() && !is_long;
    // Kernel time below a 64th of a slice is neglected: the whole slice counts for its cgroup.
    let mixed = latest.kernel_ns << 6 > wait.clock_ns - latest.since_ns;
    if !simple || mixed || latest.since_ns == 0 || wait.queued_ns < latest.since_ns {
        // The wait is kept in memory, so that the verifier does not know its values. Otherwise it would follow each code path to
        // here by itself.
        if let Some(work) = work(Work::HOOK) {
            wait.put(work);
            enter_composed(next, storage, work);
        }
        return;
    }
    let mut cause = Cause::Wakeup as u64;
    if latest.who != IDLE {
        let victim = if who == KERNEL { next.cgroup_id_rarely() } else { who };
        cause = cause_of(latest.who, victim) as u64;
        if is_charged(latest.who, victim) {
            let place = Place { cpu: wait.cpu, history: wait.cpu, number };
            charge(victim, latest.who, kind::RAN, wait.ns, wait.clock_ns, place);
        }
    }
    // The cause is passed as a number: otherwise the verifier would follow each cause as a code path of its own.
    add(&mut storage.by_cause, cause, wait.ns);
    count(&mut storage.histogram, wait.bucket, cause, u64::from(WHOLE));
    if counts_by_cpu() {
        by_cpu::enter(wait.cpu, wait.bucket, cause, wait.ns);
    }
}

#[inline(always)]
pub fn add(by_cause: &mut ByCause, cause: u64, ns: u64) {
    // Always in bounds, but the verifier requires the check.
    if let Some(sum) = by_cause.get_mut(opaque(cause as usize)) {
        *sum += ns;
    }
}

#[inline(always)]
pub fn count(histogram: &mut Histogram, bucket: u64, cause: u64, share: u64) {
    if cause >= SHARED_CAUSES as u64 {
        return;
    }
    // Always in bounds, but the verifier requires the check.
    let cell = opaque(cell_of(row_of(bucket as usize), cause as usize));
    if let Some(cell) = histogram.shares.get_mut(cell) {
        *cell = cell.wrapping_add(share as u32);
    }
}

#[inline(never)]
fn enter_composed(next: Task, storage: &mut TaskStorage, work: &mut Work) {
    let wait = Wait::taken_from(work);
    work.begin(next.cgroup_id_rarely(), wait.cpu, wait.clock_ns);
    if is_out_of_runtime(&storage.left, next) {
        work.walk.add(Cause::Unattributed, wait.ns);
        lost(Loss::OutOfRuntime);
    } else {
        split(next, storage, work, wait);
    }
    if work.walk.parts[Cause::Throttled as usize] != 0 {
        storage.throttled_waits += 1;
    }
    book(&mut storage.by_cause, &mut storage.histogram, work);
    if counts_by_cpu()
        && let Some(counters) = cpu_counters(wait.cpu)
    {
        book(&mut counters.by_cause, &mut counters.histogram, work);
    }
}

#[inline(always)]
fn split(next: Task, storage: &mut TaskStorage, work: &mut Work, wait: Wait) {
    if wait.elsewhere_ns != 0 {
        elsewhere(next, &storage.left, work);
    }
    if wait.queued_ns != 0 {
        work.span(wait.cpu, wait.queued_ns, wait.clock_ns);
        if wait.elsewhere_ns == 0 {
            let throttled_ns = throttled(next, &storage.left, wait.cpu, wait.clock_ns);
            out_of_quota(next, &storage.left, work, throttled_ns);
        }
        look_back(Work::HOOK);
        if wait.elsewhere_ns == 0
            && work.walk.parts[Cause::Unattributed as usize] != 0
            && begins(&storage.left, next)
        {
            beyond_history(next, &storage.left, work);
        }
    }
    if doubt_wakeup(next, work) {
        lost(Loss::OutOfRuntime);
    }
}

/// Limit of a plausible wakeup. No CPU takes longer to wake up: the deepest idle states take some 200 us. If the CPU of a woken
/// real-time or deadline task ran nobody for longer, the task had no runtime left.
const LONGEST_WAKEUP_NS: u64 = 1_000_000;

#[inline(always)]
fn doubt_wakeup(task: Task, work: &mut Work) -> bool {
    let idle_ns = work.walk.parts[Cause::Wakeup as usize];
    let is_doubtful = idle_ns > LONGEST_WAKEUP_NS && task.is_real_time();
    if is_doubtful {
        work.walk.parts[Cause::Wakeup as usize] = 0;
        work.walk.add(Cause::Unattributed, idle_ns);
    }
    is_doubtful
}

/// Explains the part of a wait that is older than the history, if the hook saw the wait begin. That part is what the CPU did
/// since then, less what the history explains. The culprits stay unknown. The group's run time includes its child groups, so here
/// they count as its own cgroup. If the task was also throttled, what the CPU did is divided in proportion between the throttled
/// and the unknown time.
#[inline(never)]
fn beyond_history(next: Task, left: &Left, work: &mut Work) {
    let Some(ring) = ring(work.cpu()) else { return };
    // 0 for a task of the root, or if the hook did not see the wait begin. After a move the sum belongs to another group.
    if left.group_ran_ns == 0 || left.group != next.group_address() {
        return;
    }
    let group_ran_ns = next.group_ran_ns();
    let unknown_ns = work.walk.parts[Cause::Unattributed as usize];
    let before_ns = unknown_ns + work.walk.parts[Cause::Throttled as usize];
    let share = (unknown_ns << 10).checked_div(before_ns).unwrap_or(0);
    let rest = |sum_ns: u64, known_ns: u64| (sum_ns.saturating_sub(known_ns) * share) >> 10;
    let kernel_ns =
        rest(ring.kernel_ns - left.kernel_ns, work.walk.parts[Cause::Kernel as usize]).min(unknown_ns);
    let idle_ns = rest(ring.idle_ns - left.idle_ns, work.walk.parts[Cause::Wakeup as usize])
        .min(unknown_ns - kernel_ns);
    let own_ns =
        rest(group_ran_ns.saturating_sub(left.group_ran_ns), work.walk.parts[Cause::OwnCgroup as usize])
            .min(unknown_ns - kernel_ns - idle_ns);
    work.explain(kernel_ns, idle_ns, own_ns, unknown_ns - kernel_ns - idle_ns - own_ns);
}

/// Takes throttled time from the beginning of the span.
#[inline(always)]
fn out_of_quota(next: Task, left: &Left, work: &mut Work, throttled_ns: u64) {
    let throttled_ns = throttled_ns.min(work.walk.to_ns - work.walk.from_ns);
    if throttled_ns == 0 {
        return;
    }
    work.walk.add(Cause::Throttled, throttled_ns);
    work.walk.from_ns += throttled_ns;
    let mut limit = left.limit;
    if !throttles_tasks() {
        // Before Linux 6.18 the quota may have run out while the task was queued, after `left` was recorded.
        next.find_limit(&mut limit);
    }
    work.charge_limit(limit, throttled_ns);
}

/// Adds the parts of the wait: in ns to the sums, and as shares to the histogram. The largest part receives what rounding loses.
#[inline(never)]
fn book(by_cause: &mut ByCause, histogram: &mut Histogram, work: &mut Work) {
    let wait = &Wait::taken_from(work);
    work.begin_sharing();
    for cause in Cause::ALL {
        book_part(by_cause, histogram, wait, work, cause);
    }
    let (largest, rest) = work.rounding();
    count(histogram, wait.bucket, largest, rest);
}

#[inline(always)]
fn book_part(by_cause: &mut ByCause, histogram: &mut Histogram, wait: &Wait, work: &mut Work, cause: Cause) {
    let ns = work.walk.parts[cause as usize];
    if ns == 0 {
        return;
    }
    by_cause[cause as usize] += ns;
    // Waits are shorter than 2^58 ns, and not 0.
    let share = (ns * u64::from(WHOLE)).checked_div(wait.ns).unwrap_or(0);
    work.shared(cause, ns, share);
    count(histogram, wait.bucket, cause as u64, share);
}

/// Returns whether the wait began because a real-time or deadline task had used up its runtime.
#[inline(always)]
fn is_out_of_runtime(left: &Left, task: Task) -> bool {
    left.limit == RUNTIME && begins(left, task)
}

/// Returns whether `left` describes how the current wait of `task`, or the one that ends now, began.
#[inline(always)]
fn begins(left: &Left, task: Task) -> bool {
    left.ns != 0 && left.switches == task.switches()
}

/// Returns the throttled time of a wait that began and ends on this CPU. If it is longer than the wait, all of the wait was
/// throttled.
#[inline(always)]
fn throttled(task: Task, left: &Left, cpu: u32, clock_ns: u64) -> u64 {
    // Since Linux 6.18 a task is throttled only when it returns to user space. A task that was woken or preempted in the kernel
    // runs on.
    if throttles_tasks() && (left.limit == 0 || !begins(left, task)) {
        return 0;
    }
    let cfs_rq = task.cfs_rq();
    if left.cfs_rq != cfs_rq.address() || (!throttles_tasks() && task.is_real_time()) {
        return 0;
    }
    cfs_rq.throttled_ns(&left.cfs_rq, cpu, clock_ns).saturating_sub(left.throttle_ns)
}

/// Splits the part of a wait on another CPU. Its causes are known only if the task migrated once since it last ran: then it was
/// queued on the CPU where it ran, and moved from there during the wait.
#[inline(never)]
fn elsewhere(next: Task, left: &Left, work: &mut Work) {
    let wait = Wait::taken_from(work);
    if left.cpu == NO_CPU || left.migrations.wrapping_add(1) != next.migrations() {
        work.walk.add(Cause::Unattributed, wait.elsewhere_ns);
        return;
    }
    let begins_there = begins(left, next);
    // A migration takes some microseconds at most, so the part ends when the task was queued here.
    let from_ns = if begins_there { left.ns } else { wait.end_elsewhere_ns() - wait.elsewhere_ns };
    work.span(left.cpu, from_ns, from_ns + wait.elsewhere_ns);
    let may_be_throttled = left.limit != 0 || (!throttles_tasks() && !next.is_real_time());
    if begins_there && may_be_throttled && left.group == next.group_address() {
        let now_ns =
            CfsRunQueue::throttled_ns_at(left.cfs_rq, left.cpu, wait.clock_ns).unwrap_or(left.throttle_ns);
        out_of_quota(next, left, work, now_ns.saturating_sub(left.throttle_ns));
    }
    look_back(Work::HOOK);
}

/// Records that `next` has switched in on `cpu`. Its next wait begins there, unless it migrates before.
#[inline(always)]
pub fn came(next: Task, storage: &mut TaskStorage, cpu: u32, clock_ns: u64) {
    if storage.left.cpu != cpu {
        if has_nodes() {
            placement::moved(next, &mut storage.placement, cpu);
        }
        storage.left.cpu = cpu;
    }
    storage.left.migrations = next.migrations();
    if !throttles_tasks() {
        // The task's queue is not throttled while the task runs, so this is the base for the next wait, also after a sleep.
        let cfs_rq = next.cfs_rq();
        storage.left.cfs_rq = cfs_rq.address();
        storage.left.throttle_ns = cfs_rq.throttled_ns(&storage.left.cfs_rq, cpu, clock_ns);
    }
}

/// Records how `prev` leaves its CPU although it could run on: a wait begins.
#[inline(always)]
pub fn leave(prev: Task, next: Task, storage: &mut TaskStorage, ring: &Ring, cpu: u32, clock_ns: u64) {
    let left = &mut storage.left;
    left.kernel_ns = ring.kernel_ns;
    left.idle_ns = ring.idle_ns;
    left.group_ran_ns = prev.group_ran_ns();
    left.group = prev.group_address();
    left.ns = clock_ns;
    left.switches = prev.switches();
    left.limit = 0;
    if prev.is_real_time() {
        if gives_way(prev, next) {
            left.limit = RUNTIME;
        }
    } else if prev.is_throttled() {
        let cfs_rq = prev.cfs_rq();
        left.cfs_rq = cfs_rq.address();
        left.throttle_ns = cfs_rq.throttled_ns(&left.cfs_rq, cpu, clock_ns);
        prev.find_limit(&mut left.limit);
    }
}

/// Returns whether a task of lower priority, or nobody, replaces a runnable real-time task. That happens only when its runtime is
/// used up.
#[inline(always)]
fn gives_way(prev: Task, next: Task) -> bool {
    let (from, to) = (prev.prio(), next.prio());
    // Deadline tasks have a `prio` below 0. The stopper thread, which moves tasks between CPUs, precedes all others but has
    // `prio` 0.
    from < to && (from >= 0 || to > 0)
}

/// Records how a throttled task left its CPU before we followed it. The hook does not write this record at the same time. If the
/// task switches in right now, its number of switches shows that the record belongs to a past wait.
#[inline(never)]
pub fn was_throttled(task: Task, left: &mut Left) {
    let queued_ns = task.last_queued_ns();
    if queued_ns == 0 {
        return;
    }
    let cfs_rq = task.cfs_rq();
    left.ns = queued_ns;
    left.switches = task.switches();
    left.cfs_rq = cfs_rq.address();
    left.throttle_ns = cfs_rq.throttled_ns(&left.cfs_rq, task.run_queue().cpu(), queued_ns);
    left.group = task.group_address();
    // The CPU's sums at that time are no longer known.
    left.group_ran_ns = 0;
    task.find_limit(&mut left.limit);
}

/// Splits the current wait of `task` so far by cause. Returns the cause at this moment.
#[inline(never)]
pub fn pending(task: Task, storage: &TaskStorage, by_cause: &mut ByCause) -> Cause {
    let queue = task.run_queue();
    let clock_ns = queue.clock_ns();
    let queued_ns = task.last_queued_ns();
    let Some(work) = work(Work::READER) else { return Cause::Unattributed };
    let victim = task.cgroup_id_rarely();
    work.begin(victim, Work::NOBODY, clock_ns);
    let mut cause = Cause::Unattributed;
    if queued_ns != 0 && is_out_of_runtime(&storage.left, task) {
        work.walk.add(Cause::Unattributed, clock_ns.saturating_sub(queued_ns));
    } else if queued_ns != 0 && queued_ns < clock_ns {
        let throttled_ns = throttled(task, &storage.left, queue.cpu(), clock_ns).min(clock_ns - queued_ns);
        work.walk.add(Cause::Throttled, throttled_ns);
        work.span(queue.cpu(), queued_ns + throttled_ns, clock_ns);
        look_back(Work::READER);
        if let Some(ring) = ring(queue.cpu()) {
            let latest = ring.head;
            cause = cause_of(ring.slice(latest).who, victim);
        }
        let all_of_it = throttled_ns != 0 && queued_ns + throttled_ns == clock_ns;
        if task.is_throttled() || (!throttles_tasks() && all_of_it) {
            cause = Cause::Throttled;
        } else if doubt_wakeup(task, work) {
            cause = Cause::Unattributed;
        }
    }
    *by_cause = work.walk.parts;
    cause
}
