//! Splits a segment of a wait into parts, one for each cause. The parts sum to the length of the segment.
//!
//! The parts come from the history of the CPU. While the CPU ran other tasks, the task waited for these tasks. While the CPU ran
//! no task, the task was being woken up. The throttled time is at the start of a segment, because the quota took the task off its
//! CPU. It does not matter who ran during the throttled time.

use crate::{
    CAUSES, Cause, Loss,
    host::{IDLE, KERNEL, Task, without_ended},
    pressure::{self, Ended},
    verifier::{get, set},
    waits::{
        WaitHost,
        booking::Shares,
        culprits::{Place, kind},
        look_back::{Charge, Walk},
        segment::{ASLEEP, NO_CLOCK, RUNTIME},
    },
    wire::Start,
};

/// A wait of more than 0 ns that ends now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// When the task was queued on this CPU, ns of the CPU's clock; 0 if it was not queued here.
    pub queued_ns: u64,
    /// The clock of this CPU at the end of the wait, ns.
    pub clock_ns: u64,
    /// Length of the earlier segments on other CPUs, ns.
    pub elsewhere_ns: u64,
    /// Length of the whole wait, ns.
    pub ns: u64,
    pub bucket: u64,
    pub cpu: u32,
    pub padding: u32,
}

impl Wait {
    /// Writes the wait to memory, which hides its values from the verifier.
    #[inline(always)]
    pub(crate) fn put(self, wait: &mut Self) {
        set(&mut wait.queued_ns, self.queued_ns);
        set(&mut wait.clock_ns, self.clock_ns);
        set(&mut wait.elsewhere_ns, self.elsewhere_ns);
        set(&mut wait.ns, self.ns);
        set(&mut wait.bucket, self.bucket);
        set(&mut wait.cpu, self.cpu);
    }

    /// Excludes the part of the wait that is already counted, see [`without_ended`].
    #[inline(always)]
    pub(crate) fn leave_out_ended(&mut self) {
        let (queued_ns, elsewhere_ns) = without_ended(get(&mut self.queued_ns), get(&mut self.elsewhere_ns));
        set(&mut self.queued_ns, queued_ns);
        set(&mut self.elsewhere_ns, elsewhere_ns);
    }

    #[inline(always)]
    pub(crate) fn taken_from(wait: &mut Self) -> Self {
        Self {
            queued_ns: get(&mut wait.queued_ns),
            clock_ns: get(&mut wait.clock_ns),
            elsewhere_ns: get(&mut wait.elsewhere_ns),
            ns: get(&mut wait.ns),
            bucket: get(&mut wait.bucket),
            cpu: get(&mut wait.cpu),
            padding: 0,
        }
    }
}

/// The working memory in which a wait is split.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub(crate) wait: Wait,
    /// The parts of the wait or segment so far, and the state of the walk over the history.
    pub walk: Walk,
    pub(crate) charges: Charges,
    pub(crate) shares: Shares,
    /// The [handle](Task::handle) of the task that waited.
    pub(crate) task: u64,
    /// Not 0 if the task slept during this segment, see [`ASLEEP`].
    is_asleep: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charges {
    victim: u64,
    /// The clock of the CPU that records the charges, ns.
    pub(crate) clock_ns: u64,
    /// The CPU whose history is read.
    pub(crate) cpu: u32,
    /// The CPU in whose table charges are recorded; [`Work::NOBODY`] if none are recorded.
    pub(crate) charging: u32,
    /// Not 0 if tasks that ran are not charged.
    is_silent: u64,
}

impl<H: WaitHost> Charge<H> for Charges {
    #[inline(always)]
    fn charge(&mut self, who: u64, ns: u64, slice: Option<u64>) {
        let charging = get(&mut self.charging);
        let victim = get(&mut self.victim);
        let is_silent = charging == Work::NOBODY || get(&mut self.is_silent) != 0;
        if is_silent || !is_charged::<H>(who, victim) {
            return;
        }
        let (history, number) = match slice {
            Some(number) => (get(&mut self.cpu), number),
            None => (Work::NOBODY, 0),
        };
        let place = Place { cpu: charging, history, number }.packed(kind::RAN);
        H::charge(victim, who, ns, get(&mut self.clock_ns), place);
    }
}

/// Returns whether `who` is charged. Kernel threads and the victim's own cgroup are charged only if culprits are single tasks.
#[inline(always)]
pub(crate) fn is_charged<H: WaitHost>(who: u64, victim: u64) -> bool {
    match who {
        IDLE => false,
        KERNEL => H::blames_tasks(),
        who => H::blames_tasks() || who != victim,
    }
}

impl Work {
    /// Index of the memory for programs that hold a run queue lock.
    pub const HOOK: u32 = 0;
    /// Index of the memory for the reader.
    pub const READER: u32 = 1;
    /// Used instead of a CPU: there is none.
    pub const NOBODY: u32 = 0xffff;

    /// Starts to split a wait or a segment. `charging` is the CPU in whose table of culprits the charges are recorded.
    #[inline(always)]
    pub(crate) fn begin(&mut self, victim: u64, charging: u32, clock_ns: u64) {
        for cause in 0..CAUSES {
            set(&mut self.walk.parts[cause], 0);
        }
        self.walk.victim = victim;
        self.charges.victim = victim;
        self.charges.charging = charging;
        self.charges.is_silent = 0;
        self.charges.clock_ns = clock_ns;
        self.is_asleep = 0;
    }

    /// Sets the time span to look back over, and the CPU whose history is used.
    #[inline(always)]
    pub(crate) fn span(&mut self, cpu: u32, from_ns: u64, to_ns: u64) {
        self.charges.cpu = cpu;
        self.walk.from_ns = from_ns;
        self.walk.to_ns = to_ns;
    }

    #[inline(always)]
    fn part(&self, cause: Cause) -> u64 {
        self.walk.parts[cause as usize]
    }

    /// Adds to `cause` a part of the time that the history does not explain. This part is `share` 1024ths of `sum_ns` less the
    /// explained part, but at most `most_ns`. Returns the time that was added.
    #[inline(always)]
    fn explain(&mut self, cause: Cause, sum_ns: u64, share: u64, most_ns: u64) -> u64 {
        let ns = ((sum_ns.saturating_sub(self.part(cause)) * share) >> 10).min(most_ns);
        self.walk.add(cause, ns);
        ns
    }

    /// Charges the cgroup `limit` for `ns`, in which its quota was used up.
    #[inline(always)]
    fn charge_limit<H: WaitHost>(&mut self, limit: u64, ns: u64) {
        let charges = &mut self.charges;
        let charging = get(&mut charges.charging);
        if charging != Self::NOBODY {
            let place =
                Place { cpu: charging, history: get(&mut charges.cpu), number: 0 }.packed(kind::LIMITED);
            H::charge(get(&mut charges.victim), limit, ns, get(&mut charges.clock_ns), place);
        }
    }
}

/// Splits the segment that is the span of `work`. `work` must not have any parts yet.
#[inline(never)]
pub(crate) fn split<H: WaitHost>(task: H::Task, start: &Start, work: &mut Work, which: u32) {
    let is_seen = start.is_of(task);
    let is_missed = is_seen && u32::from(start.cpu) != get(&mut work.charges.cpu);
    let is_asleep = is_seen && start.limit == ASLEEP;
    if is_asleep {
        set(&mut work.is_asleep, 1);
        lose::<H>(Loss::MovedAsleep, which);
    }
    let is_in_doubt = is_missed && (start.limit != 0 || !H::throttles_tasks());
    let ns = get(&mut work.walk.to_ns) - get(&mut work.walk.from_ns);
    if is_asleep || is_in_doubt {
        work.walk.add(Cause::Unattributed, ns);
        return;
    }
    if is_seen && start.limit == RUNTIME {
        work.walk.add(Cause::RtThrottled, ns);
        return;
    }
    let is_seen = is_seen && !is_missed;
    if is_seen && start.is_seen == NO_CLOCK {
        work.charges.is_silent = 1;
        H::look_back(which);
        throttled_without_clock::<H>(start, work);
        lose::<H>(Loss::MovedThrottled, which);
        return;
    }
    let throttled_ns = throttled_ns::<H>(task, start, is_seen, work);
    out_of_quota::<H>(task, start, work, throttled_ns);
    H::look_back(which);
    if is_seen && work.part(Cause::Unattributed) != 0 {
        beyond_history::<H>(task, start, work);
    }
    // If the hook saw how the segment began, it is known whether a deadline task had runtime left.
    let is_known = is_seen && task.is_deadline();
    if task.is_real_time() && !is_known && doubt_wakeup(work) {
        lose::<H>(Loss::OutOfRuntime, which);
    }
}

/// Counts a loss, if this is the hook. The reader counts no losses, because it may see the same loss repeatedly.
#[inline(always)]
fn lose<H: WaitHost>(loss: Loss, which: u32) {
    if which == Work::HOOK {
        H::lost(loss);
    }
}

/// Maximum plausible length of a wakeup, ns. A CPU needs up to some 200 us to leave its deepest idle state. If a CPU was idle for
/// longer while a woken real-time or deadline task waited, the task had probably used up its runtime.
pub(crate) const LONGEST_WAKEUP_NS: u64 = 1_000_000;

#[inline(always)]
fn doubt_wakeup(work: &mut Work) -> bool {
    let idle_ns = work.part(Cause::Wakeup);
    let is_doubtful = idle_ns > LONGEST_WAKEUP_NS;
    if is_doubtful {
        work.walk.parts[Cause::Wakeup as usize] = 0;
        work.walk.add(Cause::Unattributed, idle_ns);
    }
    is_doubtful
}

/// Returns how long the task was throttled during a segment on this CPU, ns. A result that exceeds the length of the segment
/// means that the task was throttled during the whole segment.
#[inline(always)]
fn throttled_ns<H: WaitHost>(task: H::Task, start: &Start, is_seen: bool, work: &mut Work) -> u64 {
    // Since Linux 6.18, a task is throttled only when it returns to user space. A task that is woken or preempted in the kernel
    // is not throttled.
    if H::throttles_tasks() && (start.limit == 0 || !is_seen) {
        return 0;
    }
    let (from_ns, to_ns) = (get(&mut work.walk.from_ns), get(&mut work.walk.to_ns));
    if start.queue != task.queue_rarely() && H::throttles_tasks() {
        // The task has moved to another group, and no program saw the move. Until the move, the task was throttled.
        let is_late = start.left_ns > from_ns && start.left_ns < to_ns;
        let until_ns = if is_late { start.left_ns } else { to_ns };
        return start.throttled_ns(task.left_throttled_ns(start.queue, start.group, until_ns), from_ns);
    }
    if start.queue != task.queue_rarely() || (!H::throttles_tasks() && task.is_real_time()) {
        return 0;
    }
    start.throttled_ns(H::throttled_ns(task, &start.queue, work.charges.cpu, to_ns), from_ns)
}

/// Replaces the parts of a segment in which the task was throttled for an unknown time. A CPU is never idle if a task on its
/// queue can run. So while the CPU was idle, this task was throttled. While other tasks ran, this task was throttled or it waited
/// for them.
#[inline(always)]
fn throttled_without_clock<H: WaitHost>(start: &Start, work: &mut Work) {
    let idle_ns = work.part(Cause::Wakeup);
    let other_ns = get(&mut work.walk.to_ns) - get(&mut work.walk.from_ns) - idle_ns;
    for part in &mut work.walk.parts {
        set(part, 0);
    }
    work.walk.add(Cause::Unattributed, other_ns);
    if idle_ns != 0 {
        work.walk.add(Cause::Throttled, idle_ns);
        work.charge_limit::<H>(start.limit, idle_ns);
    }
}

/// Moves the throttled time from the start of the span to its own part.
#[inline(always)]
fn out_of_quota<H: WaitHost>(task: H::Task, start: &Start, work: &mut Work, throttled_ns: u64) {
    let throttled_ns = throttled_ns.min(work.walk.to_ns - work.walk.from_ns);
    if throttled_ns == 0 {
        return;
    }
    work.walk.add(Cause::Throttled, throttled_ns);
    work.walk.from_ns += throttled_ns;
    let mut limit = start.limit;
    if !H::throttles_tasks() {
        // Before Linux 6.18, the quota may have run out after `start` was recorded, while the task was queued.
        task.find_limit(&mut limit);
    }
    work.charge_limit::<H>(limit, throttled_ns);
}

/// Explains the part of a segment that began before the history, if the hook saw how the segment began. The CPU has sums of time
/// by cause. The growth of a sum since then, less the part that the history explains, is the part of its cause. The culprits stay
/// unknown. The run time of a group includes its descendants, so their time here counts for the task's own cgroup. If the task
/// was also throttled, the sums also cover the throttled time. They are divided in proportion between the throttled time and the
/// unknown time.
#[inline(never)]
fn beyond_history<H: WaitHost>(task: H::Task, start: &Start, work: &mut Work) {
    let Some(ring) = H::ring(work.charges.cpu) else { return };
    // The sum is 0 for a task of the root, or if the kernel lacks the field. After a move to another cgroup, the sum belongs to
    // another group.
    if start.group_ran_ns == 0 || start.group != task.group_rarely() || task.is_of_bpf_scheduler() {
        return;
    }
    let group_ran_ns = task.group_ran_ns_rarely();
    let queued_ns = get(&mut work.walk.from_ns) - work.part(Cause::Throttled);
    let (kernel_ns, idle_ns) = ring.sums_until(get(&mut work.walk.to_ns));
    let kernel_ns = kernel_ns.saturating_sub(Start::at(start.kernel_ns, queued_ns));
    let idle_ns = idle_ns.saturating_sub(Start::at(start.idle_ns, queued_ns));
    let unknown_ns = work.part(Cause::Unattributed);
    let before_ns = unknown_ns + work.part(Cause::Throttled);
    let share = (unknown_ns << 10).checked_div(before_ns).unwrap_or(0);
    let irq_ns = ring.taken.irq_ns.saturating_sub(start.taken.irq_ns);
    let stolen_ns = ring.taken.stolen_ns.saturating_sub(start.taken.stolen_ns);
    let own_ns = group_ran_ns.saturating_sub(start.group_ran_ns);
    set(&mut work.walk.parts[Cause::Unattributed as usize], 0);
    let mut left_ns = unknown_ns;
    left_ns -= work.explain(Cause::Kernel, kernel_ns, share, left_ns);
    left_ns -= work.explain(Cause::Irq, irq_ns, share, left_ns);
    left_ns -= work.explain(Cause::Stolen, stolen_ns, share, left_ns);
    left_ns -= work.explain(Cause::Wakeup, idle_ns, share, left_ns);
    left_ns -= work.explain(Cause::OwnCgroup, own_ns, share, left_ns);
    work.walk.add(Cause::OtherCgroup, left_ns);
}

/// Counts the pressure of the wait or segment that was just split in the hook's [`Work`]. The function takes all data from
/// memory, so the verifier follows only one code path after the call.
#[inline(always)]
pub fn press_split<H: WaitHost>() {
    let Some(work) = H::work(Work::HOOK) else { return };
    let limit_ns = work.part(Cause::Throttled) + work.part(Cause::RtThrottled);
    let who = get(&mut work.charges.victim);
    let Wait { queued_ns, clock_ns, cpu, .. } = Wait::taken_from(&mut work.wait);
    // A task that slept did not wait.
    if get(&mut work.is_asleep) != 0 {
        return;
    }
    let Some(ring) = H::ring(cpu) else { return };
    if limit_ns == 0 && ring.batch.add(who, queued_ns, clock_ns) {
        return;
    }
    let Some(table) = H::pressures(cpu) else { return };
    set(&mut table.task, get(&mut work.task));
    // The function is called directly, because a call through the host would make the stack too large for Linux 6.1.
    pressure::press::<H>(Ended { cpu, who, queued_ns, clock_ns, limit_ns });
}

#[cfg(test)]
mod tests;
