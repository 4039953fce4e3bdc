//! Selects the threads to read: all threads, or the threads of chosen processes and their descendants.

use std::collections::{BTreeMap, BTreeSet};

use cgscope_model::Selection;

use super::{files::ProcFiles, text};
use crate::collector::process_of;

/// Which threads are read.
#[derive(Debug)]
pub enum Follow {
    /// All threads.
    All,
    /// Some threads.
    Chosen(Chosen),
}

/// Chosen processes with all their threads and descendants, and single threads.
#[derive(Debug, Default)]
pub struct Chosen {
    /// Process ids, each with the start of the process in clock ticks, because the kernel reuses ids.
    processes: BTreeMap<u32, u64>,
    threads: BTreeMap<u32, BTreeSet<u32>>,
    /// We follow only children that start at this time or later, clock ticks.
    since_ticks: u64,
    forks: Option<u64>,
}

impl Follow {
    /// Creates the choice for a selection, including children that start at `since_ticks` or later.
    pub fn new(selection: &Selection, since_ticks: u64, files: &mut ProcFiles) -> Self {
        if selection.follows_all() {
            return Self::All;
        }
        let mut chosen = Chosen { since_ticks, ..Chosen::default() };
        for pid in &selection.pids {
            let start = files.of_process(*pid, "stat").and_then(text::stat).map(|stat| stat.start_ticks);
            chosen.processes.extend(start.map(|start| (*pid, start)));
        }
        for tid in &selection.tids {
            if let Some(pid) = process_of(*tid) {
                chosen.threads.entry(pid).or_default().insert(*tid);
            }
        }
        Self::Chosen(chosen)
    }

    /// Returns the processes to read, ascending. `forks` is the host's current number of forks.
    pub fn processes(&mut self, files: &mut ProcFiles, forks: Option<u64>) -> std::io::Result<Vec<u32>> {
        match self {
            Self::All => files.processes(),
            Self::Chosen(chosen) => {
                chosen.look_for_children(files, forks)?;
                let pids: BTreeSet<u32> =
                    chosen.processes.keys().chain(chosen.threads.keys()).copied().collect();
                Ok(pids.into_iter().collect())
            }
        }
    }

    /// Iterates over the chosen processes whose threads are all read. Yields nothing for [`Self::All`].
    pub fn whole_processes(&self) -> impl Iterator<Item = u32> + '_ {
        let chosen = if let Self::Chosen(chosen) = self { Some(chosen) } else { None };
        chosen.into_iter().flat_map(|chosen| chosen.processes.keys().copied())
    }

    /// Whether to read thread `tid` of process `pid`.
    pub fn wants(&self, pid: u32, tid: u32) -> bool {
        match self {
            Self::All => true,
            Self::Chosen(chosen) => {
                chosen.processes.contains_key(&pid)
                    || chosen.threads.get(&pid).is_some_and(|threads| threads.contains(&tid))
            }
        }
    }
}

impl Chosen {
    fn look_for_children(&mut self, files: &mut ProcFiles, forks: Option<u64>) -> std::io::Result<()> {
        let is_still = forks.is_some() && forks == self.forks;
        self.forks = forks;
        if is_still || self.processes.is_empty() {
            return Ok(());
        }
        let all = files.processes()?;
        let mut parents = Vec::new();
        for pid in &all {
            let Some(stat) = files.of_process(*pid, "stat").and_then(text::stat) else { continue };
            if self.processes.get(pid) == Some(&stat.start_ticks) {
                continue;
            }
            self.processes.remove(pid);
            if stat.start_ticks >= self.since_ticks {
                parents.push((*pid, stat.ppid, stat.start_ticks));
            }
        }
        self.processes.retain(|pid, _| all.binary_search(pid).is_ok());
        self.adopt(parents);
        Ok(())
    }

    /// Adds all descendants of the processes. Repeats the search, because a child may have a lower id than its parent.
    fn adopt(&mut self, mut others: Vec<(u32, u32, u64)>) {
        loop {
            let before = others.len();
            others.retain(|(pid, ppid, start)| {
                let is_child = self.processes.contains_key(ppid);
                if is_child {
                    self.processes.insert(*pid, *start);
                }
                !is_child
            });
            if others.len() == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_their_descendants_are_followed_whatever_their_ids() {
        let mut chosen = Chosen { processes: [(100, 5)].into(), ..Chosen::default() };
        chosen.adopt(vec![(7, 300, 9), (200, 1, 9), (300, 100, 8)]);
        assert_eq!(chosen.processes.keys().copied().collect::<Vec<_>>(), [7, 100, 300]);
    }
}
