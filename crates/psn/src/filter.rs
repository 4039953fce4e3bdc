//! Which threads are counted: what the reader does not leave out by itself.

use std::collections::{HashMap, HashSet};

use cgscope_model::{Selection, selection::is_at_or_below};
use regex::Regex;

use crate::{ThreadNames, ThreadReading};

/// By name, CPU, node and cgroup.
pub struct ThreadFilter {
    comm: Option<Regex>,
    cpus: Vec<u32>,
    nodes: Vec<u32>,
    cgroup: Option<String>,
    /// Whether a cgroup is selected, by id, once its path is known.
    cgroups: HashMap<u64, bool>,
}

impl ThreadFilter {
    /// The part of a selection that is not about processes and threads.
    ///
    /// # Errors
    /// Where `comm` is not a regular expression.
    pub fn new(selection: &Selection) -> Result<Self, regex::Error> {
        Ok(Self {
            comm: selection.comm.as_deref().map(Regex::new).transpose()?,
            cpus: selection.cpus.clone(),
            nodes: selection.nodes.clone(),
            cgroup: selection.cgroup.clone(),
            cgroups: HashMap::new(),
        })
    }

    /// Cgroups must be read for it.
    pub fn needs_cgroups(&self) -> bool {
        self.cgroup.is_some()
    }

    /// Nothing is left out.
    pub fn is_open(&self) -> bool {
        self.comm.is_none() && self.cpus.is_empty() && self.nodes.is_empty() && self.cgroup.is_none()
    }

    /// The cgroups among these that are not known yet.
    pub fn unknown_cgroups(&self, readings: &[ThreadReading]) -> HashSet<u64> {
        let ids = readings.iter().filter_map(|reading| reading.cgroup_id);
        ids.filter(|id| !self.cgroups.contains_key(id)).collect()
    }

    /// Whether a thread is selected. A thread with an unknown cgroup, CPU or node is left out where that matters.
    pub fn wants(&mut self, reading: &ThreadReading, names: &impl ThreadNames) -> bool {
        let is_one_of = |list: &[u32], number: Option<u32>| {
            list.is_empty() || number.is_some_and(|number| list.contains(&number))
        };
        is_one_of(&self.cpus, reading.cpu)
            && is_one_of(&self.nodes, reading.cpu.and_then(|cpu| names.node(cpu)))
            && self.comm.as_ref().is_none_or(|comm| is_named(comm, &reading.comm))
            && self.is_in_cgroup(reading.cgroup_id, names)
    }

    fn is_in_cgroup(&mut self, id: Option<u64>, names: &impl ThreadNames) -> bool {
        let Some(root) = &self.cgroup else { return true };
        let Some(id) = id else { return false };
        if let Some(is_in) = self.cgroups.get(&id) {
            return *is_in;
        }
        let Some(path) = names.cgroup(id) else { return false };
        *self.cgroups.entry(id).or_insert(is_at_or_below(&path, root))
    }
}

fn is_named(comm: &Regex, name: &[u8; 16]) -> bool {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    comm.is_match(&String::from_utf8_lossy(name))
}
