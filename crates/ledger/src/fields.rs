//! The kernel fields that the BPF side reads, and the constants that user space patches into the BPF instructions. Each field is
//! declared once.
//!
//! rustc emits no CO-RE relocations. User space looks up each entry of [`KERNEL_FIELDS`] in the running kernel's BTF, and patches
//! the offsets into the instructions before it loads the programs. Code that runs rarely reads the offsets from a constant
//! global, which user space also sets. The verifier sees plain loads at known offsets, and removes the branches for fields that
//! this kernel lacks.
//!
//! A constant in read-only data would also be known to the verifier, but each use would cost a load and an addition at run time.
//! The hook reads some 25 kernel fields at each switch, so each field is read with a single instruction. Until user space patches
//! this instruction, its offset is the number of the field.

use crate::Feature;

/// The offset of a field that this kernel lacks.
pub const ABSENT: u32 = u32::MAX;

/// In the offset of a single bit ([`Offsets::bit`]), the bit's number begins at this bit. The byte offset fits below it, because
/// no structure has more than 2^24 bytes.
pub const BIT_SHIFT: u32 = 24;

/// A kernel field that the BPF side reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The kernel structure, by its name in BTF.
    pub structure: &'static str,
    /// The path of members within the structure. `|` separates alternatives, such as the old and new names of a field.
    pub path: &'static str,
    /// The feature that is missing if the kernel lacks the field.
    pub feature: Feature,
}

macro_rules! kernel_fields {
    ($($(#[$doc:meta])* $name:ident: $structure:literal, $path:literal, $feature:ident;)*) => {
        /// Byte offsets of fields in kernel structures; [`ABSENT`] for a field that the kernel lacks.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Offsets { $($(#[$doc])* pub $name: u32,)* }

        /// The fields to look up in BTF, in the order of the members of [`Offsets`].
        pub const KERNEL_FIELDS: &[Field] =
            &[$(Field { structure: $structure, path: $path, feature: Feature::$feature },)*];

        impl Offsets {
            /// All fields [`ABSENT`]: the initial value in the object file.
            pub const UNKNOWN: Self = Self { $($name: ABSENT,)* };

            /// Converts an offset in bits: the result is the byte's offset, and above [`BIT_SHIFT`] the bit's number in the byte.
            pub const fn bit(bits: u32) -> u32 {
                ((bits % 8) << BIT_SHIFT) | (bits / 8)
            }

            /// Creates the offsets from an array that has the order of [`KERNEL_FIELDS`].
            pub const fn from_array(offsets: [u32; FIELD_COUNT]) -> Self {
                let [$($name,)*] = offsets;
                Self { $($name,)* }
            }
        }
    };
}

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
    /// Only checked for existence. All task storage works in every context since Linux 7.2, where no member shows this. So we
    /// look for `state`, which elements of task storage have had since 7.0.
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
    /// `u64`, ns of `rq->clock_task`: the time up to which the run time is counted. For a task off its CPU, this is the time of
    /// the last switch out.
    task_counted_until: "task_struct", "se.exec_start", RunQueues;
    /// `unsigned char`: not 0 if the task sleeps but is still on its queue (Linux 6.12).
    task_delayed: "task_struct", "se.sched_delayed", DelayedDequeue;
    /// `u64`: migrations between CPUs.
    task_migrations: "task_struct", "se.nr_migrations", RunQueues;
    /// `struct cfs_rq *`, set for tasks of every scheduling class (`set_task_rq`); needs CONFIG_FAIR_GROUP_SCHED.
    task_cfs_rq: "task_struct", "se.cfs_rq", RunQueues;
    /// `unsigned long long`, ns: the sum of waits that the kernel keeps; needs CONFIG_SCHED_INFO.
    task_run_delay: "task_struct", "sched_info.run_delay", SchedInfo;
    /// `unsigned long long`, ns of `rq->clock`: since when the task has waited; 0 if it does not wait.
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
    /// `int`: not 0 if the real-time tasks of the group have used up their runtime on this CPU. Since Linux 6.12 only with
    /// CONFIG_RT_GROUP_SCHED.
    rt_rq_throttled: "rt_rq", "rt_throttled", RealTimeLimits;
    /// `int`: as `rt_rq_throttled`, but for the root group.
    rq_rt_throttled: "rq", "rt.rt_throttled", RealTimeLimits;
    /// `u32`: SCX_TASK_QUEUED (1) is set while the task is on a queue of the BPF scheduler, or runs.
    task_scx_flags: "task_struct", "scx.flags", SchedExt;
    /// `bool`: the task was taken off its CPU because its group is out of quota (Linux 6.18, which throttles each task
    /// separately).
    task_throttled: "task_struct", "throttled", TaskThrottling;
    /// `int`: the node that NUMA balancing prefers; needs CONFIG_NUMA_BALANCING, absent with PREEMPT_RT.
    task_preferred_node: "task_struct", "numa_preferred_nid", NumaPreference;
    /// `u64`, ns: time in user space, counted by ticks, including guests.
    task_utime: "task_struct", "utime", RunQueues;
    /// `u64`, ns: time in the kernel, counted by ticks.
    task_stime: "task_struct", "stime", RunQueues;
    /// `u64`, ns: time spent running a guest.
    task_gtime: "task_struct", "gtime", RunQueues;
    /// One bit of an `unsigned`, see [`Offsets::bit`]: the task waits for a device.
    task_in_iowait: "task_struct", "in_iowait", IoWait;
    /// One bit of an `unsigned`, see [`Offsets::bit`]: the task last blocked in the uninterruptible state, and was not TASK_IDLE.
    task_contributes_to_load: "task_struct", "sched_contributes_to_load", IoWait;
    /// `struct signal_struct *`: data that the threads of a process share.
    task_signal: "task_struct", "signal", ProcessTimes;
    /// `struct cred *`: the credentials of the task.
    task_cred: "task_struct", "cred", Credentials;
    /// `uid_t`: real user id.
    cred_uid: "cred", "uid.val", Credentials;
    /// `u64`, ns: `utime` of the exited threads.
    signal_utime: "signal_struct", "utime", ProcessTimes;
    /// `u64`, ns: `stime` of the exited threads.
    signal_stime: "signal_struct", "stime", ProcessTimes;
    /// `u64`, ns: `gtime` of the exited threads.
    signal_gtime: "signal_struct", "gtime", ProcessTimes;
    /// `unsigned long long`, ns: `sum_sched_runtime` of the exited threads.
    signal_ran_ns: "signal_struct", "sum_sched_runtime", ProcessTimes;
    /// `unsigned long`: `nvcsw` of the exited threads.
    signal_nvcsw: "signal_struct", "nvcsw", ProcessTimes;
    /// `unsigned long`: `nivcsw` of the exited threads.
    signal_nivcsw: "signal_struct", "nivcsw", ProcessTimes;
    /// `long`, on arm64 `s32`: the number of the current system call; negative outside of a system call.
    regs_syscall: "pt_regs", "orig_ax|syscallno", SyscallNumber;
    /// `unsigned long`, on arm64 `u64`: the first argument of the current system call.
    regs_first: "pt_regs", "di|orig_x0", OpenFiles;
    /// `struct files_struct *`.
    task_files: "task_struct", "files", OpenFiles;
    /// `struct fdtable *`.
    files_fdt: "files_struct", "fdt", OpenFiles;
    /// `unsigned int`: number of entries.
    fdt_max: "fdtable", "max_fds", OpenFiles;
    /// `struct file **`, indexed by descriptor.
    fdt_fd: "fdtable", "fd", OpenFiles;
    /// `struct inode *`.
    file_inode: "file", "f_inode", OpenFiles;
    /// `umode_t`, 16 bits.
    inode_mode: "inode", "i_mode", OpenFiles;
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
    /// `int`: not 0 if this group has a quota; needs CONFIG_CFS_BANDWIDTH, as do the next three fields.
    cfs_rq_runtime_enabled: "cfs_rq", "runtime_enabled", Quotas;
    /// `u64`, ns of `rq->clock`: since when this group or an ancestor has been out of quota (Linux 6.6).
    cfs_rq_throttled_since: "cfs_rq", "throttled_clock_self", ThrottleClock;
    /// `u64`, ns: how long this group or an ancestor was out of quota before that time (Linux 6.6).
    cfs_rq_throttled_ns: "cfs_rq", "throttled_clock_self_time", ThrottleClock;
    /// `int`: how many levels are out of quota: this group and its ancestors.
    cfs_rq_throttle_count: "cfs_rq", "throttle_count", ThrottleFunctions;
    /// `struct cfs_rq **`, indexed by CPU: the group's queues.
    task_group_cfs_rqs: "task_group", "cfs_rq", ThrottleFunctions;
    /// `struct sched_entity **`, indexed by CPU: the group's entity in its parent's queue. Linux 7.2 has no such field.
    task_group_entities: "task_group", "se|cfs_rq", ThrottleFunctions;
    /// `struct sched_entity *` of the parent group.
    entity_parent: "sched_entity", "parent", RunQueues;
    /// `u64`, ns: how long tasks of the group and its descendants have run on this CPU.
    entity_run_ns: "sched_entity", "sum_exec_runtime", RunQueues;
    /// `struct cfs_rq *`: the queue on which the entity is queued.
    entity_cfs_rq: "sched_entity", "cfs_rq", RunQueues;
    /// `u64`, ns of `rq->clock`: when the CPU last went idle (Linux 5.19).
    rq_clock_idle: "rq", "clock_idle", IdleClock;
    /// `u64`, ns: time in interrupts; needs CONFIG_IRQ_TIME_ACCOUNTING.
    rq_irq_time: "rq", "prev_irq_time", InterruptTime;
    /// `u64`, ns: time that the hypervisor took; needs CONFIG_PARAVIRT_TIME_ACCOUNTING.
    rq_stolen_time: "rq", "prev_steal_time_rq", StolenTime;
    /// `u64`, ns: the clock that `sched_info` uses, which is up to date when the hook runs.
    rq_clock: "rq", "clock", RunQueues;
    /// `unsigned int`: number of tasks that run or wait on the CPU.
    rq_running: "rq", "nr_running", RunQueues;
    /// `unsigned int`: number of fair tasks on the CPU, including those that sleep on its queue (delayed dequeue).
    rq_queued: "rq", "cfs.h_nr_queued", RunnableTasks;
    /// `unsigned int`: number of fair tasks on the CPU that run or wait.
    rq_runnable: "rq", "cfs.h_nr_runnable", RunnableTasks;
    /// `int`: the number of the CPU.
    rq_cpu: "rq", "cpu", RunQueues;
    /// `struct cgroup *` of the default hierarchy (v2).
    css_set_cgroup: "css_set", "dfl_cgrp", Cgroups;
    /// `struct cgroup *` of the cpu controller's group; null for the group of an autogroup.
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
    /// `size_t`: number of bytes in use in the iterator's buffer.
    seq_count: "seq_file", "count", TaskIterator;
    /// `size_t`: size of the iterator's buffer.
    seq_size: "seq_file", "size", TaskIterator;
}

/// The placeholder offset in the instruction that loads field 0. The placeholder of field `n` is larger by `n`. A compiler never
/// generates such an offset: the stack has 512 bytes, and no access starts that far before a structure.
pub const FIRST_FIELD: i16 = i16::MIN;

/// The placeholder constant for the first word of [`Config`](crate::wire::Config). Each further word has the next number.
pub const FIRST_SETTING: i32 = 0x5c6f_0000;

/// The placeholder constant for the flag whether the kernel has field 0. The placeholder for field `n` is larger by `n`.
pub const FIRST_PRESENCE: i32 = 0x5c70_0000;

/// Returns the placeholder offset of a field. `member` is the offset of the field's member in [`Offsets`](crate::Offsets).
pub const fn field(member: usize) -> i32 {
    FIRST_FIELD as i32 + (member / size_of::<u32>()) as i32
}

/// Returns the placeholder constant for the flag whether the kernel has a field. `member` is the offset of the field's member in
/// [`Offsets`](crate::Offsets).
pub const fn presence(member: usize) -> i32 {
    FIRST_PRESENCE + (member / size_of::<u32>()) as i32
}

/// Returns the placeholder constant for a setting. `member` is the offset of the setting in [`Config`](crate::wire::Config).
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
