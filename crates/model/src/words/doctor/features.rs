//! Verdicts on the features that differ between kernels.

use cgscope_layout::Feature;

use super::{Facts, Level, Topic, Verdict};
use crate::doctor::FeatureOff;

/// What a feature is, and the kernel version or option that adds it.
const fn what(feature: Feature) -> &'static str {
    match feature {
        Feature::RunQueues => "the scheduler's figures of tasks and run queues (CONFIG_FAIR_GROUP_SCHED)",
        Feature::SchedInfo => "the kernel's timestamps of waits (CONFIG_SCHED_INFO)",
        Feature::TaskStorage => "storage for each task (Linux 5.11; for tracing programs: 5.13)",
        Feature::StorageCache => "task storage from caches that work in every context (Linux 6.4)",
        Feature::TaskById => "functions that find a task by its id (Linux 6.2)",
        Feature::LoopHelper => "a helper that repeats a step (Linux 5.17)",
        Feature::TaskIterator => "iterators over tasks (Linux 5.8)",
        Feature::PrevStateArgument => {
            "the state of the task that is switched out, as an argument of sched_switch (Linux 5.18)"
        }
        Feature::Cgroups => "the cgroup of each task (CONFIG_CGROUPS, CONFIG_CGROUP_SCHED)",
        Feature::Quotas => "CPU quotas (CONFIG_CFS_BANDWIDTH)",
        Feature::ThrottleClock => "a clock of throttled time in each cgroup's queue (Linux 6.6)",
        Feature::ThrottleFunctions => {
            "tg_throttle_down and tg_unthrottle_up, functions at which cgscope can keep a clock of throttled time"
        }
        Feature::TaskThrottling => "throttling of single tasks (Linux 6.18)",
        Feature::DelayedDequeue => "the mark of a sleeping task that is still on its run queue (Linux 6.12)",
        Feature::SchedExt => "BPF schedulers (CONFIG_SCHED_CLASS_EXT, Linux 6.12)",
        Feature::RunnableTasks => "the number of tasks on a run queue that can run (Linux 6.14)",
        Feature::IdleClock => "the time at which a CPU became idle (Linux 5.19)",
        Feature::InterruptTime => "accounting for interrupts (CONFIG_IRQ_TIME_ACCOUNTING)",
        Feature::StolenTime => {
            "accounting for time that a hypervisor takes (CONFIG_PARAVIRT_TIME_ACCOUNTING)"
        }
        Feature::RealTimeLimits => "limits of real-time runtime for each cgroup (CONFIG_RT_GROUP_SCHED)",
        Feature::IoWait => "the flag of a task that waits for a device (`in_iowait`)",
        Feature::ProcessTimes => "the sums over the exited threads of a process (`signal_struct`)",
        Feature::Credentials => "the owner of a task (`cred`)",
        Feature::SyscallNumber => "the system call that a task is in (bpf_task_pt_regs, Linux 5.15)",
        Feature::NumaPreference => {
            "the node that a task's memory prefers (CONFIG_NUMA_BALANCING, not with PREEMPT_RT)"
        }
    }
}

/// The level and the effect of a missing feature.
const fn without(feature: Feature) -> (Level, &'static str) {
    match feature {
        Feature::RunQueues => (Level::Missing, "waits cannot be measured exactly"),
        Feature::SchedInfo => (Level::Missing, "waits cannot be measured"),
        Feature::TaskStorage => (Level::Missing, "the hook has no place for its counters"),
        Feature::StorageCache => {
            (Level::Ok, "every task gets its 4 KiB of storage at the start, also one that sleeps")
        }
        Feature::TaskById => (Level::Ok, "each reading visits all tasks of the host"),
        Feature::LoopHelper => (Level::Missing, "the hook cannot look back over a wait to find its causes"),
        Feature::TaskIterator => (Level::Missing, "the counters of tasks cannot be read"),
        Feature::PrevStateArgument => (Level::Ok, "the hook reads the same state from the task itself"),
        Feature::Cgroups => (
            Level::Degraded,
            "figures by cgroup, and the quotas and neighbours that made a task wait, are null",
        ),
        Feature::Quotas => (Level::Note, "nothing is ever throttled"),
        Feature::ThrottleClock => (
            Level::Note,
            "cgscope keeps such a clock itself, at the functions that throttle and unthrottle a queue",
        ),
        Feature::ThrottleFunctions => (Level::Ok, "cgscope does not need these functions"),
        Feature::TaskThrottling => (
            Level::Note,
            "run queues are throttled instead: in a wait that begins with a wakeup, `throttled` is an upper bound",
        ),
        Feature::DelayedDequeue => (Level::Ok, "a task that falls asleep leaves its run queue at once"),
        Feature::SchedExt => (Level::Ok, "the kernel's own scheduler runs all tasks"),
        Feature::RunnableTasks => {
            (Level::Ok, "a part of the contention may be uncertain (`pressure_uncertain_ns`)")
        }
        Feature::IdleClock => (
            Level::Note,
            "if the kernel hides processes from tracing, idle time after a hidden process counts for that process",
        ),
        Feature::InterruptTime => {
            (Level::Note, "a wait behind an interrupt counts as a wait behind the interrupted task")
        }
        Feature::StolenTime => (
            Level::Note,
            "in a virtual machine, a wait while the hypervisor has the CPU counts as a wait behind the interrupted task",
        ),
        Feature::RealTimeLimits => (
            Level::Ok,
            "the real-time tasks of a CPU share one limit of their runtime; since Linux 6.12 they have none",
        ),
        Feature::IoWait => (Level::Note, "time blocked on devices counts as sleeping or uninterruptible"),
        Feature::ProcessTimes => {
            (Level::Note, "in `stat`, figures of a process cover only its living threads")
        }
        Feature::Credentials => (Level::Note, "`sample -G username` reads the owner from /proc"),
        Feature::SyscallNumber => (Level::Note, "`sample -G syscall` reads the system call from /proc"),
        Feature::NumaPreference => (Level::Note, "`preferred_node` is null"),
    }
}

/// How to boot a kernel that has the feature.
fn remedy(feature: Feature) -> String {
    let option = match feature {
        Feature::RunQueues => "CONFIG_FAIR_GROUP_SCHED",
        Feature::SchedInfo => "CONFIG_TASK_DELAY_ACCT",
        Feature::Cgroups => "CONFIG_CGROUP_SCHED",
        Feature::Quotas => "CONFIG_CFS_BANDWIDTH",
        Feature::InterruptTime => "CONFIG_IRQ_TIME_ACCOUNTING",
        Feature::StolenTime => "CONFIG_PARAVIRT_TIME_ACCOUNTING",
        Feature::RealTimeLimits => "CONFIG_RT_GROUP_SCHED",
        _ => return "boot a newer kernel, which has this feature".into(),
    };
    format!("boot a kernel built with {option}=y")
}

pub(super) fn features(facts: &Facts) -> Vec<Verdict> {
    let Some(all_off) = &facts.features_off else { return Vec::new() };
    Feature::ALL.into_iter().flat_map(|feature| verdict(feature, all_off)).collect()
}

fn verdict(feature: Feature, all_off: &[FeatureOff]) -> Vec<Verdict> {
    let topic = Topic(feature.name());
    let is_off = |feature| all_off.iter().any(|off| off.feature == feature);
    let Some(FeatureOff { missing, .. }) = all_off.iter().find(|off| off.feature == feature) else {
        return topic.ok(format!("{}: {}", feature.name(), what(feature)));
    };
    let finding = format!("this kernel lacks {}: it has no {}", what(feature), missing.join(", "));
    let keeps_clock = matches!(feature, Feature::ThrottleClock | Feature::ThrottleFunctions);
    if is_off(Feature::Quotas) && (keeps_clock || feature == Feature::TaskThrottling) {
        return topic.ok(format!("{}: not needed, because this kernel has no quotas", feature.name()));
    }
    if keeps_clock && is_off(Feature::ThrottleClock) && is_off(Feature::ThrottleFunctions) {
        return topic.degraded(
            finding,
            "the time that quotas kept tasks from running counts under other causes, and `throttled` is 0",
            "boot a newer kernel, which has this clock; cpu.stat has the sum for each cgroup",
        );
    }
    match without(feature) {
        (Level::Missing, effect) => topic.missing(finding, effect, &remedy(feature)),
        (Level::Degraded, effect) => topic.degraded(finding, effect, &remedy(feature)),
        (Level::Note, effect) => topic.note(format!("{finding}; {effect}")),
        (Level::Ok, effect) => topic.ok(format!("{finding}; {effect}")),
    }
}
