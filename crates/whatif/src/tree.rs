//! What is replayed: the recorded demand of cgroups, their limits, and the CPUs that they had.

/// The demand of one cgroup's own tasks in one slot of time. All four are ns of CPU or task time, summed over tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub ran_ns: u64,
    /// Time in which tasks were runnable but did not run: throttled, or waiting for a CPU.
    pub waited_ns: u64,
    /// CPU work at the time at which it would have run without any hindrance: a burst that was woken at `w` and used `c` ns of CPU
    /// demands one CPU over `[w, w + c)`. Over all slots it is the same sum as `ran_ns`.
    pub firm_ns: u64,
    /// Extra demand of tasks that never sleep. They would have used this time, but it need not be made up for later. Only the open
    /// loop uses it.
    pub presumed_ns: u64,
}

/// The demand of one cgroup's own tasks over time, without cgroups below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Length of a slot, ns of wall time; typically 2^24.
    pub slot_ns: u64,
    /// The slots, in order and without gaps.
    pub slots: Vec<Slot>,
}

impl Profile {
    pub fn length_ns(&self) -> u64 {
        self.slot_ns * self.slots.len() as u64
    }
}

/// A limit as `cpu.max` and `cpu.max.burst` set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// CPU time per period, ns; at least [`Limit::LEAST_NS`].
    pub quota_ns: u64,
    /// Length of a period, ns of wall time; at least [`Limit::LEAST_NS`].
    pub period_ns: u64,
    /// Unused quota that may be saved for later periods, ns.
    pub burst_ns: u64,
}

impl Limit {
    /// The kernel accepts no quota or period below 1 ms (`min_cfs_quota_period`).
    pub const LEAST_NS: u64 = 1_000_000;

    /// No kernel allows longer quotas, periods and bursts: `max_cfs_runtime`, which is 2^44 us (`kernel/sched/core.c`, Linux 5.14).
    pub const MOST_US: u64 = 1 << 44;

    pub fn cpus(&self) -> f64 {
        self.quota_ns as f64 / self.period_ns as f64
    }
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The index of the cgroup above it in [`Tree::nodes`], which is lower than its own; `None`: no recorded cgroup is above it.
    pub parent: Option<usize>,
    /// The limit in force when the profile was recorded.
    pub limit: Option<Limit>,
    /// How many of its own tasks can run at the same time at most.
    pub threads: Option<u32>,
    pub profile: Profile,
}

/// The cgroups that share limits and CPUs. Cgroups that share neither are better replayed in trees of their own: the time that a replay
/// takes grows with the number of events times the number of cgroups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The cgroups, at least one; parents come before their children. Their profiles have the same length of slots.
    pub nodes: Vec<Node>,
    /// CPUs that the whole tree can use, above 0: those of the host or the cpuset.
    pub capacity: f64,
}
