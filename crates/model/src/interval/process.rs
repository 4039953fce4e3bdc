//! Threads taken together as processes.

use std::collections::BTreeMap;

use super::{Group, GroupSum, Interval};

/// A process: its threads together.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Process id. In appended intervals several may have had it, one after the other.
    pub pid: u32,
    /// The thread that names it, by its place in [`Interval::tasks`]: the main thread, or where that has gone any other.
    pub named_by: usize,
    /// Its threads, by their places there.
    pub threads: Vec<usize>,
    /// Its threads together.
    pub group: Group,
}

impl Interval {
    /// Living tasks by process: what exited is known by cgroup. Ascending by process id, of those that had one id the earlier one
    /// first.
    pub fn processes(&self) -> Vec<Process> {
        let mut same_id: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, task) in self.tasks.iter().enumerate() {
            same_id.entry(task.reading.tgid).or_default().push(at);
        }
        let mut sum = GroupSum::default();
        let lives = same_id.into_iter().flat_map(|(pid, threads)| {
            self.lives(pid, threads).into_values().map(move |threads| (pid, threads))
        });
        let process = |(pid, threads): (u32, Vec<usize>)| {
            threads.iter().for_each(|at| sum.add_task(&self.tasks[*at]));
            let main = threads.iter().find(|at| self.tasks[**at].reading.tid == pid);
            let named_by = *main.unwrap_or(&threads[0]);
            Process { pid, named_by, threads, group: sum.take(1) }
        };
        lives.map(process).collect()
    }

    /// Threads with one process id, by the process that they were of. An id is free again once all threads are gone: what was started
    /// before the main thread of a process is of an earlier one.
    fn lives(&self, pid: u32, threads: Vec<usize>) -> BTreeMap<usize, Vec<usize>> {
        let reading = |at: &usize| &self.tasks[*at].reading;
        let mains = threads.iter().map(reading).filter(|task| task.tid == pid);
        let mut begun: Vec<u64> = mains.map(|task| task.start_ns).collect();
        begun.sort_unstable();
        let mut lives: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for at in threads {
            let life = begun.partition_point(|begun_ns| *begun_ns <= reading(&at).start_ns);
            lives.entry(life).or_default().push(at);
        }
        lives
    }

    /// By process id, in the order of [`Self::processes`].
    pub fn by_process(&self) -> Vec<(u32, Group)> {
        self.processes().into_iter().map(|process| (process.pid, process.group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskInterval, TaskReading, Totals};

    fn thread(tid: u32, start_ns: u64, on_cpu_ns: u64) -> TaskInterval {
        let serial = start_ns << 8 | u64::from(tid);
        let reading = TaskReading { serial, tid, tgid: 7, start_ns, ..TaskReading::default() };
        TaskInterval { reading, totals: Totals { on_cpu_ns, ..Totals::default() }, ..TaskInterval::default() }
    }

    /// Where its threads are, and how long they ran.
    fn processes(tasks: Vec<TaskInterval>) -> Vec<(usize, Vec<usize>, u64)> {
        let interval = Interval { tasks, ..Interval::default() };
        let processes = interval.processes().into_iter();
        processes
            .map(|process| {
                assert_eq!((process.pid, process.group.threads), (7, process.threads.len() as u64));
                (process.named_by, process.threads, process.group.totals.on_cpu_ns)
            })
            .collect()
    }

    #[test]
    fn each_process_that_had_an_id_is_by_itself() {
        let tasks =
            vec![thread(7, 10, 1), thread(8, 10, 2), thread(9, 12, 4), thread(7, 20, 8), thread(8, 25, 16)];
        assert_eq!(processes(tasks), [(0, vec![0, 1, 2], 7), (3, vec![3, 4], 24)]);
    }

    #[test]
    fn threads_whose_main_thread_is_not_known_are_one_process() {
        assert_eq!(processes(vec![thread(8, 10, 1), thread(9, 30, 2)]), [(0, vec![0, 1], 3)]);
        assert_eq!(processes(vec![thread(8, 10, 1), thread(7, 20, 2)]), [(0, vec![0], 1), (1, vec![1], 2)]);
    }
}
