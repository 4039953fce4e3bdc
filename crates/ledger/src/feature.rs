//! Differences between kernels, each a feature with a name and a probe. A missing feature is switched off, not the program.

use crate::named;

/// A check for a feature, in addition to the check of its fields ([`crate::Field::feature`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// No further check: the fields are enough.
    Fields,
    /// BTF has this enum, with this enumerator.
    Enumerator(&'static str, &'static str),
    /// The tracepoint of this name passes at least this many arguments, including its `data`.
    Arguments(&'static str, usize),
    /// BTF has functions with these names.
    Functions(&'static [&'static str]),
}

/// The kernel functions of [`Feature::TaskById`], in the order of [`KERNEL_CALLS`].
pub const TASK_BY_ID: [&str; 2] = ["bpf_task_from_pid", "bpf_task_release"];

/// Placeholder ids of [`TASK_BY_ID`] in the call instructions of the BPF object. No helper has these numbers. The loader replaces
/// them by the functions' ids in the kernel's BTF.
pub const KERNEL_CALLS: [i32; 2] = [0x7e57_0001, 0x7e57_0002];

named! {
    /// A feature of the kernel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Feature (name, is_needed, probe) {
        /// The name in every output.
        name: &'static str,
        /// Whether exact measurement is impossible without the feature.
        is_needed: bool,
        /// The check that detects it.
        probe: Probe,
    }

    /// The fields of tasks and run queues that the hook reads. Needs CONFIG_SMP and CONFIG_FAIR_GROUP_SCHED.
    RunQueues = "run_queues", true, Probe::Fields;
    /// The kernel stamps waits. Needs CONFIG_SCHED_INFO, which CONFIG_TASK_DELAY_ACCT and CONFIG_SCHEDSTATS select.
    SchedInfo = "sched_info", true, Probe::Fields;
    /// BPF storage per task: Linux 5.11, and in tracing programs 5.13 (commit a10787e6d58c).
    TaskStorage = "task_storage", true, Probe::Enumerator("bpf_func_id", "BPF_FUNC_task_storage_get");
    /// Task storage uses an allocator that works in every context (Linux 6.4), so the hook may create storage. Before, an
    /// allocation under the run queue lock could wake a kernel thread, which deadlocks.
    StorageCache = "storage_cache", false, Probe::Fields;
    /// Kernel functions that find a task by its id: Linux 6.2 (`bpf_task_from_pid`). Then a reading visits only changed tasks.
    TaskById = "task_by_id", false, Probe::Functions(&TASK_BY_ID);
    /// A helper that calls a function repeatedly: Linux 5.17 (commit e6f2dd0f8067). The look back over the history uses it.
    LoopHelper = "loop_helper", true, Probe::Enumerator("bpf_func_id", "BPF_FUNC_loop");
    /// Iterators over tasks: Linux 5.8.
    TaskIterator = "task_iterator", true, Probe::Enumerator("bpf_attach_type", "BPF_TRACE_ITER");
    /// The tracepoint passes the state with which a task leaves its CPU: Linux 5.18 (commit fa2c3254d7cf). We do not use it: the
    /// task itself still has the same state, because nobody can wake it while its run queue is locked.
    PrevStateArgument = "prev_state_argument", false, Probe::Arguments("sched_switch", 5);
    /// The cgroups of tasks and of the scheduler's groups.
    Cgroups = "cgroups", false, Probe::Fields;
    /// CPU quotas: CONFIG_CFS_BANDWIDTH.
    Quotas = "quotas", false, Probe::Fields;
    /// A clock per group and CPU; it runs while the group or an ancestor is out of quota: Linux 6.6 (commit 677ea015f231).
    ThrottleClock = "throttle_clock", false, Probe::Fields;
    /// The kernel functions at which we can keep a throttle clock ourselves. They have had these names since Linux 3.6.
    ThrottleFunctions = "throttle_functions", false, Probe::Functions(&["tg_throttle_down", "tg_unthrottle_up"]);
    /// The kernel throttles tasks one by one, when they return to user space: Linux 6.18 (commit e1fad12dcb66).
    TaskThrottling = "task_throttling", false, Probe::Fields;
    /// Delayed dequeue: a task that goes to sleep may stay on its queue until its turn comes. Linux 6.12 (commit 152e11f6df29).
    DelayedDequeue = "delayed_dequeue", false, Probe::Fields;
    /// A BPF scheduler can take over tasks: Linux 6.12 with CONFIG_SCHED_CLASS_EXT.
    SchedExt = "sched_ext", false, Probe::Fields;
    /// A run queue counts its queued tasks, and separately the runnable tasks among them: Linux 6.14 (commit c2a295bffeaf).
    RunnableTasks = "runnable_tasks", false, Probe::Fields;
    /// A run queue records since when its CPU is idle: Linux 5.19 (`rq.clock_idle`).
    IdleClock = "idle_clock", false, Probe::Fields;
    /// A run queue records how long its CPU was in interrupts: CONFIG_IRQ_TIME_ACCOUNTING.
    InterruptTime = "interrupt_time", false, Probe::Fields;
    /// A run queue records how long the hypervisor had its CPU: CONFIG_PARAVIRT_TIME_ACCOUNTING.
    StolenTime = "stolen_time", false, Probe::Fields;
    /// The run queue of a cgroup's real-time tasks records that they have used up their runtime: CONFIG_RT_GROUP_SCHED. Without
    /// this option, the real-time tasks of a CPU share one limit; since Linux 6.12 they have none.
    RealTimeLimits = "real_time_limits", false, Probe::Fields;
    /// A task records that it waits for a device (`in_iowait`).
    IoWait = "io_wait", false, Probe::Fields;
    /// A process records the sums of its exited threads (`signal_struct`).
    ProcessTimes = "process_times", false, Probe::Fields;
    /// A task records the user that owns it.
    Credentials = "credentials", false, Probe::Fields;
    /// The system call that a task executes: Linux 5.15 (commit dd6e10fbd9fb).
    SyscallNumber = "syscall_number", false, Probe::Enumerator("bpf_func_id", "BPF_FUNC_task_pt_regs");
    /// A task records the node that the kernel prefers because of its memory: CONFIG_NUMA_BALANCING, not with PREEMPT_RT.
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
