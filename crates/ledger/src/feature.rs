//! The kernel features that cgscope uses, with a name and a probe for each. If a feature is missing, cgscope runs without it.

use crate::named;

/// How to detect a feature, in addition to its fields ([`crate::Field::feature`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The fields are enough, so there is no further check.
    Fields,
    /// BTF has an enum with this name, with this enumerator.
    Enumerator(&'static str, &'static str),
    /// The tracepoint with this name has at least this many arguments, including its `data`.
    Arguments(&'static str, usize),
    /// BTF has the variable or member with the preempt count, see [`Feature::PreemptCount`].
    PreemptCount,
    /// BTF has functions with all of these names.
    Functions(&'static [&'static str]),
}

/// The kernel functions of [`Feature::TaskById`], in the order of [`KERNEL_CALLS`].
pub const TASK_BY_ID: [&str; 2] = ["bpf_task_from_pid", "bpf_task_release"];

/// Placeholder ids for [`TASK_BY_ID`] in the call instructions of the BPF object. No kernel function or helper has these numbers.
/// The loader replaces the placeholders with the functions' ids in the kernel's BTF.
pub const KERNEL_CALLS: [i32; 2] = [0x7e57_0001, 0x7e57_0002];

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Feature (name, is_needed, probe) {
        /// The name of the feature in every output.
        name: &'static str,
        /// Whether cgscope needs the feature for exact measurement.
        is_needed: bool,
        probe: Probe,
    }

    /// The fields of tasks and run queues that the hook reads. Needs CONFIG_SMP and CONFIG_FAIR_GROUP_SCHED.
    RunQueues = "run_queues", true, Probe::Fields;
    /// The kernel records when a wait begins (`sched_info`).
    SchedInfo = "sched_info", true, Probe::Fields;
    /// BPF storage for each task: Linux 5.11; for tracing programs since 5.13 (commit a10787e6d58c).
    TaskStorage = "task_storage", true, Probe::Enumerator("bpf_func_id", "BPF_FUNC_task_storage_get");
    /// The allocator of task storage works in every context (Linux 6.4), so the hook may create storage. In older kernels, an
    /// allocation under the run queue lock could wake a kernel thread, which deadlocks.
    StorageCache = "storage_cache", false, Probe::Fields;
    /// Kernel functions that find a task by its id: Linux 6.2 (`bpf_task_from_pid`). With these functions, a reading visits only
    /// the changed tasks.
    TaskById = "task_by_id", false, Probe::Functions(&TASK_BY_ID);
    /// A helper that calls a function repeatedly: Linux 5.17 (commit e6f2dd0f8067). cgscope calls this helper to look back over
    /// the history of a CPU.
    LoopHelper = "loop_helper", true, Probe::Enumerator("bpf_func_id", "BPF_FUNC_loop");
    /// Iterators over tasks: Linux 5.8.
    TaskIterator = "task_iterator", true, Probe::Enumerator("bpf_attach_type", "BPF_TRACE_ITER");
    /// The `sched_switch` tracepoint passes the state of the task that switches out: Linux 5.18 (commit fa2c3254d7cf). We do not
    /// use this argument. Instead, we read the state from the task, which cannot change while the run queue is locked.
    PrevStateArgument = "prev_state_argument", false, Probe::Arguments("sched_switch", 5);
    /// The cgroups of tasks and of the scheduler's groups.
    Cgroups = "cgroups", false, Probe::Fields;
    /// CPU quotas: CONFIG_CFS_BANDWIDTH.
    Quotas = "quotas", false, Probe::Fields;
    /// The clock of a group on a CPU that counts how long the group or an ancestor is out of quota: Linux 6.6 (commit
    /// 677ea015f231).
    ThrottleClock = "throttle_clock", false, Probe::Fields;
    /// Kernel functions that let cgscope keep a clock of throttled time itself. These functions have had their names since Linux
    /// 3.6.
    ThrottleFunctions = "throttle_functions", false, Probe::Functions(&["tg_throttle_down", "tg_unthrottle_up"]);
    /// The kernel throttles tasks one by one, when they return to user space: Linux 6.18 (commit e1fad12dcb66).
    TaskThrottling = "task_throttling", false, Probe::Fields;
    /// Delayed dequeue: a task that goes to sleep can stay on its run queue until the scheduler picks it again. Linux 6.12
    /// (commit 152e11f6df29).
    DelayedDequeue = "delayed_dequeue", false, Probe::Fields;
    /// A BPF scheduler (sched_ext) can schedule tasks: Linux 6.12 with CONFIG_SCHED_CLASS_EXT.
    SchedExt = "sched_ext", false, Probe::Fields;
    /// A run queue counts its queued tasks, and also those of them that are runnable: Linux 6.14 (commit c2a295bffeaf).
    RunnableTasks = "runnable_tasks", false, Probe::Fields;
    /// A run queue records when its CPU last went idle: Linux 5.19 (`rq.clock_idle`).
    IdleClock = "idle_clock", false, Probe::Fields;
    /// A run queue records the time that its CPU spent in interrupts: CONFIG_IRQ_TIME_ACCOUNTING.
    InterruptTime = "interrupt_time", false, Probe::Fields;
    /// A run queue records the time that the hypervisor took from its CPU: CONFIG_PARAVIRT_TIME_ACCOUNTING.
    StolenTime = "stolen_time", false, Probe::Fields;
    /// The run queue of a cgroup's real-time tasks has a flag that is set while their runtime is used up: CONFIG_RT_GROUP_SCHED.
    /// Without this option, all real-time tasks of a CPU share one limit; since Linux 6.12 they have no limit.
    RealTimeLimits = "real_time_limits", false, Probe::Fields;
    /// A task records that it waits for a device (`in_iowait`).
    IoWait = "io_wait", false, Probe::Fields;
    /// A process records the sums of its exited threads (`signal_struct`).
    ProcessTimes = "process_times", false, Probe::Fields;
    /// A task records the user that owns it.
    Credentials = "credentials", false, Probe::Fields;
    /// The number of the system call that a task executes: Linux 5.15 (commit dd6e10fbd9fb).
    SyscallNumber = "syscall_number", false, Probe::Enumerator("bpf_func_id", "BPF_FUNC_task_pt_regs");
    /// The open files of a process, whose kinds show what a read waits for.
    OpenFiles = "open_files", false, Probe::Fields;
    /// The kernel describes where the preempt count is, which shows in which context a task is woken: a variable of each CPU on
    /// x86_64 (Linux 6.2; in `pcpu_hot` to 6.14), the current task on arm64. BTF has such variables since Linux 5.11.
    PreemptCount = "preempt_count", false, Probe::PreemptCount;
    /// A task records which NUMA node the kernel prefers for it, because its memory is there: CONFIG_NUMA_BALANCING, which
    /// PREEMPT_RT excludes.
    NumaPreference = "numa_preference", false, Probe::Fields;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KERNEL_FIELDS;

    #[test]
    fn every_feature_has_a_probe_that_can_fail() {
        for feature in Feature::ALL {
            let has_fields = KERNEL_FIELDS.iter().any(|field| field.feature == feature);
            assert!(has_fields || feature.probe() != Probe::Fields, "{}", feature.name());
        }
    }
}
