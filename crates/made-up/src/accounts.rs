//! Where time goes beside waits, for Samples of readings that were made without.

use std::sync::Arc;

use cgscope_model::{Accounts, BLOCKED_STATES, ByState, CpuTimes, Mode, Sample, TaskReading, Totals};

/// The same Sample as one for which that was asked: of the time on a CPU a quarter was in the kernel; of that off it, a
/// tenth for a device. In the coarse mode nobody tells what was blocked.
pub fn with_accounts(sample: Sample) -> Sample {
    let Sample { mono_ns, mode, .. } = sample;
    let of_task = |task: TaskReading| {
        let waited_ns = task.totals.wait_ns + task.pending.map_or(0, |pending| pending.ns);
        let off_ns = mono_ns.saturating_sub(task.start_ns).saturating_sub(task.totals.on_cpu_ns + waited_ns);
        let blocked = mode.exact(|| blocked(off_ns));
        let accounts = Some(Arc::new(Accounts { blocked, ..accounts(&task.totals) }));
        TaskReading { accounts, ..task }
    };
    let tasks = sample.tasks.into_iter().map(of_task).collect();
    let mut exited = sample.exited;
    for exited in &mut exited {
        let blocked = (mode == Mode::Bpf).then(|| blocked(7 * exited.tasks));
        exited.accounts = Some(Arc::new(Accounts { blocked, ..accounts(&exited.totals) }));
    }
    Sample { tasks, exited, ..sample }
}

fn accounts(totals: &Totals) -> Accounts {
    let system_ns = totals.on_cpu_ns / 4;
    let cpu = CpuTimes { user_ns: totals.on_cpu_ns - system_ns, system_ns, guest_ns: 0 };
    Accounts { cpu, ..Accounts::default() }
}

fn blocked(ns: u64) -> ByState {
    let mut states = [0; BLOCKED_STATES];
    (states[0], states[1]) = (ns - ns / 10, ns / 10);
    ByState(states)
}
