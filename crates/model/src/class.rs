//! What keeps a target from being faster, in one word and one sentence, by rules with figures.
//!
//! Shares are of the time of its active threads: idle ones do not hide the busy ones ([`Activity`]). `docs/class.md` tells the
//! rules with their reasons.

mod activity;
mod targets;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_doubt;
mod words;

use serde::{Serialize, Serializer};

pub use activity::Activity;
pub use targets::Classes;

use crate::{Cause, findings::is_share};

/// A target is idle if its active threads wait for work for this share of their time, percent: what they need for it is then the
/// smaller part.
pub const IDLE_PERCENT: u64 = 50;
/// One thing alone is named if it takes this share of the time that is not spent waiting for work, percent: without all others that
/// time would shrink by less than half.
pub const DOMINANT_PERCENT: u64 = 60;
/// Otherwise all that take this share are, percent: without one that takes less a fifth of the time is won at most.
pub const MIXED_PERCENT: u64 = 20;
/// Throttled for this share of the time that it ran or wanted to, percent: a setting may cost less than hardware, so it is told of
/// before contention is.
pub const QUOTA_PERCENT: u64 = 10;
/// On a run queue, or waking, for this share of the time that it ran or wanted to, percent: some waiting is usual where CPUs are well
/// used.
pub const CONTENDED_PERCENT: u64 = 20;
/// Nothing is said of less than this, where the interval is no longer either: ns. One period of a quota is 100 ms by default, one
/// turn on a CPU some.
pub const TOO_SHORT_NS: u64 = 50_000_000;
/// More CPU will not help where throttling and run queues take less than this share of the time, percent: it could save no more.
pub const MORE_CPU_PERCENT: u64 = 10;
/// A thread that ran or wanted to for less than this share of what the busiest one did, percent, is idle: it does not set the pace.
pub const BESIDE_BUSIEST_PERCENT: u64 = 10;
/// Parts are told of from this share on, percent.
pub const TOLD_PERCENT: u64 = 5;

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What keeps it from being faster.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Class { $($(#[$doc])* $variant,)* }

        impl Class {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in every output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

classes! {
    /// It computes, and gets the CPU when it wants it.
    CpuBound = "CPU-bound",
    /// It wants to compute, and a quota keeps it from that.
    QuotaBound = "quota-bound",
    /// It wants to compute, and others are on the CPUs.
    Contended = "contended",
    /// It waits for devices, sockets or pipes.
    IoBound = "I/O-bound",
    /// It waits for locks.
    LockBound = "lock-bound",
    /// It is blocked on something else, or on what is not known.
    Blocked = "blocked",
    /// It waits for work.
    Idle = "idle",
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The quota that throttles a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// Path of the cgroup that has it.
    pub path: std::sync::Arc<str>,
    /// The quota in CPUs; `None`: not known.
    pub cores: Option<f64>,
    /// Its cgroup used [`BELOW_LIMIT_PERCENT`](crate::findings::BELOW_LIMIT_PERCENT) of it over the interval. Then it bounds what
    /// can be done, however many threads sleep meanwhile.
    pub used_up: bool,
}

/// The class of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// One, or of a mixed case several, that which takes the most first; none where too little is known.
    pub classes: Vec<Class>,
    /// With the figures, and what to do: one sentence, without a full stop.
    pub says: String,
}

/// The class of what was active so, throttled by this quota if at all.
pub fn verdict(activity: &Activity, quota: Option<&Quota>) -> Verdict {
    if activity.is_too_short() {
        return Verdict { classes: Vec::new(), says: "too short to judge".into() };
    }
    let is_bound = quota.is_some_and(|quota| quota.used_up) && is_throttled(activity);
    let classes = if is_bound { vec![Class::QuotaBound] } else { classes(activity) };
    let says = words::sentence(&classes, activity, quota);
    Verdict { classes, says }
}

fn classes(activity: &Activity) -> Vec<Class> {
    let (all_ns, wanted_ns) = (activity.time_ns(), activity.wanted_ns());
    let needed_ns = all_ns - activity.blocked.for_work();
    let groups = [
        (None, wanted_ns),
        (Some(Class::IoBound), activity.io_ns()),
        (Some(Class::LockBound), activity.locks_ns()),
        (Some(Class::Blocked), activity.otherwise_blocked_ns()),
    ];
    let mut named: Vec<_> =
        groups.into_iter().filter(|(_, ns)| is_share(*ns, needed_ns, MIXED_PERCENT)).collect();
    named.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    if named.first().is_some_and(|(_, ns)| is_share(*ns, needed_ns, DOMINANT_PERCENT)) {
        named.truncate(1);
    }
    let of =
        |(class, _): (Option<Class>, u64)| class.map_or_else(|| of_wanted(activity), |class| vec![class]);
    let mut classes: Vec<_> = named.into_iter().flat_map(of).collect();
    if !activity.is_known_to_compute() {
        classes.retain(|class| *class != Class::CpuBound);
    }
    if activity.threads == 0 || is_share(all_ns - needed_ns, all_ns, IDLE_PERCENT) {
        // What it does is little, but what it waits for a CPU is lost all the same, where that is more than a little.
        classes.retain(|class| match class {
            Class::QuotaBound => is_share(activity.throttled_ns, all_ns, MORE_CPU_PERCENT),
            Class::Contended => is_share(activity.in_line_ns(), all_ns, MORE_CPU_PERCENT),
            _ => false,
        });
        classes.insert(0, Class::Idle);
    }
    classes
}

fn is_throttled(activity: &Activity) -> bool {
    is_share(activity.throttled_ns, activity.wanted_ns(), QUOTA_PERCENT)
}

/// What becomes of the time that it ran or wanted to.
fn of_wanted(activity: &Activity) -> Vec<Class> {
    let wanted_ns = activity.wanted_ns();
    let queued_ns = activity.in_line_ns();
    let mut classes = Vec::new();
    if is_throttled(activity) {
        classes.push((Class::QuotaBound, activity.throttled_ns));
    }
    if is_share(queued_ns, wanted_ns, CONTENDED_PERCENT) {
        classes.push((Class::Contended, queued_ns));
    }
    if classes.is_empty() {
        classes.push((Class::CpuBound, wanted_ns));
    }
    classes.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    classes.into_iter().map(|(class, _)| class).collect()
}

impl Activity {
    /// It ran, or would have if it had been let: ns.
    fn wanted_ns(&self) -> u64 {
        let Self { on_cpu_ns, throttled_ns, queued_ns, wakeup_ns, .. } = self;
        crate::sum::total([*on_cpu_ns, *throttled_ns, *queued_ns, *wakeup_ns])
    }

    /// On a run queue, or waking: ns.
    fn in_line_ns(&self) -> u64 {
        self.queued_ns.saturating_add(self.wakeup_ns)
    }

    fn is_too_short(&self) -> bool {
        let needed_ns = self.time_ns() - self.blocked.for_work();
        self.duration_ns < TOO_SHORT_NS && needed_ns < TOO_SHORT_NS
    }

    /// Of what it was blocked on nothing is missing, or it was on the CPUs so much that this would not change what it is.
    fn is_known_to_compute(&self) -> bool {
        !self.is_partial() || is_share(self.busiest_ns, self.duration_ns, DOMINANT_PERCENT)
    }

    fn io_ns(&self) -> u64 {
        use crate::Kind::{Disk, IoUring, Network, Pipe};
        self.of_kinds([Network, Disk, Pipe, IoUring])
    }

    fn locks_ns(&self) -> u64 {
        use crate::Kind::{FileLock, KernelLock, Lock};
        self.of_kinds([Lock, FileLock, KernelLock])
    }

    fn otherwise_blocked_ns(&self) -> u64 {
        use crate::Kind::{Memory, Other, Unknown};
        self.of_kinds([Memory, Other, Unknown])
    }

    fn of_kinds<const N: usize>(&self, kinds: [crate::Kind; N]) -> u64 {
        crate::sum::total(kinds.map(|kind| self.blocked.get(kind)))
    }

    /// What more CPU could save at most, ns.
    fn saved_by_cpu_ns(&self) -> u64 {
        self.wanted_ns() - self.on_cpu_ns
    }

    /// ns waited for a cause, as far as causes are known.
    fn waited_ns(&self, cause: Cause) -> u64 {
        self.by_cause.get(cause)
    }
}
