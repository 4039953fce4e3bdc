//! Selects the threads to count, from all threads that are read.

use std::collections::{HashMap, HashSet};

use cgscope_model::{Names, Selection, selection::SelectionFilter};

use crate::{GroupBy, ThreadNames, ThreadReading};

/// Selects threads by name, CPU, node and cgroup.
pub struct ThreadFilter {
    filter: SelectionFilter,
    names: Names,
    /// Whether a cgroup is selected, by id. Contains only cgroups with a known path.
    cgroups: HashMap<u64, bool>,
}

impl ThreadFilter {
    /// Creates a filter from a selection, without its processes and threads. `names` has the pods and containers of this host. Fails
    /// if `comm` is not a regular expression.
    pub fn new(selection: &Selection, names: Names) -> Result<Self, regex::Error> {
        Ok(Self { filter: SelectionFilter::new(selection)?, names, cgroups: HashMap::new() })
    }

    pub(crate) fn needs_cgroups(&self) -> bool {
        self.filter.is_by_cgroup()
    }

    /// Whether the filter selects all threads.
    pub(crate) fn is_open(&self) -> bool {
        !self.filter.is_by_cgroup() && !self.filter.is_by_task()
    }

    pub(crate) fn unknown_cgroups(&self, readings: &[ThreadReading]) -> HashSet<u64> {
        let ids = readings.iter().filter_map(|reading| reading.cgroup_id);
        ids.filter(|id| !self.cgroups.contains_key(id)).collect()
    }

    /// Whether a thread is selected. A thread with an unknown cgroup, CPU or node is not selected if the filter depends on it.
    pub(crate) fn wants(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        let comm = reading.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let node = reading.cpu.and_then(|cpu| names.node(cpu));
        self.filter.wants_task(&String::from_utf8_lossy(comm), reading.cpu, node)
            && self.is_in_cgroup(reading, names)
    }

    fn is_in_cgroup(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        if !self.needs_cgroups() {
            return true;
        }
        let Some(id) = reading.cgroup_id else { return false };
        if let Some(is_in) = self.cgroups.get(&id) {
            return *is_in;
        }
        let Some(path) = names.name(GroupBy::Cgroup, reading) else { return false };
        *self.cgroups.entry(id).or_insert(self.filter.wants_cgroup(&path, &self.names))
    }
}
