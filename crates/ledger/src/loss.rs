//! All kinds of losses: events after which a figure is incomplete. Each loss is counted where it happens, and every output shows
//! it.

crate::named! {
    /// A reason why a figure can be incomplete. The discriminant is the index of the loss's counter.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u32)]
    pub enum Loss (name, leaves_result_whole) {
        /// The name of the loss in every output.
        name: &'static str,
        /// Whether the result counts as complete despite this loss. This is so in three cases: this host can never show the
        /// missing data (coarse mode never shows how a task ends), only names are missing, or only the bounds of an interval
        /// change. Every output reports such a loss, but the run still counts as complete.
        leaves_result_whole: bool,
    }

    /// A task without storage switched in although cgscope follows all tasks. This wait becomes part of the task's next wait.
    SwitchWithoutStorage = "switch_without_storage", false;
    /// A task that existed before cgscope started switched in, but the kernel's task iterator does not show the task. A
    /// hardened kernel may hide processes. No figure includes the waits of this task.
    SwitchOfHiddenTask = "switch_of_hidden_task", true;
    /// The kernel's time for the start of a wait was later than the run queue's clock, so the wait was dropped.
    StampAfterClock = "stamp_after_clock", false;
    /// The storage of a new task could not be created, because memory was short or the CPU was already creating another
    /// storage. If cgscope follows all tasks, the next reading creates the storage. If the task exits before that reading, its
    /// waits are in its cgroup's sum but in no histogram. If cgscope follows only selected tasks, this task is never followed.
    /// Also counted if a task moves to another cgroup, and its waits since the last reading count only for its former cgroup.
    StorageNotCreated = "storage_not_created", false;
    /// A task exited in a cgroup that has no entry in the table of exited tasks, because the table is full. The task's waits
    /// count for its previous cgroup, or for the root.
    ExitedInOtherCgroup = "exited_in_other_cgroup", false;
    /// The waits of an exited task could not be added to any cgroup. Only the number of such tasks is known.
    ExitedNotCounted = "exited_not_counted", false;
    /// A task moved to another cgroup during its reading, and this took longer than a reading waits. Its figures since the last
    /// reading may be counted twice.
    ReadingOvertaken = "reading_overtaken", false;
    /// A CPU's table of culprits was full, and the waiting cgroup has no entry in the table of exited tasks, which is full
    /// too. Causes are complete, but the times of the culprits may sum to less than their cause.
    CulpritForgotten = "culprit_forgotten", true;
    /// The history of the CPU does not explain the whole wait. There are three reasons. Hundreds of cgroups took turns on the
    /// CPU, and the look back was cut short to limit its load. Or the wait began before the history. Or the history has too
    /// few entries for the cgroups of that time. If the wait began with a switch or a move, only culprits are missing: the
    /// causes are computed from sums. If the wait began with a wakeup, the rest of the wait is unattributed.
    LookBackCut = "look_back_cut", true;
    /// A real-time or deadline task woke and waited for more than 1 ms while its CPU ran no task. It had probably used up its
    /// runtime (`cpu.rt_runtime_us`, `sched_rt_runtime_us`, the runtime of SCHED_DEADLINE). The length of this part of the
    /// wait is exact, but the part is unattributed.
    OutOfRuntime = "out_of_runtime", true;
    /// More cgroups were created and removed between two readings than the buffer for their names can hold. The names of
    /// cgroups that still exist are read from the hierarchy. The figures of a removed cgroup are complete, but its name is
    /// missing.
    CgroupEventLost = "cgroup_event_lost", true;
    /// Before Linux 6.6: on a CPU, more cgroup queues were throttled than cgscope has clocks for. For waits on that CPU, the
    /// throttled part is counted for the other causes.
    ThrottleClockForgotten = "throttle_clock_forgotten", false;
    /// The table of stacks was full or locked. The blocked time counts for its state, but for no stack.
    StackNotCounted = "stack_not_counted", true;
    /// A task is not followed, because the BPF memory for it would exceed the memory limit of cgscope's own cgroup. This loss
    /// is counted when the task starts, and again at each reading. If cgscope follows all tasks and this task exits before
    /// memory is available, its waits are in its cgroup's sum but in no histogram.
    NoRoomForTask = "no_room_for_task", false;
    /// Since Linux 6.12: a task was moved to another CPU while it slept but was still on its queue (delayed dequeue). The
    /// kernel counts the rest of this sleep as a wait. The length of the wait is as in the kernel, but the wait is
    /// unattributed.
    MovedAsleep = "moved_asleep", true;
    /// Since Linux 6.18: a throttled task was moved to a CPU on which the kernel did not count the throttled time of the
    /// task's cgroup. While that CPU ran other tasks, the task's wait is unattributed.
    MovedThrottled = "moved_throttled", true;
    /// A task was moved to another CPU while it waited, and no program saw the move. A hardened kernel runs no BPF program if
    /// the CPU that moves the task is running a process that the kernel hides. The part of the wait before the move is
    /// unattributed.
    MovedUnseen = "moved_unseen", true;
    /// A CPU's table of pressure was full, and the cgroup has no entry in the table of exited tasks. The other reason: a
    /// cgroup has more than 15 ancestors, so its waits do not count for the topmost ancestors. Waits and causes are not
    /// affected.
    PressureForgotten = "pressure_forgotten", true;
    /// A task of a cgroup with a quota ran or waited without a switch for longer than the slots cover. The beginning is in no
    /// slot. The other reason: too many cgroups have a quota, and there are no slots for some of them. `cgscope whatif` gives
    /// no advice for these cgroups.
    DemandForgotten = "demand_forgotten", true;
    /// The past of a task is not kept, because its storage could not be created. For whom this task slept, and what it did while
    /// others slept for it, is unknown.
    ChainNotKept = "chain_not_kept", true;
    /// The table of sleepers and wakers was full, so a sleep is in no pair.
    ChainForgotten = "chain_forgotten", true;
    /// A waker had too many pauses during a sleep: what it did in the beginning of the sleep is estimated or unknown. Each pair has
    /// the length of these parts.
    ChainCut = "chain_cut", true;
    /// User space: the kernel ended a reading of its tasks early.
    ReadingCutShort = "reading_cut_short", false;
    /// User space: an interval was longer than planned by more than half of its length.
    IntervalLate = "interval_late", true;
    /// User space: some samples could not be read back from a recording.
    SamplesUnreadable = "samples_unreadable", false;
    /// Coarse mode, whole host: a task started and exited between two readings (`processes` of `/proc/stat`). No figure
    /// includes this task.
    TaskUnseen = "task_unseen", true;
    /// Coarse mode: a task exited. What the task did after the previous reading is lost.
    TaskEndUnseen = "task_end_unseen", true;
    /// User space: a cgroup waited for too many other cgroups, so some of them are summed up without names. The causes and
    /// the sum over all culprits are complete.
    CulpritMerged = "culprit_merged", true;
    /// User space: the host has more cgroups than cgscope can keep (tens of thousands). The figures of this cgroup count for
    /// its nearest ancestor that is kept and known. The loss is counted at each reading. The sums are complete.
    CgroupMerged = "cgroup_merged", true;
    /// A recording by a newer version of cgscope has a loss that this version does not know.
    Other = "other", false;
}

/// Number of loss counters on the BPF side: the losses before [`Loss::ReadingCutShort`].
pub const KERNEL_LOSSES: usize = Loss::ReadingCutShort as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discriminant_is_the_place_in_all() {
        for (i, loss) in Loss::ALL.iter().enumerate() {
            assert_eq!(*loss as usize, i);
        }
    }
}
