//! The wait ledger: splits each wait by cause, into parts that sum to the wait.
//!
//! [`arrive`] ends a wait. [`segment`](crate::segment) keeps its parts on other CPUs. [`split`](crate::split) splits the last
//! part, with [`history`](crate::history) and [`look_back`](crate::look_back). `booking` adds the result.

mod booking;
pub mod culprits;
pub mod history;
pub mod look_back;
pub mod segment;
pub mod split;

use crate::{
    ByCause, Cause, Loss, bucket_of,
    host::{IDLE, Task, without_ended},
    pressure::{Ended, PressureHost},
    verifier::set,
    waits::{
        booking::{book, book_simple, count_by_cpu},
        culprits::{Pairs, Place, kind},
        history::Ring,
        look_back::cause_of,
        split::{LONGEST_WAKEUP_NS, Wait, Work, is_charged, split},
    },
    wire::{CpuCounters, Exited, Start, TaskStorage, Waits},
};

/// What this module needs of its host: settings, and access to the maps.
pub trait WaitHost: PressureHost {
    /// The host's type of a task.
    type Task: Task;

    /// Returns whether culprits are single tasks, not only cgroups.
    fn blames_tasks() -> bool;
    /// Returns whether waits are also counted by CPU.
    fn counts_by_cpu() -> bool;
    /// Returns the history of a CPU.
    fn ring(cpu: u32) -> Option<&'static mut Ring>;
    /// Returns the culprits of waits on a CPU.
    fn pairs(cpu: u32) -> Option<&'static mut Pairs>;
    /// Returns a cgroup's entry in the table of exited tasks, if it has one.
    fn exited(cgroup_id: u64) -> Option<&'static mut Exited>;
    /// Returns the counters of a CPU.
    fn cpu_counters(cpu: u32) -> Option<&'static mut CpuCounters>;
    /// Returns the working memory of this CPU: [`Work::HOOK`] or [`Work::READER`].
    fn work(which: u32) -> Option<&'static mut Work>;
    /// Calls [`look_back::look_back`]. The BPF side does so through a function that the verifier checks only once.
    fn look_back(which: u32);
    /// Calls [`culprits::enter`] in the same way as [`Self::look_back`].
    fn charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64);
    /// Writes the task's handle to [`Pressures::task`](crate::pressure::Pressures::task), and calls
    /// [`pressure::press`](crate::pressure::press) in the same way as [`Self::look_back`]. Such a function takes only numbers,
    /// and to the verifier a handle is no number until it is in memory.
    fn press(task: u64, ended: Ended);
    /// Calls [`split::press_split`] in the same way as [`Self::look_back`].
    fn press_split();
}

/// Records the wait of `next`, which ends as `next` switches in. The whole wait counts for the cgroup of `storage`. That is the
/// task's cgroup unless a move was not seen yet.
#[inline(always)]
pub fn arrive<H: WaitHost>(
    next: H::Task,
    storage: &mut TaskStorage,
    cpu: u32,
    clock_ns: u64,
    ring: &mut Ring,
) {
    let queued_ns = next.last_queued_ns();
    let run_delay_ns = next.run_delay_ns();
    let waits = &mut storage.waits;

    // The kernel's increase since the last switch in is the part of this wait on other CPUs.
    let elsewhere_ns = run_delay_ns.wrapping_sub(waits.expected_run_delay_ns);
    // The kernel adds this part after the tracepoint. If the stamp is later than the clock, that sum wraps, and so does this one.
    let here_ns = if queued_ns == 0 { 0 } else { clock_ns.wrapping_sub(queued_ns) };
    waits.expected_run_delay_ns = run_delay_ns.wrapping_add(here_ns);

    if waits.unstamped_since_ns != 0 {
        // A stamp shows that the task has moved and that the hook missed the move.
        if queued_ns == 0 {
            end_unstamped(next, waits, &storage.start, clock_ns);
        }
        waits.unstamped_since_ns = 0;
    }
    if queued_ns == 0 && elsewhere_ns == 0 {
        return;
    }
    if queued_ns > clock_ns {
        H::lost(Loss::StampAfterClock);
        storage.moved.ns = 0;
        return;
    }
    let wait_ns = elsewhere_ns.wrapping_add(here_ns);
    let bucket = count::<H>(storage, cpu, wait_ns);
    if wait_ns != 0 {
        let wait = Wait { queued_ns, clock_ns, elsewhere_ns, ns: wait_ns, bucket, cpu, padding: 0 };
        enter::<H>(next, storage, wait, ring);
    }
}

/// Records the wait of `task`, which switched in on `cpu` at `arrived_ns` without the hook and switches out now. The kernel has
/// already added the whole wait to its sum. The hook saw the moves, so the rest of the wait was on this CPU.
#[inline(always)]
pub fn arrived_unseen<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, cpu: u32, arrived_ns: u64) {
    let run_delay_ns = task.run_delay_ns();
    let wait_ns = run_delay_ns.wrapping_sub(storage.waits.expected_run_delay_ns);
    storage.waits.expected_run_delay_ns = run_delay_ns;
    // The kernel has already counted the switch out that happens now.
    storage.start.switches += 1;
    if storage.waits.unstamped_since_ns != 0 {
        if wait_ns == storage.moved.ns {
            end_unstamped(task, &mut storage.waits, &storage.start, arrived_ns);
        }
        storage.waits.unstamped_since_ns = 0;
    }
    if (wait_ns as i64) > 0 {
        let bucket = count::<H>(storage, cpu, wait_ns);
        let elsewhere_ns = storage.moved.ns.min(wait_ns);
        let queued_ns = arrived_ns.saturating_sub(wait_ns - elsewhere_ns);
        let wait =
            Wait { queued_ns, clock_ns: arrived_ns, elsewhere_ns, ns: wait_ns, bucket, cpu, padding: 0 };
        if let Some(work) = H::work(Work::HOOK) {
            wait.put(&mut work.wait);
            enter_composed::<H>(task, storage, work);
        }
    }
    storage.start.is_seen = 0;
}

/// Counts a wait by its length. Returns its bucket.
#[inline(always)]
fn count<H: WaitHost>(storage: &mut TaskStorage, cpu: u32, wait_ns: u64) -> u64 {
    let waits = &mut storage.waits;
    waits.total_ns += wait_ns;
    waits.count += 1;
    if wait_ns > waits.max_ns {
        waits.max_ns = wait_ns;
    }
    let bucket = bucket_of(wait_ns);
    // Always in bounds, but the verifier requires the check.
    if let Some(count) = storage.histogram.counts.get_mut(bucket) {
        *count = count.wrapping_add(1);
    }
    let bucket = bucket as u64;
    if H::counts_by_cpu() {
        count_by_cpu::<H>(cpu, bucket, wait_ns);
    }
    bucket
}

/// Splits and records a wait. Most waits begin and end within one slice.
#[inline(always)]
fn enter<H: WaitHost>(next: H::Task, storage: &mut TaskStorage, wait: Wait, ring: &mut Ring) {
    let number = ring.head;
    let latest = ring.slice(number);
    let is_long = latest.who == IDLE && wait.ns > LONGEST_WAKEUP_NS;
    let simple = wait.elsewhere_ns == 0 && storage.start.limit == 0 && H::throttles_tasks() && !is_long;
    // If short kernel threads, interrupts and stolen time are below a 64th of the slice, the whole slice counts for its cgroup.
    let mixed = (latest.kernel_ns + latest.taken.ns()) << 6 > wait.clock_ns - latest.since_ns;
    if !simple || mixed || latest.since_ns == 0 || wait.queued_ns < latest.since_ns {
        // The wait goes through memory to hide its values from the verifier, which would otherwise follow each code path to here.
        if let Some(work) = H::work(Work::HOOK) {
            wait.put(&mut work.wait);
            enter_composed::<H>(next, storage, work);
        }
        return;
    }
    let ran = latest.who;
    // This precedes the choice of the cause. After it, the verifier would follow this code once for each cause.
    let Wait { queued_ns, clock_ns, cpu, .. } = wait;
    let victim = storage.cgroup_id;
    if !ring.batch.add(victim, queued_ns, clock_ns) {
        H::press(next.handle(), Ended { cpu, who: victim, queued_ns, clock_ns, limit_ns: 0 });
    }
    let mut cause = Cause::Wakeup as u64;
    if ran != IDLE {
        cause = cause_of(ran, victim) as u64;
        if is_charged::<H>(ran, victim) {
            let place = Place { cpu: wait.cpu, history: wait.cpu, number }.packed(kind::RAN);
            H::charge(victim, ran, wait.ns, wait.clock_ns, place);
        }
    }
    book_simple::<H>(storage, wait.cpu, wait.bucket, cause, wait.ns);
}

#[inline(never)]
fn enter_composed<H: WaitHost>(next: H::Task, storage: &mut TaskStorage, work: &mut Work) {
    work.wait.leave_out_ended();
    let wait = Wait::taken_from(&mut work.wait);
    work.begin(storage.cgroup_id, wait.cpu, wait.clock_ns);
    set(&mut work.task, next.handle());
    if wait.queued_ns != 0 {
        work.span(wait.cpu, wait.queued_ns, wait.clock_ns);
        split::<H>(next, &storage.start, work, Work::HOOK);
        H::press_split();
    }
    // A missed move leaves an unexplained part on another CPU, except if the task moved in the nanosecond in which the segment
    // began.
    let mut is_move_missed = wait.queued_ns != 0 && storage.start.is_in_doubt::<H>(next, wait.cpu);
    if wait.elsewhere_ns != 0 {
        is_move_missed |= storage.moved.add_to(work, wait.elsewhere_ns) != 0;
        storage.moved.ns = 0;
    }
    if is_move_missed {
        H::lost(Loss::MovedUnseen);
    }
    storage.start.limit = 0;
    if work.walk.parts[Cause::Throttled as usize] != 0 {
        storage.throttled_waits += 1;
    }
    book(&mut storage.by_cause, &mut storage.histogram, work);
    if H::counts_by_cpu()
        && let Some(counters) = H::cpu_counters(wait.cpu)
    {
        book(&mut counters.by_cause, &mut counters.histogram, work);
    }
}

/// Begins the wait of a task that was preempted on its way to sleep, with its state already set. Such a task waits on the run
/// queue, but the kernel does not stamp the wait (`sched_info_depart` checks the state).
#[inline(always)]
pub fn begin_unstamped(prev: impl Task, storage: &mut TaskStorage, clock_ns: u64) {
    storage.waits.unstamped_since_ns = clock_ns;
    storage.start.is_seen = 0;
    storage.start.limit = 0;
    storage.start.switches = prev.switches();
}

/// Ends the wait segment of a `task` that moves to the CPU `to`, and begins the next one. The run queue of the old CPU is locked.
/// So its history does not change, and its clock is the end of the segment. The new run queue is not locked; its clock may be
/// old.
#[inline(always)]
pub fn change_cpu<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, to: u32) {
    if storage.waits.unstamped_since_ns != 0 {
        end_unstamped(task, &mut storage.waits, &storage.start, task.clock_ns());
    }
    segment::end::<H>(task, storage);
    segment::begin::<H>(task, &mut storage.start, to);
}

/// Ends the wait of a `task` that moves to another group; a separate wait in the other cgroup follows. The task's run queue must
/// be locked. Call this before the kernel changes the task's queue. For the kernel, the wait continues, and it adds this part
/// later. Until then, `run_delay` is less than expected.
#[inline(always)]
pub fn leave_group<H: WaitHost>(task: H::Task, storage: &mut TaskStorage) {
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    if has_stamp_of_wait(task)
        && let Some(ring) = H::ring(cpu)
    {
        arrive::<H>(task, storage, cpu, clock_ns, ring);
    }
}

/// Begins the wait of a `task` that has moved to another group, if the task waits. Call this after the kernel has changed the
/// task's queue, and before it releases the run queue lock.
#[inline(always)]
pub fn enter_group<H: WaitHost>(task: H::Task, start: &mut Start) {
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    if has_stamp_of_wait(task) {
        segment::begin_in_group::<H>(task, start, cpu);
    } else if task.last_queued_ns() == 0 {
        // The task runs or sleeps, so its next wait begins in the new group.
        segment::run::<H>(task, start, cpu, clock_ns);
    }
}

/// Returns whether `task` waits, or sleeps on its queue with a stamp.
#[inline(always)]
pub fn has_stamp_of_wait(task: impl Task) -> bool {
    task.last_queued_ns() != 0 && task.is_on_queue()
}

/// Ends a wait that the kernel does not stamp, see [`begin_unstamped`]. If the hook has missed a switch in since,
/// `unstamped_since_ns` belongs to an earlier wait and is dropped.
#[inline(always)]
fn end_unstamped(task: impl Task, waits: &mut Waits, start: &Start, clock_ns: u64) {
    if start.switches == task.switches() {
        waits.unstamped_ns += clock_ns.saturating_sub(waits.unstamped_since_ns);
        waits.unstamped_count += 1;
    }
    waits.unstamped_since_ns = 0;
}

/// Returns the kernel's increase of `run_delay` since the latest counted wait. It is negative (as `i64`) until the kernel has
/// added that wait: while the task switches in, and after [`leave_group`].
#[inline(always)]
fn unbooked_ns(task: impl Task, waits: &Waits) -> u64 {
    task.run_delay_ns().wrapping_sub(waits.expected_run_delay_ns)
}

/// Returns since when `task` has waited in its group and on its CPU, ns of the CPU's clock; 0: it does not wait here.
#[inline(always)]
pub fn waits_since_ns(task: impl Task, waits: &Waits) -> u64 {
    without_ended(task.last_queued_ns(), unbooked_ns(task, waits)).0
}

/// Splits the current wait of `task` by cause, up to now. Returns the cause at this moment.
#[inline(never)]
pub fn pending<H: WaitHost>(task: H::Task, storage: &TaskStorage, by_cause: &mut ByCause) -> Cause {
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    let (queued_ns, elsewhere_ns) = without_ended(task.last_queued_ns(), unbooked_ns(task, &storage.waits));
    let Some(work) = H::work(Work::READER) else { return Cause::Unattributed };
    let victim = storage.cgroup_id;
    work.begin(victim, Work::NOBODY, clock_ns);
    let mut cause = Cause::Unattributed;
    if queued_ns != 0 && queued_ns < clock_ns {
        work.span(cpu, queued_ns, clock_ns);
        split::<H>(task, &storage.start, work, Work::READER);
        if let Some(ring) = H::ring(cpu) {
            let latest = ring.head;
            cause = cause_of(ring.slice(latest).who, victim);
        }
        let is_all = |cause: Cause| work.walk.parts[cause as usize] == clock_ns - queued_ns;
        if !H::throttles_tasks() && is_all(Cause::Throttled) {
            cause = Cause::Throttled;
        } else if is_all(Cause::RtThrottled) {
            cause = Cause::RtThrottled;
        } else if is_all(Cause::Unattributed) {
            cause = Cause::Unattributed;
        }
    }
    // This holds even if no part is known yet: the clock of an idle CPU has stood still since the task left it.
    if queued_ns != 0 && task.is_throttled() {
        cause = Cause::Throttled;
    }
    // The hook may end this wait or a segment at the same time. User space compares the sum with the length of the wait.
    if (elsewhere_ns as i64) > 0 {
        storage.moved.add_to(work, elsewhere_ns);
    }
    *by_cause = work.walk.parts;
    cause
}

#[cfg(test)]
pub(crate) mod tests;
