//! What the kernel side is told before it begins.

/// What user space sets before the programs are loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// 1: follow every task. 0: those in the table of the selected, and the children of processes among them.
    pub follow_all: u64,
    /// CLOCK_MONOTONIC at the start, ns: a task born later has waited only under our eyes.
    pub born_after_ns: u64,
    /// 1: a task's cgroup is that of the default hierarchy (v2), also where the cpu controller is not enabled that
    /// deep. 0: that of the cpu controller's own hierarchy (v1 and hybrid hosts).
    pub cgroup_v2: u64,
    /// The root of that hierarchy. A task in an autogroup (`kernel.sched_autogroup_enabled`, v1 and hybrid hosts) is in
    /// the root cgroup, but its scheduler group belongs to no cgroup.
    pub root_cgroup_id: u64,
    /// CLOCK_MONOTONIC, ns: a process or thread born later is not the one that was selected, though its id may be.
    pub select_born_before_ns: u64,
    /// 1: culprits are single tasks, not only cgroups. For a selected target: on a whole host there would be too many.
    pub blame_tasks: u64,
    /// The number of the hierarchy of [`Self::cgroup_v2`], as in /proc/self/cgroup: ids of different hierarchies collide.
    /// `u64::MAX`: user space does not want to be told what cgroups come and go.
    pub cgroup_hierarchy: u64,
    /// NUMA nodes that have CPUs, at most [`super::NODES`]. With one there is nothing to tell.
    pub nodes: u64,
    /// 1: waits are also counted by CPU.
    pub count_by_cpu: u64,
    /// 1: the kernel keeps no clock of throttled time, and we do.
    pub keep_throttle_clock: u64,
    /// 1: tell [`super::Accounts`].
    pub accounts: u64,
    /// With `accounts`, and not 0: the stack of a task is counted whenever it has been blocked for so long since the last
    /// time, ns.
    pub stack_every_ns: u64,
    /// 1: read for viewers of several users. It is told whose a task is, and processes are followed for each viewer.
    pub shared: u64,
}
