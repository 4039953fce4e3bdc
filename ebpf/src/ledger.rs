//! The wait ledger: splits each wait by cause, into parts that sum to the wait.
//!
//! A wait consists of segments, one for each CPU on which the task waited. The history of its CPU explains a segment. While the CPU
//! ran other tasks, the task waited behind them. While the CPU ran nobody, the task was being woken. Throttled time is taken from
//! the beginning of a segment, because the quota took the task off its CPU; who ran during that time does not matter.

use cgscope_layout::{
    ByCause, CAUSES, Cause, Loss,
    cause::{SHARED_CAUSES, WHOLE, cell_of, row_of},
    history::Ring,
    ledger::{ASLEEP, IDLE, KERNEL, Moved, RUNTIME, Start, kind},
    look_back::cause_of,
    verifier::{get, opaque},
    wire::{Histogram, TaskStorage},
};

use crate::{
    by_cpu,
    culprits::{Place, charge},
    kernel::{FarQueue, Task, counts_by_cpu, has_nodes, throttles_tasks},
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
    let simple = wait.elsewhere_ns == 0 && storage.start.limit == 0 && throttles_tasks() && !is_long;
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
    if wait.queued_ns != 0 {
        work.span(wait.cpu, wait.queued_ns, wait.clock_ns);
        split(next, &storage.start, work, Work::HOOK);
    }
    if wait.elsewhere_ns != 0 {
        add_moved(&mut storage.moved, work, wait.elsewhere_ns);
    }
    storage.start.limit = 0;
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

/// Adds the segments on other CPUs to the wait. If `on_move` missed a move, the rest of `elsewhere_ns` is unattributed.
#[inline(always)]
fn add_moved(moved: &mut Moved, work: &mut Work, elsewhere_ns: u64) {
    if moved.ns != 0 {
        for cause in Cause::ALL {
            work.walk.add(cause, moved.parts[cause as usize]);
        }
    }
    work.walk.add(Cause::Unattributed, elsewhere_ns.saturating_sub(moved.ns));
    moved.ns = 0;
}

/// Splits the wait segment of a `task` that moves away from its CPU.
#[inline(never)]
pub fn end_segment(task: Task, storage: &mut TaskStorage) {
    // The kernel has just added the segment. What it had added before belongs to earlier segments.
    let elsewhere_ns = task.run_delay_ns().wrapping_sub(storage.waits.expected_run_delay_ns);
    let moved = &mut storage.moved;
    let ns = elsewhere_ns.wrapping_sub(moved.ns);
    if (ns as i64) <= 0 {
        return;
    }
    let Some(work) = work(Work::HOOK) else { return };
    let queue = task.run_queue();
    let (cpu, clock_ns) = (queue.cpu(), queue.clock_ns());
    work.begin(task.cgroup_id_rarely(), cpu, clock_ns);
    if storage.start.cpu != cpu && is_seen(&storage.start, task) {
        // We missed a move, so nobody knows when the task arrived here.
        work.walk.add(Cause::Unattributed, ns);
    } else {
        work.span(cpu, clock_ns - ns, clock_ns);
        split(task, &storage.start, work, Work::HOOK);
    }
    if moved.ns == 0 {
        moved.parts = [0; CAUSES];
    }
    for cause in Cause::ALL {
        moved.parts[cause as usize] += work.walk.parts[cause as usize];
    }
    moved.ns = elsewhere_ns;
}

/// Records that the next wait segment of `task` begins on another CPU. That CPU's queue is not locked, so its clock may be old.
#[inline(never)]
pub fn move_to(task: Task, start: &mut Start, cpu: u32) {
    start.is_seen = 1;
    start.switches = task.switches();
    start.cpu = cpu;
    start.group_ran_ns = 0;
    if task.sleeps_on_queue() {
        start.limit = ASLEEP;
    } else if throttles_tasks() && !task.is_throttled() {
        start.limit = 0;
    } else {
        let queue = FarQueue::of(task, cpu);
        start.cfs_rq = queue.address;
        start.throttle_ns = queue.throttled_ns_at_0();
        // Since Linux 6.18: where the group has quota, the task can run again (`enqueue_throttled_task`).
        if throttles_tasks() && queue.levels_out_of_quota() == 0 {
            start.limit = 0;
        }
    }
}

/// Splits the segment that is the span of `work`, which has no parts yet.
#[inline(never)]
fn split(task: Task, start: &Start, work: &mut Work, which: u32) {
    let (cpu, from_ns, to_ns) = (work.cpu(), get(&mut work.walk.from_ns), get(&mut work.walk.to_ns));
    let is_seen = is_seen(start, task);
    let unknown = match start.limit {
        RUNTIME if is_seen => Some(Loss::OutOfRuntime),
        ASLEEP if is_seen => Some(Loss::MovedAsleep),
        _ => None,
    };
    if let Some(loss) = unknown {
        work.walk.add(Cause::Unattributed, to_ns - from_ns);
        lose(loss, which);
        return;
    }
    let is_seen = is_seen && start.cpu == cpu;
    let throttled_ns = throttled_ns(task, start, cpu, is_seen, from_ns, to_ns);
    out_of_quota(task, start, work, throttled_ns);
    look_back(which);
    if is_seen && work.walk.parts[Cause::Unattributed as usize] != 0 {
        beyond_history(task, start, work);
    }
    if doubt_wakeup(task, work) {
        lose(Loss::OutOfRuntime, which);
    }
}

/// Counts a loss, but not each time that the reader sees it.
#[inline(always)]
fn lose(loss: Loss, which: u32) {
    if which == Work::HOOK {
        lost(loss);
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

/// Explains the part of a segment that is older than the history, if the hook saw the segment begin. That part is what the CPU did
/// since then, less what the history explains. The culprits stay unknown. The group's run time includes its child groups, so here
/// they count as its own cgroup. If the task was also throttled, what the CPU did is divided in proportion between the throttled
/// and the unknown time.
#[inline(never)]
fn beyond_history(task: Task, start: &Start, work: &mut Work) {
    let Some(ring) = ring(work.cpu()) else { return };
    // 0 for a task of the root, or after a move to this CPU. After a move to another cgroup the sum belongs to another group.
    if start.group_ran_ns == 0 || start.group != task.group_address() {
        return;
    }
    let group_ran_ns = task.group_ran_ns();
    let unknown_ns = work.walk.parts[Cause::Unattributed as usize];
    let before_ns = unknown_ns + work.walk.parts[Cause::Throttled as usize];
    let share = (unknown_ns << 10).checked_div(before_ns).unwrap_or(0);
    let rest = |sum_ns: u64, known_ns: u64| (sum_ns.saturating_sub(known_ns) * share) >> 10;
    let kernel_ns =
        rest(ring.kernel_ns - start.kernel_ns, work.walk.parts[Cause::Kernel as usize]).min(unknown_ns);
    let idle_ns = rest(ring.idle_ns - start.idle_ns, work.walk.parts[Cause::Wakeup as usize])
        .min(unknown_ns - kernel_ns);
    let own_ns =
        rest(group_ran_ns.saturating_sub(start.group_ran_ns), work.walk.parts[Cause::OwnCgroup as usize])
            .min(unknown_ns - kernel_ns - idle_ns);
    work.explain(kernel_ns, idle_ns, own_ns, unknown_ns - kernel_ns - idle_ns - own_ns);
}

/// Takes throttled time from the beginning of the span.
#[inline(always)]
fn out_of_quota(task: Task, start: &Start, work: &mut Work, throttled_ns: u64) {
    let throttled_ns = throttled_ns.min(work.walk.to_ns - work.walk.from_ns);
    if throttled_ns == 0 {
        return;
    }
    work.walk.add(Cause::Throttled, throttled_ns);
    work.walk.from_ns += throttled_ns;
    let mut limit = start.limit;
    if !throttles_tasks() {
        // Before Linux 6.18 the quota may have run out while the task was queued, after `start` was recorded.
        task.find_limit(&mut limit);
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

/// Returns whether `start` describes how the current segment of `task`, or the one that ends now, began.
#[inline(always)]
fn is_seen(start: &Start, task: Task) -> bool {
    start.is_seen != 0 && start.switches == task.switches()
}

/// Returns the throttled time of a segment on this CPU. If it is longer than the segment, all of the segment was throttled.
#[inline(always)]
fn throttled_ns(task: Task, start: &Start, cpu: u32, is_seen: bool, from_ns: u64, to_ns: u64) -> u64 {
    // Since Linux 6.18 a task is throttled only when it returns to user space. A task that was woken or preempted in the kernel
    // runs on.
    if throttles_tasks() && (start.limit == 0 || !is_seen) {
        return 0;
    }
    let cfs_rq = task.cfs_rq();
    if start.cfs_rq != cfs_rq.address() || (!throttles_tasks() && task.is_real_time()) {
        return 0;
    }
    start.throttled_ns(cfs_rq.throttled_ns(&start.cfs_rq, cpu, to_ns), from_ns)
}

/// Records that `next` has switched in on `cpu`. Its next wait begins there, unless it wakes up on another CPU.
#[inline(always)]
pub fn came(next: Task, storage: &mut TaskStorage, cpu: u32, clock_ns: u64) {
    if has_nodes() && storage.start.ran_on != cpu {
        placement::moved(next, &mut storage.placement, cpu);
        storage.start.ran_on = cpu;
    }
    if !throttles_tasks() {
        // The task's queue is not throttled while the task runs, so this is the base for the next wait, also after a sleep.
        let cfs_rq = next.cfs_rq();
        storage.start.cfs_rq = cfs_rq.address();
        storage.start.throttle_ns = cfs_rq.throttled_ns(&storage.start.cfs_rq, cpu, clock_ns);
    }
}

/// Records how `prev` leaves its CPU although it could run on: a wait begins.
#[inline(always)]
pub fn leave(prev: Task, next: Task, storage: &mut TaskStorage, ring: &Ring, cpu: u32, clock_ns: u64) {
    let start = &mut storage.start;
    start.kernel_ns = ring.kernel_ns;
    start.idle_ns = ring.idle_ns;
    start.group_ran_ns = prev.group_ran_ns();
    start.group = prev.group_address();
    start.is_seen = 1;
    start.cpu = cpu;
    start.switches = prev.switches();
    start.limit = 0;
    if prev.is_real_time() {
        if gives_way(prev, next) {
            start.limit = RUNTIME;
        }
    } else if prev.is_throttled() {
        let cfs_rq = prev.cfs_rq();
        start.cfs_rq = cfs_rq.address();
        start.throttle_ns = cfs_rq.throttled_ns(&start.cfs_rq, cpu, clock_ns);
        prev.find_limit(&mut start.limit);
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
pub fn was_throttled(task: Task, start: &mut Start) {
    let queued_ns = task.last_queued_ns();
    if queued_ns == 0 {
        return;
    }
    let cfs_rq = task.cfs_rq();
    start.is_seen = 1;
    start.cpu = task.run_queue().cpu();
    start.switches = task.switches();
    start.cfs_rq = cfs_rq.address();
    start.throttle_ns = cfs_rq.throttled_ns(&start.cfs_rq, start.cpu, queued_ns);
    start.group = task.group_address();
    // The CPU's sums at that time are no longer known.
    start.group_ran_ns = 0;
    task.find_limit(&mut start.limit);
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
    if queued_ns != 0 && queued_ns < clock_ns {
        work.span(queue.cpu(), queued_ns, clock_ns);
        split(task, &storage.start, work, Work::READER);
        if let Some(ring) = ring(queue.cpu()) {
            let latest = ring.head;
            cause = cause_of(ring.slice(latest).who, victim);
        }
        let is_all = |cause: Cause| work.walk.parts[cause as usize] == clock_ns - queued_ns;
        if task.is_throttled() || (!throttles_tasks() && is_all(Cause::Throttled)) {
            cause = Cause::Throttled;
        } else if is_all(Cause::Unattributed) {
            cause = Cause::Unattributed;
        }
    }
    // The hook may end this wait or a segment at the same time. User space compares the sum with the length of the wait.
    let elsewhere_ns = task.run_delay_ns().wrapping_sub(storage.waits.expected_run_delay_ns);
    if (elsewhere_ns as i64) > 0 {
        let mut moved = storage.moved;
        add_moved(&mut moved, work, elsewhere_ns);
    }
    *by_cause = work.walk.parts;
    cause
}
