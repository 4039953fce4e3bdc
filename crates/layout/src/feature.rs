//! What differs between kernels, each difference a feature with a name and a probe. What a kernel is without switches off that
//! feature, not the program.

use crate::named;

/// How the presence of a feature is found out, beside the fields that belong to it ([`crate::Field::feature`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// By its fields alone.
    Fields,
    /// BTF has this enumerator of this enum.
    Enumerator(&'static str, &'static str),
    /// The tracepoint of this name passes so many arguments, its `data` included.
    Arguments(&'static str, usize),
    /// BTF has functions of these names.
    Functions(&'static [&'static str]),
}

named! {
    /// A feature of the kernel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Feature (name, is_needed, probe) {
        /// The name in every output.
        name: &'static str,
        /// Without it there is no exact measurement at all.
        is_needed: bool,
        /// How it is found out.
        probe: Probe,
    }

    /// What the hook reads of tasks and run queues; needs CONFIG_SMP and CONFIG_FAIR_GROUP_SCHED.
    RunQueues = "run_queues", true, Probe::Fields;
    /// The kernel stamps waits: CONFIG_SCHED_INFO, which comes with CONFIG_TASK_DELAY_ACCT or CONFIG_SCHEDSTATS.
    SchedInfo = "sched_info", true, Probe::Fields;
    /// Storage for each task: Linux 5.11, for tracing programs 5.13 (commit a10787e6d58c).
    TaskStorage = "task_storage", true, Probe::Enumerator("bpf_func_id", "BPF_FUNC_task_storage_get");
    /// A helper that repeats a step: Linux 5.17 (commit e6f2dd0f8067). Goes back over the history of a CPU.
    LoopHelper = "loop_helper", true, Probe::Enumerator("bpf_func_id", "BPF_FUNC_loop");
    /// Iterators over tasks: Linux 5.8.
    TaskIterator = "task_iterator", true, Probe::Enumerator("bpf_attach_type", "BPF_TRACE_ITER");
    /// The tracepoint passes the state that a task leaves its CPU with: Linux 5.18 (commit fa2c3254d7cf). Not made use of: the task
    /// holds the same, as nobody can wake it while its run queue is locked.
    PrevStateArgument = "prev_state_argument", false, Probe::Arguments("sched_switch", 5);
    /// Cgroups of tasks, and of the scheduler's groups.
    Cgroups = "cgroups", false, Probe::Fields;
    /// CPU quotas: CONFIG_CFS_BANDWIDTH.
    Quotas = "quotas", false, Probe::Fields;
    /// A clock of each group on each CPU that runs while its quota, or one above it, is out: Linux 6.6 (commit 677ea015f231).
    ThrottleClock = "throttle_clock", false, Probe::Fields;
    /// Functions at which such a clock can be kept by ourselves. They have these names since Linux 3.6.
    ThrottleFunctions = "throttle_functions", false, Probe::Functions(&["tg_throttle_down", "tg_unthrottle_up"]);
    /// Tasks are throttled one by one, on their way to user space: Linux 6.18 (commit e1fad12dcb66).
    TaskThrottling = "task_throttling", false, Probe::Fields;
    /// A run queue tells since when its CPU is idle: Linux 5.19 (`rq.clock_idle`).
    IdleClock = "idle_clock", false, Probe::Fields;
    /// A run queue tells how long its CPU was in interrupts: CONFIG_IRQ_TIME_ACCOUNTING.
    InterruptTime = "interrupt_time", false, Probe::Fields;
    /// A task tells that it waits for a device (`in_iowait`).
    IoWait = "io_wait", false, Probe::Fields;
    /// A process tells what its threads had done when they exited (`signal_struct`).
    ProcessTimes = "process_times", false, Probe::Fields;
    /// A task tells whose it is.
    Credentials = "credentials", false, Probe::Fields;
    /// The system call that a task is in: Linux 5.15 (commit dd6e10fbd9fb).
    SyscallNumber = "syscall_number", false, Probe::Enumerator("bpf_func_id", "BPF_FUNC_task_pt_regs");
    /// A task tells which node its memory is on as the kernel sees it: CONFIG_NUMA_BALANCING, not with PREEMPT_RT.
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
