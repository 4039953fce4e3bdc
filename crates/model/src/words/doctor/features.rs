//! Verdicts on the features that differ between kernels.

use cgscope_layout::Feature;

use super::{Facts, Level, Topic, Verdict};
use crate::doctor::FeatureOff;

/// What a feature is, and the kernel version or option that adds it.
const fn what(feature: Feature) -> &'static str {
    match feature {
        Feature::RunQueues => "the scheduler's figures of tasks and run queues (CONFIG_FAIR_GROUP_SCHED)",
        Feature::SchedInfo => "the kernel's stamps of waits (CONFIG_SCHED_INFO)",
        Feature::TaskStorage => "storage for each task (Linux 5.11; for tracing programs 5.13)",
        Feature::LoopHelper => "a helper that repeats a step (Linux 5.17)",
        Feature::TaskIterator => "iterators over tasks (Linux 5.8)",
        Feature::PrevStateArgument => {
            "the state of the leaving task as an argument of sched_switch (Linux 5.18)"
        }
        Feature::Cgroups => "cgroups of tasks (CONFIG_CGROUPS, CONFIG_CGROUP_SCHED)",
        Feature::Quotas => "CPU quotas (CONFIG_CFS_BANDWIDTH)",
        Feature::ThrottleClock => "a clock of throttled time in each cgroup's queue (Linux 6.6)",
        Feature::ThrottleFunctions => {
            "tg_throttle_down and tg_unthrottle_up, functions to keep such a clock at"
        }
        Feature::TaskThrottling => "throttling of single tasks (Linux 6.18)",
        Feature::DelayedDequeue => "the mark of tasks that sleep on their queue (Linux 6.12)",
        Feature::IdleClock => "the time since when a CPU is idle (Linux 5.19)",
        Feature::InterruptTime => "accounting for interrupts (CONFIG_IRQ_TIME_ACCOUNTING)",
        Feature::IoWait => "a task's own word that it waits for a device (`in_iowait`)",
        Feature::ProcessTimes => "what exited threads of a process had done (`signal_struct`)",
        Feature::Credentials => "whose a task is (`cred`)",
        Feature::SyscallNumber => "the system call that a task is in (bpf_task_pt_regs, Linux 5.15)",
        Feature::NumaPreference => {
            "the node that a task's memory prefers (CONFIG_NUMA_BALANCING, not with PREEMPT_RT)"
        }
    }
}

/// The level and the effect of a missing feature.
const fn without(feature: Feature) -> (Level, &'static str) {
    match feature {
        Feature::RunQueues => (Level::Missing, "waits cannot be told exactly"),
        Feature::SchedInfo => (Level::Missing, "there is nothing to measure with"),
        Feature::TaskStorage => (Level::Missing, "there is no place for what the hook counts"),
        Feature::LoopHelper => {
            (Level::Missing, "waits cannot be looked back over, so that no cause is known")
        }
        Feature::TaskIterator => (Level::Missing, "what is counted of tasks cannot be read"),
        Feature::PrevStateArgument => {
            (Level::Ok, "it is read from the task itself, which holds the same at that moment")
        }
        Feature::Cgroups => {
            (Level::Degraded, "figures by cgroup, and whose quota or neighbour made a task wait, are null")
        }
        Feature::Quotas => (Level::Note, "nothing is ever throttled"),
        Feature::ThrottleClock => {
            (Level::Note, "cgscope keeps one itself, at the functions that throttle and unthrottle a queue")
        }
        Feature::ThrottleFunctions => (Level::Ok, "they are not needed"),
        Feature::TaskThrottling => (
            Level::Note,
            "run queues are throttled instead: of a wait that begins with a wakeup, `throttled` is an upper bound",
        ),
        Feature::DelayedDequeue => (Level::Ok, "tasks that fall asleep leave their queue at once"),
        Feature::IdleClock => {
            (Level::Note, "where a kernel hides processes, idle time after one of them counts as its")
        }
        Feature::InterruptTime => (Level::Note, "a wait behind one counts as behind whom it interrupted"),
        Feature::IoWait => (Level::Note, "what is blocked on devices counts as sleeping or uninterruptible"),
        Feature::ProcessTimes => (Level::Note, "in `stat`, a process is the sum of its living threads"),
        Feature::Credentials => (Level::Note, "`sample -G username` reads it of /proc"),
        Feature::SyscallNumber => (Level::Note, "`sample -G syscall` reads it of /proc"),
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
        _ => return "a newer kernel has it".into(),
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
    let finding = format!("this kernel is without {}: it has no {}", what(feature), missing.join(", "));
    let keeps_clock = matches!(feature, Feature::ThrottleClock | Feature::ThrottleFunctions);
    if is_off(Feature::Quotas) && (keeps_clock || feature == Feature::TaskThrottling) {
        return topic.ok(format!("{}: not needed, as there are no quotas", feature.name()));
    }
    if keeps_clock && is_off(Feature::ThrottleClock) && is_off(Feature::ThrottleFunctions) {
        return topic.degraded(
            finding,
            "how long a quota kept tasks from running is not known: `throttled` is 0, and that time is with the other causes",
            "a newer kernel has it; cpu.stat tells the sum for each cgroup",
        );
    }
    match without(feature) {
        (Level::Missing, effect) => topic.missing(finding, effect, &remedy(feature)),
        (Level::Degraded, effect) => topic.degraded(finding, effect, &remedy(feature)),
        (Level::Note, effect) => topic.note(format!("{finding}; {effect}")),
        (Level::Ok, effect) => topic.ok(format!("{finding}; {effect}")),
    }
}
