//! Every way in which something can be lost, counted where it happens and shown in every output.

crate::named! {
    /// A way in which a figure can be incomplete. The discriminant is the index of its counter.
    Loss {
        /// A task came on a CPU without storage although every task is followed; its wait is added to its next one.
        SwitchWithoutStorage = "switch_without_storage",
        /// A task that was there before us came on a CPU, and the kernel's task iterator does not show it: a hardened
        /// kernel may hide processes. Its waits are in no figure.
        SwitchOfHiddenTask = "switch_of_hidden_task",
        /// A stamp lay later than the run queue's clock; the wait was dropped.
        StampAfterClock = "stamp_after_clock",
        /// The storage of a new task could not be made (no memory, or another was just being made on that CPU). If all tasks
        /// are followed, it is from the next reading on; if it dies before, its waits are in its cgroup's sum but in no
        /// histogram. Otherwise it is not followed.
        StorageNotCreated = "storage_not_created",
        /// A task died in a cgroup that has no place in the table of exited tasks, since the table is full. Its waits are with the cgroup
        /// it was in before, or with the root.
        ExitedInOtherCgroup = "exited_in_other_cgroup",
        /// An exited task's waits could not be added anywhere; only their number of tasks is known.
        ExitedNotCounted = "exited_not_counted",
        /// A task died while it was being read: what it did since the reading before is counted twice.
        ReadingOvertaken = "reading_overtaken",
        /// The table of culprits of a CPU was full, and one that user space had not read yet was dropped for another. Causes are not
        /// affected; the culprits named may sum to less than their part.
        CulpritForgotten = "culprit_forgotten",
        /// A wait was not looked back over to its beginning, which would have taken too much of the CPU: hundreds of cgroups took turns on
        /// it. Where the wait began with a switch, causes are known from sums and only culprits are missing; where it began with a
        /// wakeup, the rest is unattributed.
        LookBackCut = "look_back_cut",
        /// A real-time or deadline task had used up its runtime (`cpu.rt_runtime_us`, `sched_rt_runtime_us`, the runtime of
        /// SCHED_DEADLINE) and waited for more. The wait is whole, and unattributed: there is no cause for it yet.
        OutOfRuntime = "out_of_runtime",
        /// More cgroups came and went between two readings than the buffer for their names has room for. They are then looked
        /// for in the hierarchy; one that has gone before that has no name, and its figures are whole.
        CgroupEventLost = "cgroup_event_lost",
        /// Before Linux 6.6: more queues of cgroups stood throttled on a CPU than are kept a clock for. Of the waits there the
        /// throttled part is with the other causes.
        ThrottleClockForgotten = "throttle_clock_forgotten",
        /// The table of stacks was full, or just in use: time blocked is in its state, but not with the place where it was spent.
        StackNotCounted = "stack_not_counted",
        /// A task is not followed, since the memory that the kernel would need for it is not within the limit of cgscope's own cgroup.
        /// Counted when the task starts and at each reading. If it exits before there is room, and all tasks are followed, its waits
        /// are in its cgroup's sum but in no histogram.
        NoRoomForTask = "no_room_for_task",
        /// User space: a reading of the kernel's tasks ended early.
        ReadingCutShort = "reading_cut_short",
        /// User space: an interval ended late by more than half of its length.
        IntervalLate = "interval_late",
        /// User space: samples of a recording that could not be read back.
        SamplesUnreadable = "samples_unreadable",
        /// Coarse mode, whole host: a task was made and ended between two readings (`processes` of `/proc/stat` counts it). Nothing
        /// of it is in any figure.
        TaskUnseen = "task_unseen",
        /// Coarse mode: a task ended. What it did since the reading before is in no figure.
        TaskEndUnseen = "task_end_unseen",
        /// User space: a cgroup waited behind more others than are told apart, and one of them is now summed with the rest. Causes are
        /// not affected, and the sum over its culprits is whole.
        CulpritMerged = "culprit_merged",
        /// In a recording of a newer version: a loss that this one has no name for.
        Other = "other",
    }
}

impl Loss {
    /// True for what this host never shows (the coarse mode never shows how a task ends), for names that are missing beside whole
    /// figures, and for what only shifts the bounds of an interval, as opposed to what was lost of what the host shows: said in every output, but no reason to call a run
    /// incomplete.
    pub const fn leaves_result_whole(self) -> bool {
        matches!(
            self,
            Self::SwitchOfHiddenTask
                | Self::CulpritForgotten
                | Self::LookBackCut
                | Self::OutOfRuntime
                | Self::CulpritMerged
                | Self::CgroupEventLost
                | Self::StackNotCounted
                | Self::IntervalLate
                | Self::TaskUnseen
                | Self::TaskEndUnseen
        )
    }
}

/// Counters kept by the BPF side: the losses before [`Loss::ReadingCutShort`].
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
