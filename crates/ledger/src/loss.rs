//! All kinds of losses. Each loss is counted where it happens, and every output shows it.

crate::named! {
    /// A reason why a figure can be incomplete. The discriminant is the index of the loss's counter.
    Loss {
        /// A task without storage switched in although every task is followed. This wait is added to the task's next wait.
        SwitchWithoutStorage = "switch_without_storage",
        /// A task that existed before cgscope started switched in, but the kernel's task iterator does not show the task. A
        /// hardened kernel may hide processes. The task's waits are in no figure.
        SwitchOfHiddenTask = "switch_of_hidden_task",
        /// A stamp was later than the run queue's clock, so the wait was dropped.
        StampAfterClock = "stamp_after_clock",
        /// The storage of a new task could not be created: there was no memory, or the CPU was already creating another storage.
        /// If all tasks are followed, the next reading follows the task. If the task exits before, its waits are in its cgroup's
        /// sum but in no histogram. If only selected tasks are followed, this task is never followed.
        StorageNotCreated = "storage_not_created",
        /// A task exited in a cgroup that has no entry in the table of exited tasks, because the table is full. The task's waits
        /// count for its previous cgroup, or for the root.
        ExitedInOtherCgroup = "exited_in_other_cgroup",
        /// The waits of an exited task could not be added anywhere. Only the number of such tasks is known.
        ExitedNotCounted = "exited_not_counted",
        /// A task exited or moved to another cgroup during a reading. Its figures since the last reading may be counted twice.
        ReadingOvertaken = "reading_overtaken",
        /// A CPU's table of culprits was full, and so was the table of exited tasks, so the waiting cgroup has no entry there
        /// either. Causes are not affected, but the named culprits may sum to less than the part of their cause.
        CulpritForgotten = "culprit_forgotten",
        /// The history does not explain the whole wait. Hundreds of cgroups took turns on the CPU, so the look back was cut to
        /// limit the load; or the history does not reach back that far; or it keeps too few cgroups of that time. If the wait
        /// began with a switch or a move, only culprits are missing, because sums give the causes. If it began with a wakeup, the
        /// rest is unattributed.
        LookBackCut = "look_back_cut",
        /// A real-time or deadline task woke and waited for more than 1 ms while its CPU ran no task. It had probably used up its
        /// runtime (`cpu.rt_runtime_us`, `sched_rt_runtime_us`, the runtime of SCHED_DEADLINE). This part of the wait is complete
        /// but unattributed.
        OutOfRuntime = "out_of_runtime",
        /// More cgroups were created and removed between two readings than the buffer for their names can hold. Cgroups that
        /// still exist are found in the hierarchy. A cgroup that was already removed has no name, but complete figures.
        CgroupEventLost = "cgroup_event_lost",
        /// Before Linux 6.6: more cgroup queues were throttled on a CPU than cgscope has clocks for. In waits on that CPU, the
        /// throttled part is counted under the other causes.
        ThrottleClockForgotten = "throttle_clock_forgotten",
        /// The table of stacks was full or in use. The blocked time counts for its state, but for no stack.
        StackNotCounted = "stack_not_counted",
        /// A task is not followed, because its memory in the kernel would exceed the limit of cgscope's own cgroup. The loss is
        /// counted when the task starts and at each reading. If cgscope follows all tasks and this task exits before memory is
        /// available, its waits are in its cgroup's sum but in no histogram.
        NoRoomForTask = "no_room_for_task",
        /// Since Linux 6.12: a task was moved to another CPU while it slept but was still on its queue (delayed dequeue). The
        /// kernel counts the rest of that sleep as a wait. The length of that wait is complete, but it is unattributed.
        MovedAsleep = "moved_asleep",
        /// Since Linux 6.18: a throttled task was moved to a CPU on which the kernel did not count throttled time for the task's
        /// cgroup. The time in which that CPU ran other tasks is unattributed.
        MovedThrottled = "moved_throttled",
        /// A task was moved to another CPU while it waited, and no program saw the move. A hardened kernel runs no program while
        /// a process that it hides is on the CPU that moves the task. The part of the wait before the move is unattributed.
        MovedUnseen = "moved_unseen",
        /// A CPU's table of pressure was full, and the cgroup has no entry in the table of exited tasks. Or a cgroup has more
        /// than 15 ancestors, so its waits do not count for the topmost of them. Waits and causes are not affected.
        PressureForgotten = "pressure_forgotten",
        /// A task of a cgroup with a quota ran or waited so long without a switch that the beginning is in no slot of the
        /// cgroup's demand. Or more cgroups had a quota than there are slots for. `whatif` gives no advice for these cgroups.
        DemandForgotten = "demand_forgotten",
        /// User space: a reading of the kernel's tasks ended early.
        ReadingCutShort = "reading_cut_short",
        /// User space: an interval ended late, by more than half of its length.
        IntervalLate = "interval_late",
        /// User space: some samples of a recording could not be read back.
        SamplesUnreadable = "samples_unreadable",
        /// Coarse mode, whole host: a task started and exited between two readings (`processes` of `/proc/stat`). It is in no
        /// figure.
        TaskUnseen = "task_unseen",
        /// Coarse mode: a task exited. Its figures since the previous reading are lost.
        TaskEndUnseen = "task_end_unseen",
        /// User space: a cgroup waited for more other cgroups than are kept separate, so one of these is now summed with the
        /// rest. Causes are not affected, and the sum over the cgroup's culprits is complete.
        CulpritMerged = "culprit_merged",
        /// User space: there are more cgroups than the tens of thousands that are kept, so this cgroup counts for its nearest
        /// ancestor that is kept and known. The loss is counted at each reading. Sums are complete.
        CgroupMerged = "cgroup_merged",
        /// In a recording by a newer version: a loss that this version does not know.
        Other = "other",
    }
}

impl Loss {
    /// Returns whether the result counts as complete despite this loss. That is the case if this host can never show the missing
    /// data (the coarse mode never shows how a task ends), if the figures are complete and only names are missing, or if only the
    /// bounds of an interval shift. Every output shows such a loss, but it does not make a run incomplete.
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
