//! All kinds of losses. Each is counted where it happens and shown in every output.

crate::named! {
    /// A reason why a figure can be incomplete. The discriminant is the index of its counter.
    Loss {
        /// A task without storage switched in although every task is followed. Its wait is added to its next one.
        SwitchWithoutStorage = "switch_without_storage",
        /// A task that existed before us switched in, but the kernel's task iterator does not show it: a hardened kernel may hide
        /// processes. Its waits are in no figure.
        SwitchOfHiddenTask = "switch_of_hidden_task",
        /// A stamp was later than the run queue's clock, so the wait was dropped.
        StampAfterClock = "stamp_after_clock",
        /// The storage of a new task could not be created: no memory, or that CPU was just creating another. If all tasks are
        /// followed, the next reading follows the task. If the task exits before, its waits are in its cgroup's sum but in no
        /// histogram. If only selected tasks are followed, this one is never followed.
        StorageNotCreated = "storage_not_created",
        /// A task exited in a cgroup without an entry in the table of exited tasks, because the table is full. Its waits count
        /// for the cgroup that it was in before, or for the root.
        ExitedInOtherCgroup = "exited_in_other_cgroup",
        /// The waits of an exited task could not be added anywhere; only the number of such tasks is known.
        ExitedNotCounted = "exited_not_counted",
        /// A task exited or moved to another cgroup while it was read. Its figures since the previous reading may be counted
        /// twice.
        ReadingOvertaken = "reading_overtaken",
        /// The table of culprits of a CPU was full, and the cgroup that waited has no entry in the table of exited tasks, because that
        /// is full, too. Causes are not affected, but the named culprits may sum to less than their part.
        CulpritForgotten = "culprit_forgotten",
        /// The history does not explain all of a wait: hundreds of cgroups took turns on the CPU, so the look back was cut to limit
        /// the load; or the history does not reach so far; or it keeps too few cgroups of that time. If the wait began with a
        /// switch or a move, its causes are known from sums and only culprits are missing. If it began with a wakeup, the rest is
        /// unattributed.
        LookBackCut = "look_back_cut",
        /// A real-time or deadline task was woken and waited for more than 1 ms while its CPU ran nobody. It probably had used up its
        /// runtime (`cpu.rt_runtime_us`, `sched_rt_runtime_us`, the runtime of SCHED_DEADLINE). That time is complete but
        /// unattributed.
        OutOfRuntime = "out_of_runtime",
        /// More cgroups were created and removed between two readings than the buffer for their names can hold. Cgroups that
        /// still exist are found in the hierarchy. A cgroup that was removed before has no name, but its figures are complete.
        CgroupEventLost = "cgroup_event_lost",
        /// Before Linux 6.6: more queues of cgroups were throttled on a CPU than we keep clocks for. In waits on that
        /// CPU, the throttled part is counted under the other causes.
        ThrottleClockForgotten = "throttle_clock_forgotten",
        /// The table of stacks was full or in use. The time blocked counts for its state, but for no stack.
        StackNotCounted = "stack_not_counted",
        /// A task is not followed, because the kernel would need memory for it beyond the limit of cgscope's own cgroup. Counted
        /// when the task starts and at each reading. If cgscope follows all tasks and this task exits before memory is available,
        /// its waits are in its cgroup's sum but in no histogram.
        NoRoomForTask = "no_room_for_task",
        /// Since Linux 6.12: a task was moved to another CPU while it slept but was still on its queue (delayed dequeue). The
        /// kernel counts the rest of that sleep as a wait. It is complete but unattributed.
        MovedAsleep = "moved_asleep",
        /// Since Linux 6.18: a throttled task was moved to a CPU on which the kernel did not count throttled time for its cgroup.
        /// The time in which that CPU ran others is unattributed.
        MovedThrottled = "moved_throttled",
        /// A task was moved to another CPU while it waited, and no program saw it: a hardened kernel runs none while a process that
        /// it hides is on the CPU that moves the task. The part of the wait before the move is unattributed.
        MovedUnseen = "moved_unseen",
        /// The table of pressure of a CPU was full, and the cgroup has no entry in the table of exited tasks; or waits of a cgroup
        /// below 16 others do not count for the highest of these. Waits and causes are not affected.
        PressureForgotten = "pressure_forgotten",
        /// A task of a cgroup with a quota ran or waited for so long, without a switch, that the beginning is in no slot of the
        /// cgroup's demand; or more cgroups had a quota than have slots. `whatif` gives no advice for these.
        DemandForgotten = "demand_forgotten",
        /// User space: a reading of the kernel's tasks ended early.
        ReadingCutShort = "reading_cut_short",
        /// User space: an interval ended late, by more than half of its length.
        IntervalLate = "interval_late",
        /// User space: some samples of a recording could not be read back.
        SamplesUnreadable = "samples_unreadable",
        /// Coarse mode, whole host: a task started and exited between two readings (`processes` of `/proc/stat` counts it). It is
        /// in no figure.
        TaskUnseen = "task_unseen",
        /// Coarse mode: a task exited. Its figures since the previous reading are lost.
        TaskEndUnseen = "task_end_unseen",
        /// User space: a cgroup waited behind more others than are kept separate, so one of them is now summed with the rest.
        /// Causes are not affected, and the sum over its culprits is complete.
        CulpritMerged = "culprit_merged",
        /// User space: there are more cgroups than the tens of thousands that are kept, so one counts for the nearest cgroup above
        /// it that is kept and known. Counted at each reading. Sums are complete.
        CgroupMerged = "cgroup_merged",
        /// In a recording by a newer version: a loss for which this version has no name.
        Other = "other",
    }
}

impl Loss {
    /// Returns whether the result counts as complete despite this loss. True if this host can never show the missing data (the
    /// coarse mode never shows how a task ends), if only names are missing beside complete figures, or if only the bounds of an
    /// interval shift. Such a loss is shown in every output but does not make a run incomplete.
    pub const fn leaves_result_whole(self) -> bool {
        matches!(
            self,
            Self::SwitchOfHiddenTask
                | Self::CulpritForgotten
                | Self::PressureForgotten
                | Self::DemandForgotten
                | Self::LookBackCut
                | Self::OutOfRuntime
                | Self::MovedAsleep
                | Self::MovedThrottled
                | Self::MovedUnseen
                | Self::CulpritMerged
                | Self::CgroupEventLost
                | Self::CgroupMerged
                | Self::StackNotCounted
                | Self::IntervalLate
                | Self::TaskUnseen
                | Self::TaskEndUnseen
        )
    }
}

/// Number of counters that the BPF side keeps: the losses before [`Loss::ReadingCutShort`].
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
