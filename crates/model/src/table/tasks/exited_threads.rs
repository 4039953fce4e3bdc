//! The work of threads that exited in an interval, as their process reports it. When a thread exits, the kernel adds its lifetime
//! totals to the process. But the work up to the previous Sample was already counted for the thread itself, so it is subtracted
//! here.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::TaskInterval;
use crate::{CpuTimes, ExitedThreads, Sample, TaskReading, Totals, sum};

/// Subtracts the figures of exited threads that were already counted up to `a` from the main threads of `tasks`. These threads
/// are in `a` but not in `b`. A thread that exits while `b` is read may be neither in `b` nor in its process yet. The next
/// interval would then count the thread's whole lifetime as new. So a figure that exceeds the CPUs' time is omitted.
pub(super) fn settle(tasks: &mut [TaskInterval], a: &Sample, b: &Sample) {
    let has_exited_threads = |task: &&mut TaskInterval| {
        task.accounts.as_ref().is_some_and(|accounts| accounts.exited_threads != ExitedThreads::default())
    };
    let mut tasks = tasks.iter_mut().filter(has_exited_threads).peekable();
    if tasks.peek().is_none() {
        return;
    }
    let counted = counted(a, b);
    let cpus = b.cpus.len() as u64;
    let elapsed_ns = b.mono_ns.saturating_sub(a.mono_ns);
    let most_ns = if cpus == 0 { u64::MAX } else { elapsed_ns.saturating_mul(cpus) };
    for task in tasks {
        let Some(accounts) = &mut task.accounts else { continue };
        let mut exited_threads = accounts.exited_threads;
        if let Some((start_ns, before)) = counted.get(&task.reading.tgid)
            && *start_ns == task.reading.start_ns
        {
            exited_threads = exited_threads.since(before);
        }
        if exited_threads.on_cpu_ns > most_ns {
            exited_threads = ExitedThreads::default();
        }
        // The scaling of ticks differs between a single thread and a sum of threads.
        exited_threads = exited_threads.in_proportion();
        if exited_threads != accounts.exited_threads {
            Arc::make_mut(accounts).exited_threads = exited_threads;
        }
    }
}

/// Returns the work up to `a` of threads that are not in `b`, by process, with the start of the process's main thread, ns.
fn counted(a: &Sample, b: &Sample) -> BTreeMap<u32, (u64, ExitedThreads)> {
    let mut counted: BTreeMap<u32, (u64, ExitedThreads)> = BTreeMap::new();
    let mut now = sum::earlier(&b.tasks, |task| task.serial);
    // Threads that moved to another cgroup, and so have another serial.
    let moved = b.tasks.iter().filter(|task| task.moved_ns.is_some());
    let moved: HashSet<(u32, u64)> = moved.map(|task| (task.tid, task.start_ns)).collect();
    let has_exited = |task: &&Arc<TaskReading>| now(task.serial).is_none();
    for task in a.tasks.iter().filter(has_exited).filter(|task| !moved.contains(&(task.tid, task.start_ns))) {
        let Some(exited_threads) = all_of(task) else { continue };
        counted.entry(task.tgid).or_default().1.add(&exited_threads);
    }
    for task in a.tasks.iter().filter(|task| task.tid == task.tgid) {
        if let Some((start_ns, _)) = counted.get_mut(&task.tgid) {
            *start_ns = task.start_ns;
        }
    }
    counted
}

/// Returns the whole work of a thread, as its process reports it after the exit.
fn all_of(task: &TaskReading) -> Option<ExitedThreads> {
    let CpuTimes { user_ns, system_ns, guest_ns } = task.accounts.as_deref()?.cpu;
    let Totals { on_cpu_ns, voluntary, involuntary, .. } = task.totals;
    Some(ExitedThreads { on_cpu_ns, user_ns, system_ns, guest_ns, voluntary, involuntary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accounts, CpuReading, Interval};

    fn thread(tid: u32, ran_ns: u64, exited_ns: u64) -> TaskReading {
        let cpu = CpuTimes { user_ns: ran_ns, ..CpuTimes::default() };
        let exited_threads = ExitedThreads {
            user_ns: exited_ns,
            on_cpu_ns: exited_ns,
            voluntary: exited_ns,
            ..ExitedThreads::default()
        };
        TaskReading {
            accounts: Some(Arc::new(Accounts { cpu, exited_threads, blocked: None })),
            serial: tid.into(),
            tid,
            tgid: 5,
            comm: "t".into(),
            start_ns: 1,
            cgroup_id: 1,
            totals: Totals { on_cpu_ns: ran_ns, voluntary: ran_ns, ..Totals::default() },
            ..TaskReading::default()
        }
    }

    fn exited_between(a: Vec<TaskReading>, b: Vec<TaskReading>) -> ExitedThreads {
        let cpu = |cpu| CpuReading { cpu, ..CpuReading::default() };
        let cpus = vec![cpu(0), cpu(1)];
        let shared = |tasks: Vec<TaskReading>| tasks.into_iter().map(Arc::new).collect();
        let a = Sample { mono_ns: 1_000, tasks: shared(a), cpus: cpus.clone(), ..Sample::default() };
        let b = Sample { mono_ns: 2_000, tasks: shared(b), cpus, ..Sample::default() };
        let interval = Interval::between(&a, &b);
        interval.tasks[0].accounts.as_ref().unwrap().exited_threads
    }

    #[test]
    fn the_earlier_work_of_a_thread_is_not_counted_again_when_it_exits() {
        // The first 700 ns of the thread were already counted. It ran for 20 ns more in the interval and exited.
        let exited_threads =
            exited_between(vec![thread(5, 10, 100), thread(6, 700, 0)], vec![thread(5, 15, 820)]);
        assert_eq!(
            (exited_threads.user_ns, exited_threads.on_cpu_ns, exited_threads.voluntary),
            (20, 20, 20)
        );
        // A thread that started and exited in between was never counted.
        let exited_threads = exited_between(vec![thread(5, 10, 100)], vec![thread(5, 15, 130)]);
        assert_eq!(exited_threads.on_cpu_ns, 30);
        // The exited thread has not been added to its process yet.
        let exited_threads =
            exited_between(vec![thread(5, 10, 100), thread(6, 700, 0)], vec![thread(5, 15, 100)]);
        assert_eq!(exited_threads, ExitedThreads::default());
    }

    #[test]
    fn a_thread_that_moved_to_another_cgroup_has_not_exited() {
        let moved = TaskReading { serial: 60, moved_ns: Some(1_500), ..thread(6, 20, 0) };
        let exited_threads =
            exited_between(vec![thread(5, 10, 100), thread(6, 700, 0)], vec![thread(5, 15, 130), moved]);
        assert_eq!(exited_threads.on_cpu_ns, 30, "the work of another thread");
    }

    #[test]
    fn work_beyond_the_capacity_of_the_cpus_is_left_out() {
        let after = |ns| exited_between(vec![thread(5, 10, 0)], vec![thread(5, 15, ns)]);
        assert_eq!(after(2_000).on_cpu_ns, 2_000);
        assert_eq!(after(2_001), ExitedThreads::default(), "two CPUs had 1000 ns");
    }

    #[test]
    fn work_of_an_earlier_process_with_the_same_id_is_not_subtracted() {
        let later = TaskReading { serial: 9, start_ns: 1_500, ..thread(5, 15, 40) };
        assert_eq!(exited_between(vec![thread(5, 10, 0), thread(6, 700, 0)], vec![later]).on_cpu_ns, 40);
    }
}
