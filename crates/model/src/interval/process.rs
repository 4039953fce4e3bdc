//! Groups threads into processes.

use std::collections::BTreeMap;

use super::{Group, GroupSum, Interval};

/// A process, summed over its threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Process id. In appended intervals, several processes may have used it one after the other.
    pub pid: u32,
    /// The [place](Interval::places) of the thread that names the process: the main thread, or another thread if the main
    /// thread has exited.
    pub named_by: usize,
    /// The [places](Interval::places) of the threads.
    pub threads: Vec<usize>,
    /// The sum over the threads.
    pub group: Group,
}

impl Interval {
    /// Living tasks by process, ascending by process id; of processes with the same id, the earlier one first. Exited tasks
    /// are known only by cgroup.
    pub fn processes(&self) -> Vec<Process> {
        let mut same_id: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for place in self.places() {
            same_id.entry(self.reading(place).tgid).or_default().push(place);
        }
        let mut sum = GroupSum::default();
        let lives = same_id.into_iter().flat_map(|(pid, threads)| {
            self.lives(pid, threads).into_values().map(move |threads| (pid, threads))
        });
        let process = |(pid, threads): (u32, Vec<usize>)| {
            for place in &threads {
                match self.tasks.get(*place) {
                    Some(task) => sum.add_whole_task(task),
                    None => sum.add_idle(1),
                }
            }
            let main = threads.iter().find(|place| self.reading(**place).tid == pid);
            let named_by = *main.unwrap_or(&threads[0]);
            Process { pid, named_by, threads, group: sum.take(1) }
        };
        lives.map(process).collect()
    }

    /// Groups the threads with one process id by process.
    ///
    /// The kernel reuses an id only after all threads have exited. So a thread that started before a process's main thread
    /// belongs to an earlier process.
    fn lives(&self, pid: u32, threads: Vec<usize>) -> BTreeMap<usize, Vec<usize>> {
        let reading = |place: &usize| self.reading(*place);
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

    /// Groups by process id, in the order of [`Self::processes`].
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

    /// For each process: its naming thread, its threads, and their run time.
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
    fn processes_that_used_the_same_id_are_kept_apart() {
        let tasks =
            vec![thread(7, 10, 1), thread(8, 10, 2), thread(9, 12, 4), thread(7, 20, 8), thread(8, 25, 16)];
        assert_eq!(processes(tasks), [(0, vec![0, 1, 2], 7), (3, vec![3, 4], 24)]);
    }

    #[test]
    fn threads_without_a_known_main_thread_are_one_process() {
        assert_eq!(processes(vec![thread(8, 10, 1), thread(9, 30, 2)]), [(0, vec![0, 1], 3)]);
        assert_eq!(processes(vec![thread(8, 10, 1), thread(7, 20, 2)]), [(0, vec![0], 1), (1, vec![1], 2)]);
    }
}
