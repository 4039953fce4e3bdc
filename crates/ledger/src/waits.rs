//! The wait ledger: it splits each wait into parts, one for each cause. The parts sum to the length of the wait.
//!
//! [`arrive`] is called when a wait ends. [`segment`](crate::segment) has already stored the parts on other CPUs.
//! [`split`](crate::split) splits the last part, with the help of [`history`](crate::history) and
//! [`look_back`](crate::look_back). `booking` adds the parts to the sums and to the [`log`] of the task.

mod booking;
pub mod culprits;
pub mod history;
pub mod log;
pub mod look_back;
pub mod segment;
pub mod split;

use crate::{
    ByCause, Cause, Loss, bucket_of,
    cause::WHOLE,
    host::{FarQueue, IDLE, Task, without_ended},
    pressure::{Ended, PressureHost},
    verifier::{get, set},
    waits::{
        booking::{book, book_by_cpu, book_simple, count_by_cpu, log_shares},
        culprits::{Pairs, Place, TaskNames, kind},
        history::Ring,
        look_back::cause_of,
        split::{LONGEST_WAKEUP_NS, Wait, Work, is_charged, split},
    },
    wire::{CpuCounters, Exited, Histogram, Start, TaskStorage, Waits},
};

/// The functions that this module needs from its host: settings, and access to the maps.
pub trait WaitHost: PressureHost {
    type Task: Task;

    /// Returns how long the [queue](Task::queue) of a task had been in a hierarchy out of quota at the time `clock_ns`, ns.
    /// `address` points to the address of the queue.
    fn throttled_ns(task: Self::Task, address: &u64, cpu: u32, clock_ns: u64) -> u64;
    /// Returns the queue that the task's group has on another CPU.
    fn far_queue(task: Self::Task, cpu: u32) -> FarQueue;
    /// Returns the queue that the task's group has on the task's own CPU.
    fn near_queue(task: Self::Task) -> FarQueue;
    /// Returns whether culprits are single tasks and not only cgroups.
    fn blames_tasks() -> bool;
    fn counts_by_cpu() -> bool;
    fn ring(cpu: u32) -> Option<&'static mut Ring>;
    fn pairs(cpu: u32) -> Option<&'static mut Pairs>;
    /// Returns the names of a CPU. They exist only if [`Self::blames_tasks`] is true.
    fn task_names(cpu: u32) -> Option<&'static mut TaskNames>;
    /// Returns a cgroup's entry in the table of exited tasks, if it has one.
    fn exited(cgroup_id: u64) -> Option<&'static mut Exited>;
    fn cpu_counters(cpu: u32) -> Option<&'static mut CpuCounters>;
    /// Returns the histogram of a task. Creates it if there is none and memory may be allocated here.
    fn histogram(task: Self::Task) -> Option<&'static mut Histogram>;
    /// Calls [`log::count`] in the same way as [`Self::look_back`].
    fn count(storage: &mut TaskStorage, histogram: Option<&mut Histogram>, place: Option<&mut Exited>);
    /// Calls [`segment::leave_limited`] in the same way as [`Self::look_back`].
    fn leave_limited(task: Self::Task, storage: &mut TaskStorage, cpu: u32, clock_ns: u64);
    /// Calls [`enter_composed`] in the same way as [`Self::look_back`], with [`Work::HOOK`].
    fn enter_composed(task: Self::Task, storage: &mut TaskStorage);
    /// Returns one of the working memories of this CPU: [`Work::HOOK`] or [`Work::READER`].
    fn work(which: u32) -> Option<&'static mut Work>;
    /// Calls [`look_back::look_back`]. On the BPF side, the call goes through a separate function, so that the verifier checks it
    /// only once.
    fn look_back(which: u32);
    /// Calls [`culprits::enter`] in the same way as [`Self::look_back`].
    fn charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64);
    /// Writes the task's handle to [`Pressures::task`](crate::pressure::Pressures::task), and calls
    /// [`pressure::press`](crate::pressure::press) in the same way as [`Self::look_back`]. The parameters of such a function must
    /// be numbers, and for the verifier a handle is a number only after it was in memory.
    fn press(task: u64, ended: Ended);
    /// Calls [`split::press_split`] in the same way as [`Self::look_back`].
    fn press_split();
}

/// Records the wait of `next`, which ends because `next` switches in. The whole wait counts for the cgroup of `storage`. This is
/// the task's cgroup, unless the task has moved to another cgroup and the move was not seen yet.
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

    // The time by which the kernel's sum has grown since the last switch in is the part of this wait on other CPUs.
    let elsewhere_ns = run_delay_ns.wrapping_sub(waits.expected_run_delay_ns);
    // The kernel adds the part on this CPU after the tracepoint. If `last_queued` is later than the clock, the kernel's sum
    // wraps, and so does this sum.
    let here_ns = if queued_ns == 0 { 0 } else { clock_ns.wrapping_sub(queued_ns) };
    waits.expected_run_delay_ns = run_delay_ns.wrapping_add(here_ns);

    if waits.unstamped_since_ns != 0 {
        // If `last_queued` is set, the task has moved to another CPU and the hook missed the move.
        if queued_ns == 0 {
            end_unstamped(next, storage, clock_ns);
        }
        storage.waits.unstamped_since_ns = 0;
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
    let bucket = measure::<H>(&mut storage.waits, cpu, wait_ns);
    if wait_ns != 0 {
        let wait = Wait { queued_ns, clock_ns, elsewhere_ns, ns: wait_ns, bucket, cpu, padding: 0 };
        enter::<H>(next, storage, wait, ring);
    } else {
        log::append(storage, log::entry(bucket, 0, 0));
    }
    log::count_if_full::<H>(next, storage);
}

/// Records a late wait: the hook did not see that `task` switched in on `cpu` at `arrived_ns`, and now the task switches out. The
/// kernel has already added the whole wait to its sum. The hook saw all moves to other CPUs, so the rest of the wait was on this
/// CPU.
#[inline(always)]
pub fn arrived_unseen<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, cpu: u32, arrived_ns: u64) {
    let run_delay_ns = task.run_delay_ns();
    let wait_ns = run_delay_ns.wrapping_sub(storage.waits.expected_run_delay_ns);
    storage.waits.expected_run_delay_ns = run_delay_ns;
    // The kernel has already counted the switch out that happens now.
    storage.start.switches = storage.start.switches.wrapping_add(1);
    if storage.waits.unstamped_since_ns != 0 {
        if wait_ns == storage.moved.ns {
            end_unstamped(task, storage, arrived_ns);
        }
        storage.waits.unstamped_since_ns = 0;
    }
    if (wait_ns as i64) > 0 {
        let bucket = measure::<H>(&mut storage.waits, cpu, wait_ns);
        let elsewhere_ns = storage.moved.ns.min(wait_ns);
        let queued_ns = arrived_ns.saturating_sub(wait_ns - elsewhere_ns);
        let wait =
            Wait { queued_ns, clock_ns: arrived_ns, elsewhere_ns, ns: wait_ns, bucket, cpu, padding: 0 };
        enter_later::<H>(task, storage, wait);
        log::count_if_full::<H>(task, storage);
    }
    storage.start.is_seen = 0;
}

/// Updates the longest wait, and counts the wait for its CPU. Returns the number of its bucket.
#[inline(always)]
fn measure<H: WaitHost>(waits: &mut Waits, cpu: u32, wait_ns: u64) -> u64 {
    if wait_ns > waits.max_ns {
        waits.max_ns = wait_ns;
    }
    let bucket = bucket_of(wait_ns) as u64;
    if H::counts_by_cpu() {
        count_by_cpu::<H>(cpu, bucket, wait_ns);
    }
    bucket
}

/// Splits a wait by cause and records it. Most waits begin and end within one slice of the history.
#[inline(always)]
fn enter<H: WaitHost>(next: H::Task, storage: &mut TaskStorage, wait: Wait, ring: &mut Ring) {
    let number = ring.head;
    let latest = ring.slice(number);
    let is_long = latest.who == IDLE && wait.ns > LONGEST_WAKEUP_NS;
    let simple = wait.elsewhere_ns == 0 && storage.start.limit == 0 && H::throttles_tasks() && !is_long;
    // If short kernel threads, interrupts and stolen time take less than a 64th of the slice, they are ignored.
    let mixed = (latest.kernel_ns + latest.taken.ns()) << 6 > wait.clock_ns - latest.since_ns;
    if !simple || mixed || latest.since_ns == 0 || wait.queued_ns < latest.since_ns {
        return enter_later::<H>(next, storage, wait);
    }
    let ran = latest.who;
    // This code is before the choice of the cause. After that choice, the verifier would follow this code once for each cause.
    let Wait { queued_ns, clock_ns, cpu, .. } = wait;
    let victim = storage.cgroup_id;
    if !ring.batch.add(victim, queued_ns, clock_ns) {
        H::press(next.handle(), Ended { cpu, who: victim, queued_ns, clock_ns, limit_ns: 0 });
    }
    let (mut cause, mut share) = (Cause::Wakeup as u64, 0);
    if ran != IDLE {
        (cause, share) = (cause_of(ran, victim) as u64, u64::from(WHOLE));
        if is_charged::<H>(ran, victim) {
            let place = Place { cpu: wait.cpu, history: wait.cpu, number }.packed(kind::RAN);
            H::charge(victim, ran, wait.ns, wait.clock_ns, place);
        }
    }
    book_simple::<H>(storage, wait.cpu, wait.bucket, (cause, share), wait.ns);
}

/// Records a wait that several slices of the history explain, or a limit.
#[inline(always)]
fn enter_later<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, wait: Wait) {
    if let Some(work) = H::work(Work::HOOK) {
        wait.put(&mut work.wait);
        H::enter_composed(task, storage);
        log_shares::<H>(task, storage, work);
    }
}

/// Splits the wait in `work` by cause, and divides it into shares.
#[inline(always)]
pub fn enter_composed<H: WaitHost>(next: H::Task, storage: &mut TaskStorage, work: &mut Work) {
    work.wait.leave_out_ended();
    // The wait is read from memory each time, because the stack is small.
    let (cpu, clock_ns) = (get(&mut work.wait.cpu), get(&mut work.wait.clock_ns));
    work.begin(storage.cgroup_id, cpu, clock_ns);
    set(&mut work.task, next.handle());
    let queued_ns = get(&mut work.wait.queued_ns);
    if queued_ns != 0 {
        work.span(cpu, queued_ns, clock_ns);
        split::<H>(next, &storage.start, work, Work::HOOK);
        H::press_split();
    }
    // If the hook missed a move, part of the time on another CPU is unexplained, except if the task moved in the nanosecond in
    // which the segment began.
    let (queued_ns, cpu) = (get(&mut work.wait.queued_ns), get(&mut work.wait.cpu));
    let mut is_move_missed = queued_ns != 0 && storage.start.is_in_doubt::<H>(next, cpu);
    let elsewhere_ns = get(&mut work.wait.elsewhere_ns);
    if elsewhere_ns != 0 {
        is_move_missed |= storage.moved.add_to(work, elsewhere_ns) != 0;
        storage.moved.ns = 0;
    }
    if is_move_missed {
        H::lost(Loss::MovedUnseen);
    }
    storage.start.limit = 0;
    if work.walk.parts[Cause::Throttled as usize] != 0 {
        storage.throttled_waits += 1;
    }
    book(storage, work);
    if H::counts_by_cpu() {
        book_by_cpu::<H>(work);
    }
}

/// Begins the wait of a task that was preempted after it had set its state in order to sleep. Such a task waits on the run queue,
/// but the kernel does not record when the wait began (`sched_info_depart` checks the state).
#[inline(always)]
pub fn begin_unstamped(prev: impl Task, storage: &mut TaskStorage, clock_ns: u64) {
    storage.waits.unstamped_since_ns = clock_ns;
    storage.start.is_seen = 0;
    storage.start.limit = 0;
    storage.start.switches = prev.switches() as u32;
}

/// Ends the segment of the wait of `task` on its CPU, and begins the next segment on the CPU `to`. The old CPU's run queue is
/// locked, so its history does not change, and its clock is the end of the segment. The new CPU's run queue is not locked, so its
/// clock may be out of date.
#[inline(always)]
pub fn change_cpu<H: WaitHost>(task: H::Task, storage: &mut TaskStorage, to: u32) {
    if storage.waits.unstamped_since_ns != 0 {
        end_unstamped(task, storage, task.clock_ns());
    }
    segment::end::<H>(task, storage);
    segment::begin::<H>(task, &mut storage.start, to);
}

/// Ends the wait of `task`, which moves to another group. A separate wait in the other cgroup follows. The task's run queue must
/// be locked. Call this function before the kernel changes the task's queue. For the kernel, the wait continues, so the kernel
/// adds this part to `run_delay` later. Until then, `run_delay` is less than expected.
#[inline(always)]
pub fn leave_group<H: WaitHost>(task: H::Task, storage: &mut TaskStorage) {
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    if has_stamp_of_wait(task)
        && let Some(ring) = H::ring(cpu)
    {
        arrive::<H>(task, storage, cpu, clock_ns, ring);
    }
}

/// Begins the wait of `task` in another group, to which it has moved while it waited. Call this function after the kernel has
/// changed the task's queue, and before it releases the run queue lock.
#[inline(always)]
pub fn enter_group<H: WaitHost>(task: H::Task, start: &mut Start) {
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    if has_stamp_of_wait(task) {
        segment::begin_in_group::<H>(task, start, cpu);
    } else if task.last_queued_ns() == 0 {
        // The task runs or sleeps, so it begins its next wait in the new group.
        segment::run::<H>(task, start, cpu, clock_ns);
    }
}

/// Returns whether `task` waits, or sleeps on its queue with `last_queued` set.
#[inline(always)]
pub fn has_stamp_of_wait(task: impl Task) -> bool {
    task.last_queued_ns() != 0 && task.is_on_queue()
}

/// Ends a wait whose beginning the kernel does not record, see [`begin_unstamped`]. If the task has switched in since then and
/// the hook missed it, `unstamped_since_ns` belongs to an earlier wait and is dropped.
#[inline(always)]
fn end_unstamped(task: impl Task, storage: &mut TaskStorage, clock_ns: u64) {
    if storage.start.switches == task.switches() as u32 {
        storage.unstamped_ns += clock_ns.saturating_sub(storage.waits.unstamped_since_ns);
        storage.unstamped_count += 1;
    }
    storage.waits.unstamped_since_ns = 0;
}

/// Returns by how much the kernel has increased `run_delay` since the latest counted wait. The result is negative (as `i64`)
/// until the kernel has added that wait: while the task switches in, and after [`leave_group`].
#[inline(always)]
fn unbooked_ns(task: impl Task, waits: &Waits) -> u64 {
    task.run_delay_ns().wrapping_sub(waits.expected_run_delay_ns)
}

/// Returns since when `task` has waited in its group and on its CPU, ns of the CPU's clock; 0 if it does not wait here.
#[inline(always)]
pub fn waits_since_ns(task: impl Task, waits: &Waits) -> u64 {
    without_ended(task.last_queued_ns(), unbooked_ns(task, waits)).0
}

/// Splits the current wait of `task` by cause, up to now. Returns the cause for which the task waits at this moment.
#[inline(never)]
pub fn pending<H: WaitHost>(task: H::Task, storage: &TaskStorage, by_cause: &mut ByCause) -> Cause {
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    let (queued_ns, elsewhere_ns) = without_ended(task.last_queued_ns(), unbooked_ns(task, &storage.waits));
    let Some(work) = H::work(Work::READER) else { return Cause::Unattributed };
    let victim = storage.cgroup_id;
    work.begin(victim, Work::NOBODY, clock_ns);
    let mut cause = Cause::Unattributed;
    // A real-time task whose wait begins now may be out of runtime.
    if queued_ns != 0
        && (queued_ns < clock_ns || !task.is_real_time())
        && let Some(ring) = H::ring(cpu)
    {
        let latest = ring.head;
        cause = cause_of(ring.slice(latest).who, victim);
    }
    if queued_ns != 0 && queued_ns < clock_ns {
        work.span(cpu, queued_ns, clock_ns);
        split::<H>(task, &storage.start, work, Work::READER);
        let is_all = |cause: Cause| work.walk.parts[cause as usize] == clock_ns - queued_ns;
        if !H::throttles_tasks() && is_all(Cause::Throttled) {
            cause = Cause::Throttled;
        } else if is_all(Cause::RtThrottled) {
            cause = Cause::RtThrottled;
        } else if is_all(Cause::Unattributed) {
            cause = Cause::Unattributed;
        }
    }
    // This is also correct if no part is known yet, because the clock of an idle CPU has stood still since the task left the CPU.
    let is_out_of_quota = if H::throttles_tasks() {
        task.is_throttled()
    } else {
        queued_ns >= clock_ns && !task.is_real_time() && H::near_queue(task).is_throttled
    };
    if queued_ns != 0 && is_out_of_quota {
        cause = Cause::Throttled;
    }
    // The hook may end this wait or segment while this code runs. User space detects this, because it compares the sum of the
    // parts with the length of the wait.
    if (elsewhere_ns as i64) > 0 {
        storage.moved.add_to(work, elsewhere_ns);
    }
    *by_cause = work.walk.parts;
    cause
}

#[cfg(test)]
pub(crate) mod tests;
