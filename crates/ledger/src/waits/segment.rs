//! The segments of a wait: a task that is moved while it waits has one segment for each CPU.

pub use crate::wire::{Moved, Start};
use crate::{
    ByCause, CAUSES, Cause, Loss,
    host::{FarQueue, Task},
    verifier::set,
    waits::{
        WaitHost,
        split::{Wait, Work, split},
    },
    wire::TaskStorage,
};

/// Value of [`Start::limit`]: a real-time or deadline task had used up its runtime. This limit is no quota. No cgroup has this
/// id.
pub const RUNTIME: u64 = u64::MAX;

/// Value of [`Start::limit`]: the task was moved while it slept, so `last_queued` is not the start of a wait. No cgroup has this
/// id.
pub const ASLEEP: u64 = u64::MAX - 1;

/// Value of [`Start::is_seen`]: the task was throttled when it arrived, but the kernel's clock of throttled time stood still.
/// Since Linux 6.18, this clock starts when the first task is throttled while it is on the queue, not when a throttled task is
/// moved to the queue.
pub const NO_CLOCK: u16 = 2;

/// Value of [`Start::ran_on`]: the task has not run yet.
pub const NO_CPU: u32 = u32::MAX;

impl Start {
    /// Returns whether this record describes the start of the current segment of `task` (or of the segment that ends now).
    #[inline(always)]
    pub(crate) fn is_of(&self, task: impl Task) -> bool {
        self.is_seen != 0 && self.switches == task.switches() as u32
    }

    /// Returns whether the hook missed a move of `task` to `cpu`. If so, it is unknown whether the task could run on `cpu`.
    #[inline(always)]
    pub(crate) fn is_in_doubt<H: WaitHost>(&self, task: H::Task, cpu: u32) -> bool {
        self.is_of(task) && u32::from(self.cpu) != cpu && (self.limit != 0 || !H::throttles_tasks())
    }

    /// Returns the throttled time of a segment that began at `queued_ns`. `now_ns` is the throttled time of the queue at the end
    /// of the segment.
    #[inline(always)]
    pub(crate) fn throttled_ns(&self, now_ns: u64, queued_ns: u64) -> u64 {
        now_ns.saturating_sub(Self::at(self.throttle_ns, queued_ns))
    }

    /// Returns the value that a sum in this record had at `queued_ns`, when the task was queued.
    #[inline(always)]
    pub(crate) fn at(sum_ns: u64, queued_ns: u64) -> u64 {
        if (sum_ns as i64) < 0 { sum_ns.wrapping_add(queued_ns) } else { sum_ns }
    }
}

impl Moved {
    /// Adds the segments to the wait in `work`. The wait spent `elsewhere_ns` on other CPUs. If the segments are shorter, a move
    /// was not seen, and the rest is unattributed. Returns that rest.
    #[inline(always)]
    pub(crate) fn add_to(&self, work: &mut Work, elsewhere_ns: u64) -> u64 {
        if self.ns != 0 {
            add_all(&mut work.walk.parts, &self.parts);
        }
        let rest_ns = elsewhere_ns.saturating_sub(self.ns);
        work.walk.add(Cause::Unattributed, rest_ns);
        rest_ns
    }
}

#[inline(always)]
fn add_all(sums: &mut ByCause, parts: &ByCause) {
    for (sum, part) in sums.iter_mut().zip(parts) {
        *sum += part;
    }
}

/// Records the start of a wait: `prev` leaves its CPU although it is runnable.
#[inline(always)]
pub fn leave<H: WaitHost>(
    prev: H::Task,
    storage: &mut TaskStorage,
    ring: &crate::history::Ring,
    cpu: u32,
    clock_ns: u64,
) {
    let start = &mut storage.start;
    start.kernel_ns = ring.kernel_ns;
    start.idle_ns = ring.idle_ns;
    start.taken = ring.taken;
    start.group_ran_ns = prev.group_ran_ns();
    start.group = prev.group();
    start.is_seen = 1;
    start.cpu = cpu as u16;
    start.switches = prev.switches() as u32;
    start.limit = 0;
    if prev.is_real_time() || prev.is_throttled() {
        H::leave_limited(prev, storage, cpu, clock_ns);
    }
}

/// Records which limit took `prev` off its CPU, if any.
#[inline(always)]
pub fn leave_limited<H: WaitHost>(prev: H::Task, start: &mut Start, cpu: u32, clock_ns: u64) {
    if prev.is_real_time() {
        if prev.is_out_of_runtime() {
            start.limit = RUNTIME;
        }
    } else if prev.is_throttled() {
        start.queue = prev.queue_rarely();
        start.throttle_ns = H::throttled_ns(prev, &start.queue, cpu, clock_ns);
        prev.find_limit(&mut start.limit);
    }
}

/// Records the throttled time from which the next wait of `next` is measured. `next` switches in on `cpu`.
#[inline(always)]
pub fn run<H: WaitHost>(next: H::Task, start: &mut Start, cpu: u32, clock_ns: u64) {
    if !H::throttles_tasks() {
        // While the task runs, its queue is not throttled. So this is also the throttled time when the next wait begins, even if
        // the task sleeps first.
        start.queue = next.queue();
        start.throttle_ns = H::throttled_ns(next, &start.queue, cpu, clock_ns);
    }
}

/// Records the start of the current wait of a throttled task that cgscope has only now begun to follow. The hook does not write
/// this record at the same time. If the task switches in now, its number of switches shows that the record belongs to a past
/// wait.
#[inline(never)]
pub fn was_throttled<H: WaitHost>(task: H::Task, start: &mut Start) {
    let queued_ns = task.last_queued_ns();
    if queued_ns == 0 {
        return;
    }
    start.is_seen = 1;
    start.cpu = task.cpu() as u16;
    start.switches = task.switches() as u32;
    start.queue = task.queue_rarely();
    start.throttle_ns = H::throttled_ns(task, &start.queue, task.cpu(), queued_ns);
    start.group = task.group_rarely();
    // The sums of the CPU at that time are unknown.
    start.group_ran_ns = 0;
    task.find_limit(&mut start.limit);
}

/// Ends the segment of the wait of `task` on its CPU, because the task moves to another CPU.
#[inline(never)]
pub(crate) fn end<H: WaitHost>(task: H::Task, storage: &mut TaskStorage) {
    // The kernel has just added this segment to its sum. All that the kernel added before belongs to earlier segments.
    let elsewhere_ns = task.run_delay_ns().wrapping_sub(storage.waits.expected_run_delay_ns);
    let moved = &mut storage.moved;
    let ns = elsewhere_ns.wrapping_sub(moved.ns);
    if (ns as i64) <= 0 {
        return;
    }
    let Some(work) = H::work(Work::HOOK) else { return };
    let (cpu, clock_ns) = (task.cpu(), task.clock_ns());
    work.begin(storage.cgroup_id, cpu, clock_ns);
    set(&mut work.task, task.handle());
    Wait { queued_ns: clock_ns - ns, clock_ns, cpu, ..Wait::default() }.put(&mut work.wait);
    if u32::from(storage.start.cpu) != cpu && storage.start.is_of(task) {
        // The hook missed a move, so it is unknown when the task arrived on this CPU.
        H::lost(Loss::MovedUnseen);
        work.walk.add(Cause::Unattributed, ns);
    } else {
        work.span(cpu, clock_ns - ns, clock_ns);
        split::<H>(task, &storage.start, work, Work::HOOK);
    }
    H::press_split();
    if moved.ns == 0 {
        moved.parts = [0; CAUSES];
    }
    add_all(&mut moved.parts, &work.walk.parts);
    moved.ns = elsewhere_ns;
}

/// Begins the segment of the wait of `task` on `cpu`, to which the task moves.
#[inline(never)]
pub(crate) fn begin<H: WaitHost>(task: H::Task, start: &mut Start, cpu: u32) {
    begin_on::<H>(task, start, cpu);
    if is_of_quota::<H>(task, start) {
        let limit = if task.is_throttled() { start.limit } else { 0 };
        hold::<H>(start, H::far_queue(task, cpu), limit);
    }
}

/// Begins a segment of the wait of `task`, which has moved to another group and stays on `cpu`.
#[inline(never)]
pub(crate) fn begin_in_group<H: WaitHost>(task: H::Task, start: &mut Start, cpu: u32) {
    begin_on::<H>(task, start, cpu);
    if is_of_quota::<H>(task, start) {
        start.limit = 0;
        if task.is_throttled() {
            task.find_limit(&mut start.limit);
        }
        let limit = start.limit;
        hold::<H>(start, H::near_queue(task), limit);
    }
}

#[inline(always)]
fn begin_on<H: WaitHost>(task: H::Task, start: &mut Start, cpu: u32) {
    start.is_seen = 1;
    start.switches = task.switches() as u32;
    start.cpu = cpu as u16;
    start.group = task.group_rarely();
    start.group_ran_ns = 0;
    if let Some(ring) = H::ring(cpu) {
        // That CPU may be changing its sums at this moment. Then the sums read here are wrong by one slice, but they are only
        // used for segments of thousands of slices.
        (start.kernel_ns, start.idle_ns) = ring.sums_until(0);
        start.taken = ring.taken;
        start.group_ran_ns = task.far_group_ran_ns(cpu);
    }
}

/// Returns whether a quota can apply to the segment that begins. If not, records which other limit applies.
#[inline(always)]
fn is_of_quota<H: WaitHost>(task: H::Task, start: &mut Start) -> bool {
    if task.sleeps_on_queue() {
        start.limit = ASLEEP;
        return false;
    }
    if task.is_real_time() {
        // A deadline task has its own runtime. Real-time tasks have a separate runtime on each CPU.
        start.limit = if task.is_deadline() && task.is_out_of_runtime() { RUNTIME } else { 0 };
        return false;
    }
    true
}

/// Records how `queue` limits the segment that begins. `limit` is the cgroup whose quota took the task off its CPU, or 0.
#[inline(always)]
fn hold<H: WaitHost>(start: &mut Start, queue: FarQueue, limit: u64) {
    start.limit = 0;
    if limit != 0 || !H::throttles_tasks() {
        start.queue = queue.address;
        start.throttle_ns = queue.throttled_ns_at_0;
        // If the task's group has quota on the new CPU, the task can run again (`enqueue_throttled_task`).
        start.limit = if queue.is_throttled { limit } else { 0 };
        if start.limit != 0 && (start.throttle_ns as i64) >= 0 {
            start.is_seen = NO_CLOCK;
        }
    }
}

#[cfg(test)]
mod tests;
