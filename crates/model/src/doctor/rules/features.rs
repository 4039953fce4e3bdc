//! What differs between kernels: a line for each feature.

use cgscope_layout::Feature;

use super::{NOTHING, note, off, ok};
use crate::doctor::{Facts, FeatureOff, Level, Verdict};

/// What is said of a feature.
struct Words {
    /// What it is, and since when or by which option a kernel has it.
    what: &'static str,
    /// How bad it is to be without it, and what that means.
    without: (Level, &'static str),
    /// The option that brings it about, where it is not a matter of the version.
    option: Option<&'static str>,
}

const fn words(feature: Feature) -> Words {
    let (what, without, option) = match feature {
        Feature::RunQueues => (
            "the scheduler's figures of tasks and run queues (CONFIG_FAIR_GROUP_SCHED)",
            (Level::Missing, "waits cannot be told exactly"),
            Some("CONFIG_FAIR_GROUP_SCHED=y"),
        ),
        Feature::SchedInfo => (
            "the kernel's stamps of waits (CONFIG_SCHED_INFO)",
            (Level::Missing, "there is nothing to measure with"),
            Some("CONFIG_TASK_DELAY_ACCT=y"),
        ),
        Feature::TaskStorage => (
            "storage for each task (Linux 5.11; for tracing programs 5.13)",
            (Level::Missing, "there is no place for what the hook counts"),
            None,
        ),
        Feature::LoopHelper => (
            "a helper that repeats a step (Linux 5.17)",
            (Level::Missing, "waits cannot be looked back over, so that no cause is known"),
            None,
        ),
        Feature::TaskIterator => (
            "iterators over tasks (Linux 5.8)",
            (Level::Missing, "what is counted of tasks cannot be read"),
            None,
        ),
        Feature::PrevStateArgument => (
            "the state of the leaving task as an argument of sched_switch (Linux 5.18)",
            (Level::Ok, "it is read from the task itself, which holds the same at that moment"),
            None,
        ),
        Feature::Cgroups => (
            "cgroups of tasks (CONFIG_CGROUPS, CONFIG_CGROUP_SCHED)",
            (Level::Degraded, "figures by cgroup, and whose quota or neighbour made a task wait, are null"),
            Some("CONFIG_CGROUP_SCHED=y"),
        ),
        Feature::Quotas => (
            "CPU quotas (CONFIG_CFS_BANDWIDTH)",
            (Level::Note, "nothing is ever throttled"),
            Some("CONFIG_CFS_BANDWIDTH=y"),
        ),
        Feature::ThrottleClock => (
            "a clock of throttled time in each cgroup's queue (Linux 6.6)",
            (Level::Note, "cgscope keeps one itself, at the functions that throttle and unthrottle a queue"),
            None,
        ),
        Feature::ThrottleFunctions => (
            "tg_throttle_down and tg_unthrottle_up, functions to keep such a clock at",
            (Level::Ok, "they are not needed"),
            None,
        ),
        Feature::TaskThrottling => (
            "throttling of single tasks (Linux 6.18)",
            (
                Level::Note,
                "run queues are throttled instead: of a wait that begins with a wakeup, `throttled` is an upper bound",
            ),
            None,
        ),
        Feature::IdleClock => (
            "the time since when a CPU is idle (Linux 5.19)",
            (Level::Note, "where a kernel hides processes, idle time after one of them counts as its"),
            None,
        ),
        Feature::InterruptTime => (
            "accounting for interrupts (CONFIG_IRQ_TIME_ACCOUNTING)",
            (Level::Note, "a wait behind one counts as behind whom it interrupted"),
            Some("CONFIG_IRQ_TIME_ACCOUNTING=y"),
        ),
        Feature::IoWait => (
            "a task's own word that it waits for a device (`in_iowait`)",
            (Level::Note, "what is blocked on devices counts as sleeping or uninterruptible"),
            None,
        ),
        Feature::ProcessTimes => (
            "what exited threads of a process had done (`signal_struct`)",
            (Level::Note, "in `stat`, a process is the sum of its living threads"),
            None,
        ),
        Feature::Credentials => {
            ("whose a task is (`cred`)", (Level::Note, "`sample -G username` reads it of /proc"), None)
        }
        Feature::SyscallNumber => (
            "the system call that a task is in (bpf_task_pt_regs, Linux 5.15)",
            (Level::Note, "`sample -G syscall` reads it of /proc"),
            None,
        ),
        Feature::NumaPreference => (
            "the node that a task's memory prefers (CONFIG_NUMA_BALANCING, not with PREEMPT_RT)",
            (Level::Note, "`preferred_node` is null"),
            None,
        ),
    };
    Words { what, without, option }
}

pub(super) fn features(facts: &Facts) -> Vec<Verdict> {
    let Some(all_off) = &facts.features_off else { return Vec::new() };
    let is_off = |feature: Feature| all_off.iter().find(|off| off.feature == feature);
    Feature::ALL
        .iter()
        .flat_map(|feature| match is_off(*feature) {
            None => ok(feature.name(), format!("{}: {}", feature.name(), words(*feature).what)),
            Some(missing) => without(missing, is_off(Feature::ThrottleClock).is_some(), all_off),
        })
        .collect()
}

fn without(missing: &FeatureOff, keeps_own_clock: bool, all_off: &[FeatureOff]) -> Vec<Verdict> {
    let feature = missing.feature;
    let Words { what, without: (level, effect), option } = words(feature);
    let finding = format!("this kernel is without {what}: it has no {}", missing.missing.join(", "));
    let remedy = option.map_or_else(
        || "a newer kernel has it".to_owned(),
        |option| format!("boot a kernel built with {option}"),
    );
    let is_about_quotas =
        matches!(feature, Feature::ThrottleClock | Feature::ThrottleFunctions | Feature::TaskThrottling);
    if is_about_quotas && all_off.iter().any(|off| off.feature == Feature::Quotas) {
        return ok(feature.name(), format!("{}: not needed, as there are no quotas", feature.name()));
    }
    let no_functions = all_off.iter().any(|off| off.feature == Feature::ThrottleFunctions);
    let no_clock = feature == Feature::ThrottleClock && no_functions;
    match level {
        Level::Missing => off(level, feature.name(), finding, format!("{effect}: {NOTHING}"), remedy),
        // The last resort is not there either.
        _ if no_clock || (feature == Feature::ThrottleFunctions && keeps_own_clock) => off(
            Level::Degraded,
            feature.name(),
            finding,
            "how long a quota kept tasks from running is not known: `throttled` is 0, and that time is with the other causes",
            "a newer kernel has it; cpu.stat tells the sum for each cgroup",
        ),
        Level::Degraded => off(level, feature.name(), finding, effect, remedy),
        Level::Note => note(feature.name(), format!("{finding}; {effect}")),
        Level::Ok => ok(feature.name(), format!("{finding}; {effect}")),
    }
}
