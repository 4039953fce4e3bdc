//! The kernel fields that the BPF side reads, each declared once, and the constants that user space patches into its
//! instructions.
//!
//! rustc emits no CO-RE relocations. User space resolves each entry of [`KERNEL_FIELDS`] in the running kernel's BTF, and patches
//! the offsets into the instructions before it loads the programs. For rare reads, it also sets the offsets as one constant
//! global. The verifier sees plain loads at known offsets, and drops the branches for fields that this kernel lacks.
//!
//! The verifier also knows a constant in read-only data, but each use is still a load at run time, plus an addition. The hook
//! reads some 25 kernel fields at each switch, so each read of a field is a single instruction. Its offset is the number of the
//! field until user space replaces it.

use crate::Feature;

/// The offset of a field that this kernel lacks.
pub const ABSENT: u32 = u32::MAX;

/// Shift of the bit's number in the offset of a single bit ([`Offsets::bit`]). No structure has more than 2^24 bytes.
pub const BIT_SHIFT: u32 = 24;

/// A kernel field, and the feature that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The kernel structure, by its name in BTF.
    pub structure: &'static str,
    /// The path of members within the structure. `|` separates alternatives, such as renamed fields.
    pub path: &'static str,
    /// The feature that is off if the kernel lacks the field.
    pub feature: Feature,
}

macro_rules! kernel_fields {
    ($($(#[$doc:meta])* $name:ident: $structure:literal, $path:literal, $feature:ident;)*) => {
        /// Byte offsets into kernel structures; [`ABSENT`] if the kernel lacks the field.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Offsets { $($(#[$doc])* pub $name: u32,)* }

        /// The fields to look up in BTF, in the order of the members of [`Offsets`].
        pub const KERNEL_FIELDS: &[Field] =
            &[$(Field { structure: $structure, path: $path, feature: Feature::$feature },)*];

        impl Offsets {
            /// Every field [`ABSENT`]: the initial value in the object file, before user space sets it.
            pub const UNKNOWN: Self = Self { $($name: ABSENT,)* };

            /// Returns the offset of bit number `bits`: the byte's offset, and above [`BIT_SHIFT`] the bit's number in the byte.
            pub const fn bit(bits: u32) -> u32 {
                ((bits % 8) << BIT_SHIFT) | (bits / 8)
            }

            /// Creates offsets from an array in the order of [`KERNEL_FIELDS`].
            pub const fn from_array(offsets: [u32; FIELD_COUNT]) -> Self {
                let [$($name,)*] = offsets;
                Self { $($name,)* }
            }
        }
    };
}

/// Number of fields in [`Offsets`].
pub const FIELD_COUNT: usize = KERNEL_FIELDS.len();

kernel_fields! {
    /// `pid_t`: the thread's id, in the initial PID namespace.
    task_pid: "task_struct", "pid", RunQueues;
    /// `pid_t`: the process's id, in the initial PID namespace.
    task_tgid: "task_struct", "tgid", RunQueues;
    /// `char[16]`.
    task_comm: "task_struct", "comm", RunQueues;
    /// `u64`, ns of CLOCK_MONOTONIC at fork.
    task_start_time: "task_struct", "start_time", RunQueues;
    /// `unsigned int __state` since 5.14; before that, `long state`.
    task_state: "task_struct", "__state|state", RunQueues;
    /// `int`: EXIT_ZOMBIE or EXIT_DEAD, 0 until the task has exited.
    task_exit_state: "task_struct", "exit_state", RunQueues;
    /// Only the existence of this field matters. Since 7.2 all task storage works in every context and has no member that says
    /// so, so we look for `state` instead, which elements have since 7.0.
    storage_cache: "bpf_local_storage_map|bpf_local_storage_elem", "bpf_ma|use_kmalloc_nolock|state", StorageCache;
    /// `int`: below 100 for real-time and deadline tasks, to which CPU quotas do not apply.
    task_prio: "task_struct", "prio", RunQueues;
    /// `unsigned int`: PF_EXITING among others.
    task_flags: "task_struct", "flags", RunQueues;
    /// `int`, since 7.2 `u8`: 1 while the task is on a CPU.
    task_on_cpu: "task_struct", "on_cpu", RunQueues;
    /// `int`, since 7.2 `u8`: 1 while the task is on a run queue, 2 while it moves to another one.
    task_on_rq: "task_struct", "on_rq", RunQueues;
    /// `unsigned long`: voluntary switches, counted before the tracepoint.
    task_nvcsw: "task_struct", "nvcsw", RunQueues;
    /// `unsigned long`: involuntary switches, counted before the tracepoint.
    task_nivcsw: "task_struct", "nivcsw", RunQueues;
    /// `u64`, ns: run time, up to the last update by tick or switch.
    task_run_ns: "task_struct", "se.sum_exec_runtime", RunQueues;
    /// `u64`, ns of `rq->clock_task`: up to when the run time is counted. For a task off its CPU, the last switch out.
    task_counted_until: "task_struct", "se.exec_start", RunQueues;
    /// `unsigned char`: the task sleeps, but is still on its queue (Linux 6.12).
    task_delayed: "task_struct", "se.sched_delayed", DelayedDequeue;
    /// `u64`: migrations between CPUs.
    task_migrations: "task_struct", "se.nr_migrations", RunQueues;
    /// `struct cfs_rq *`: correct for tasks of every scheduling class (`set_task_rq`); needs CONFIG_FAIR_GROUP_SCHED.
    task_cfs_rq: "task_struct", "se.cfs_rq", RunQueues;
    /// `unsigned long long`, ns: the kernel's own sum of waits; needs CONFIG_SCHED_INFO.
    task_run_delay: "task_struct", "sched_info.run_delay", SchedInfo;
    /// `unsigned long long`, ns of `rq->clock`: since when the task waits; 0 if it does not wait.
    task_last_queued: "task_struct", "sched_info.last_queued", SchedInfo;
    /// `unsigned long long`, ns of `rq->clock`: since when the task has been on its CPU.
    task_last_arrival: "task_struct", "sched_info.last_arrival", SchedInfo;
    /// One bit of an `unsigned int`, see [`Offsets::bit`]: the deadline task has used up its runtime.
    task_dl_throttled: "task_struct", "dl.dl_throttled", RealTimeLimits;
    /// `struct rt_rq *` of the task's group on its CPU; needs CONFIG_RT_GROUP_SCHED, as do the next three fields.
    task_rt_rq: "task_struct", "rt.rt_rq", RealTimeLimits;
    /// `struct sched_rt_entity *` of the task's group on its CPU.
    task_rt_parent: "task_struct", "rt.parent", RealTimeLimits;
    /// `struct rt_rq *`: the queue on which the entity is queued.
    rt_entity_rt_rq: "sched_rt_entity", "rt_rq", RealTimeLimits;
    /// `struct sched_rt_entity *` of the parent group.
    rt_entity_parent: "sched_rt_entity", "parent", RealTimeLimits;
    /// `int`: real-time tasks of the group have used up their runtime here. Since Linux 6.12 only with CONFIG_RT_GROUP_SCHED.
    rt_rq_throttled: "rt_rq", "rt_throttled", RealTimeLimits;
    /// `int`: the same for the root group.
    rq_rt_throttled: "rq", "rt.rt_throttled", RealTimeLimits;
    /// `u32`: SCX_TASK_QUEUED (1) while the task is on a queue of the BPF scheduler, or runs.
    task_scx_flags: "task_struct", "scx.flags", SchedExt;
    /// `bool`: the task was taken off its CPU because its group is out of quota (Linux 6.18, which throttles tasks one by one).
    task_throttled: "task_struct", "throttled", TaskThrottling;
    /// `int`: the node that NUMA balancing prefers; needs CONFIG_NUMA_BALANCING, absent with PREEMPT_RT.
    task_preferred_node: "task_struct", "numa_preferred_nid", NumaPreference;
    /// `u64`, ns: time in user space, counted by ticks, including guests.
    task_utime: "task_struct", "utime", RunQueues;
    /// `u64`, ns: time in the kernel, counted by ticks.
    task_stime: "task_struct", "stime", RunQueues;
    /// `u64`, ns: time running a guest.
    task_gtime: "task_struct", "gtime", RunQueues;
    /// One bit of an `unsigned`, see [`Offsets::bit`]: the task waits for a device.
    task_in_iowait: "task_struct", "in_iowait", IoWait;
    /// One bit of an `unsigned`, see [`Offsets::bit`]: the task last blocked in the uninterruptible state, and was not TASK_IDLE.
    task_contributes_to_load: "task_struct", "sched_contributes_to_load", IoWait;
    /// `struct signal_struct *`: data that the threads of a process share.
    task_signal: "task_struct", "signal", ProcessTimes;
    /// `struct cred *`.
    task_cred: "task_struct", "cred", Credentials;
    /// `uid_t`: real user id.
    cred_uid: "cred", "uid.val", Credentials;
    /// `u64`, ns: sum of the exited threads.
    signal_utime: "signal_struct", "utime", ProcessTimes;
    /// `u64`, ns: sum of the exited threads.
    signal_stime: "signal_struct", "stime", ProcessTimes;
    /// `u64`, ns: sum of the exited threads.
    signal_gtime: "signal_struct", "gtime", ProcessTimes;
    /// `unsigned long long`, ns: sum of the exited threads.
    signal_ran_ns: "signal_struct", "sum_sched_runtime", ProcessTimes;
    /// `unsigned long`: sum of the exited threads.
    signal_nvcsw: "signal_struct", "nvcsw", ProcessTimes;
    /// `unsigned long`: sum of the exited threads.
    signal_nivcsw: "signal_struct", "nivcsw", ProcessTimes;
    /// `long`, on arm64 `s32`: the number of the system call; negative outside of one.
    regs_syscall: "pt_regs", "orig_ax|syscallno", SyscallNumber;
    /// `struct sched_entity *` of the task's group on this CPU.
    task_parent: "task_struct", "se.parent", RunQueues;
    /// `struct css_set *`.
    task_cgroups: "task_struct", "cgroups", Cgroups;
    /// `struct task_group *`: the nearest group that has the cpu controller; needs CONFIG_CGROUP_SCHED.
    task_sched_group: "task_struct", "sched_task_group", Cgroups;
    /// `struct rq *`.
    cfs_rq_rq: "cfs_rq", "rq", RunQueues;
    /// `struct task_group *`; needs CONFIG_FAIR_GROUP_SCHED.
    cfs_rq_group: "cfs_rq", "tg", Cgroups;
    /// `int`: this level has a quota; needs CONFIG_CFS_BANDWIDTH, as do the next three fields.
    cfs_rq_runtime_enabled: "cfs_rq", "runtime_enabled", Quotas;
    /// `u64`, ns of `rq->clock`: since when this queue has been in a hierarchy out of quota (Linux 6.6).
    cfs_rq_throttled_since: "cfs_rq", "throttled_clock_self", ThrottleClock;
    /// `u64`, ns: how long this queue was in a hierarchy out of quota before that (Linux 6.6).
    cfs_rq_throttled_ns: "cfs_rq", "throttled_clock_self_time", ThrottleClock;
    /// `int`: number of levels that are out of quota, among this level and its ancestors.
    cfs_rq_throttle_count: "cfs_rq", "throttle_count", ThrottleFunctions;
    /// `struct cfs_rq **`, by CPU: the group's queues.
    task_group_cfs_rqs: "task_group", "cfs_rq", ThrottleFunctions;
    /// `struct sched_entity **`, by CPU: the group's entity in the queues of its parent. Linux 7.2 has no such field.
    task_group_entities: "task_group", "se|cfs_rq", ThrottleFunctions;
    /// `struct sched_entity *` of the parent group.
    entity_parent: "sched_entity", "parent", RunQueues;
    /// `u64`, ns: how long the group and its descendants have run on its CPU.
    entity_run_ns: "sched_entity", "sum_exec_runtime", RunQueues;
    /// `struct cfs_rq *`: the queue on which the entity is queued.
    entity_cfs_rq: "sched_entity", "cfs_rq", RunQueues;
    /// `u64`, ns of `rq->clock`: when the CPU last went idle (Linux 5.19).
    rq_clock_idle: "rq", "clock_idle", IdleClock;
    /// `u64`, ns: time in interrupts; needs CONFIG_IRQ_TIME_ACCOUNTING.
    rq_irq_time: "rq", "prev_irq_time", InterruptTime;
    /// `u64`, ns: time that the hypervisor took; needs CONFIG_PARAVIRT_TIME_ACCOUNTING.
    rq_stolen_time: "rq", "prev_steal_time_rq", StolenTime;
    /// `u64`, ns: the clock of `sched_info`, current at the hook.
    rq_clock: "rq", "clock", RunQueues;
    /// `unsigned int`: tasks that run or wait on the CPU.
    rq_running: "rq", "nr_running", RunQueues;
    /// `unsigned int`: fair tasks on the CPU, including those that sleep on its queue (delayed dequeue).
    rq_queued: "rq", "cfs.h_nr_queued", RunnableTasks;
    /// `unsigned int`: fair tasks on the CPU that run or wait.
    rq_runnable: "rq", "cfs.h_nr_runnable", RunnableTasks;
    /// `int`: the number of the CPU.
    rq_cpu: "rq", "cpu", RunQueues;
    /// `struct cgroup *` of the default hierarchy (v2).
    css_set_cgroup: "css_set", "dfl_cgrp", Cgroups;
    /// `struct cgroup *` of the cpu controller's group; null for an autogroup.
    task_group_cgroup: "task_group", "css.cgroup", Cgroups;
    /// `struct kernfs_node *`.
    cgroup_kn: "cgroup", "kn", Cgroups;
    /// `struct cgroup_subsys_state *` of the parent cgroup; null for the root.
    cgroup_parent: "cgroup", "self.parent", Cgroups;
    /// `struct cgroup *`.
    css_cgroup: "cgroup_subsys_state", "cgroup", Cgroups;
    /// `struct cgroup_root *`: the cgroup's hierarchy.
    cgroup_root: "cgroup", "root", Cgroups;
    /// `int`: the number of the hierarchy, as in /proc/self/cgroup.
    cgroup_root_hierarchy: "cgroup_root", "hierarchy_id", Cgroups;
    /// `u64`: the inode number of the cgroup's directory.
    kernfs_id: "kernfs_node", "id", Cgroups;
    /// `size_t`: bytes of the iterator's buffer in use.
    seq_count: "seq_file", "count", TaskIterator;
    /// `size_t`: size of the iterator's buffer.
    seq_size: "seq_file", "size", TaskIterator;
}

/// The placeholder offset in the instruction that loads field 0. Field `n` has this number plus `n`. A compiler never emits such
/// an offset: the stack has 512 bytes, and no access starts that far before a structure.
pub const FIRST_FIELD: i16 = i16::MIN;

/// The placeholder constant for the first word of [`Config`](crate::wire::Config). The next word has the next number.
pub const FIRST_SETTING: i32 = 0x5c6f_0000;

/// The placeholder constant for whether the kernel has field 0. Field `n` has this number plus `n`.
pub const FIRST_PRESENCE: i32 = 0x5c70_0000;

/// Returns the placeholder offset of a field. `member`: the offset of its member in [`Offsets`](crate::Offsets).
pub const fn field(member: usize) -> i32 {
    FIRST_FIELD as i32 + (member / size_of::<u32>()) as i32
}

/// Returns the placeholder constant for whether the kernel has a field. `member`: the offset of its member in
/// [`Offsets`](crate::Offsets).
pub const fn presence(member: usize) -> i32 {
    FIRST_PRESENCE + (member / size_of::<u32>()) as i32
}

/// Returns the placeholder constant for a setting. `member`: the offset of its member in [`Config`](crate::wire::Config).
pub const fn setting(member: usize) -> i32 {
    FIRST_SETTING + (member / size_of::<u64>()) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_one_u32_for_each_field_in_order() {
        assert_eq!(size_of::<Offsets>(), 4 * FIELD_COUNT);
        let mut offsets = [0u32; FIELD_COUNT];
        for (i, o) in offsets.iter_mut().enumerate() {
            *o = i as u32;
        }
        let offsets = Offsets::from_array(offsets);
        assert_eq!(offsets.task_pid, 0);
        assert_eq!(offsets.seq_size, FIELD_COUNT as u32 - 1);
    }
}
