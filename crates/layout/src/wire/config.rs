//! The configuration of the kernel side.

/// Settings that user space writes before the programs are loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// 1: follow every task. 0: follow the tasks in the table of selected ids, and the children of processes in it.
    pub follow_all: u64,
    /// Time of the start, ns of CLOCK_MONOTONIC. All waits of a task that starts later are counted.
    pub born_after_ns: u64,
    /// 1: a task's cgroup is that of the default hierarchy (v2), even where the cpu controller is not enabled that deep. 0: that
    /// of the cpu controller's own hierarchy (v1 and hybrid hosts).
    pub cgroup_v2: u64,
    /// Id of the root cgroup of that hierarchy. A task in an autogroup (`kernel.sched_autogroup_enabled`, v1 and hybrid hosts) is
    /// in the root cgroup, but its scheduler group belongs to no cgroup.
    pub root_cgroup_id: u64,
    /// ns of CLOCK_MONOTONIC: a process or thread that starts later is not the selected one, even if its id is the same.
    pub select_born_before_ns: u64,
    /// 1: culprits are single tasks, not only cgroups. Only for a selected target: a whole host would have too many.
    pub blame_tasks: u64,
    /// The number of the hierarchy of [`Self::cgroup_v2`], as in /proc/self/cgroup: ids of different hierarchies collide.
    /// `u64::MAX`: user space requests no events of created and removed cgroups.
    pub cgroup_hierarchy: u64,
    /// Number of NUMA nodes that have CPUs, at most [`super::NODES`]. With one node no placement is reported.
    pub nodes: u64,
    /// 1: waits are also counted by CPU.
    pub count_by_cpu: u64,
    /// 1: we keep a clock of throttled time, because the kernel has none.
    pub keep_throttle_clock: u64,
    /// 1: report [`super::Accounts`].
    pub accounts: u64,
    /// If not 0, and `accounts` is set: take a task's stack each time it has been blocked for this long since the last time, ns.
    pub stack_every_ns: u64,
    /// 1: the readings serve several viewers, and processes are followed for each viewer.
    pub shared: u64,
    /// Number of possible CPUs.
    pub cpus: u64,
    /// 1: count the [demand](crate::demand) of cgroups with a quota.
    pub demand: u64,
}
