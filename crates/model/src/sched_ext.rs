//! The BPF scheduler (sched_ext), which replaces the kernel's own scheduling rules.

use std::sync::Arc;

use serde::Serialize;

/// What the kernel reports about sched_ext.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SchedExt {
    /// Name of the BPF scheduler; `None`: not loaded.
    pub scheduler: Option<Arc<str>>,
    /// True if the BPF scheduler schedules all normal tasks, not only tasks with the policy SCHED_EXT.
    pub takes_all: bool,
}

impl SchedExt {
    /// Returns the state between two readings. A scheduler that was loaded at only one of them counts.
    pub(crate) fn between(a: Option<&Self>, b: Option<&Self>) -> Option<Self> {
        let is_loaded = |reading: &&Self| reading.scheduler.is_some();
        b.filter(is_loaded).or_else(|| a.filter(is_loaded)).or(b).cloned()
    }

    /// Returns the BPF scheduler if it schedules all normal tasks. The kernel then enforces no quota (`cpu.max`) and no weight.
    pub(crate) fn instead_of_quotas(reading: Option<&Self>) -> Option<&Arc<str>> {
        reading.filter(|reading| reading.takes_all)?.scheduler.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn reading(scheduler: Option<&str>, takes_all: bool) -> Option<SchedExt> {
        Some(SchedExt { scheduler: scheduler.map(Into::into), takes_all })
    }

    #[test]
    fn a_scheduler_that_was_loaded_at_one_of_two_readings_counts() {
        let (none, simple, other) =
            (reading(None, false), reading(Some("simple"), true), reading(Some("b"), true));
        for (a, b, expected) in [
            (&none, &simple, &simple),
            (&simple, &none, &simple),
            (&simple, &other, &other),
            (&none, &none, &none),
            (&simple, &None, &simple),
            (&none, &None, &None),
            (&None, &None, &None),
        ] {
            assert_eq!(SchedExt::between(a.as_ref(), b.as_ref()), *expected);
        }
    }

    #[test]
    fn quotas_apply_beside_a_scheduler_of_some_tasks() {
        let of = |reading: &Option<SchedExt>| {
            SchedExt::instead_of_quotas(reading.as_ref()).map(ToString::to_string)
        };
        assert_eq!(of(&reading(Some("simple"), true)).as_deref(), Some("simple"));
        assert_eq!(of(&reading(Some("simple"), false)), None);
        assert_eq!((of(&reading(None, true)), of(&None)), (None, None));
    }
}
