//! Which tasks a user asked for. Processes and threads are selected in the kernel, where leaving a task out saves its
//! cost; the rest is left out here, of an Interval.

use std::sync::Arc;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::{Gone, Interval};

/// What a user asked for. Empty lists and `None` select everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Processes, with all their threads and children.
    pub pids: Vec<u32>,
    /// Single threads.
    pub tids: Vec<u32>,
    /// The cgroup of the *waiting* task, with all below it; normalised by [`normal_path`].
    pub cgroup: Option<String>,
    /// A regular expression on the thread's name.
    pub comm: Option<String>,
    /// CPUs a task was last on.
    pub cpus: Vec<u32>,
    /// NUMA nodes a task was last on.
    pub nodes: Vec<u32>,
}

impl Selection {
    /// True if the kernel side follows every task.
    pub fn follows_all(&self) -> bool {
        self.pids.is_empty() && self.tids.is_empty()
    }

    /// True if nothing was asked for: the whole host.
    pub fn is_whole_host(&self) -> bool {
        *self == Self::default()
    }

    /// Leaves out what was not asked for. What exited is known by cgroup alone: a selection by name, CPU or node
    /// leaves it out. Waits by CPU are those of all followed tasks: once some are left out here, waits are known only by the
    /// CPU that a task was last on. Of CPUs and nodes those that were asked for stay.
    pub fn apply(&self, interval: &mut Interval) -> Result<(), regex::Error> {
        let comm = self.comm.as_deref().map(Regex::new).transpose()?;
        let cgroups = std::mem::take(&mut interval.cgroups);
        let in_cgroup = |id: u64| match &self.cgroup {
            None => true,
            Some(root) => cgroups
                .binary_search_by_key(&id, |(id, _)| *id)
                .is_ok_and(|i| is_at_or_below(&cgroups[i].1, root)),
        };
        interval.tasks.retain(|task| {
            let task = &task.reading;
            in_cgroup(task.cgroup_id)
                && comm.as_ref().is_none_or(|comm| comm.is_match(&task.comm))
                && (self.cpus.is_empty() || self.cpus.contains(&task.cpu))
                && (self.nodes.is_empty() || task.node.is_some_and(|node| self.nodes.contains(&node)))
        });
        let by_task = comm.is_some() || !self.cpus.is_empty() || !self.nodes.is_empty();
        interval.exited.retain(|exited| !by_task && in_cgroup(exited.cgroup_id));
        if by_task || !self.tids.is_empty() {
            leave_out_gone(interval);
        }
        interval.pairs.retain(|pair| in_cgroup(pair.victim));
        let is_chosen = |chosen: &[u32], number: u32| chosen.is_empty() || chosen.contains(&number);
        interval.nodes.retain(|node| is_chosen(&self.nodes, node.node));
        interval.cpus.retain(|cpu| {
            is_chosen(&self.cpus, cpu.cpu)
                && (self.nodes.is_empty() || cpu.node.is_some_and(|node| self.nodes.contains(&node)))
        });
        if by_task || self.cgroup.is_some() {
            for cpu in &mut interval.cpus {
                (cpu.wait, cpu.came_from) = (None, None);
            }
        }
        interval.is_selection = !self.is_whole_host();
        interval.selected_cgroup = self.cgroup.as_deref().map(Into::into);
        interval.cgroups = cgroups;
        Ok(())
    }
}

/// What threads of a process did that exited is not told by thread.
fn leave_out_gone(interval: &mut Interval) {
    for accounts in interval.tasks.iter_mut().filter_map(|task| task.accounts.as_mut()) {
        if accounts.gone != Gone::default() {
            Arc::make_mut(accounts).gone = Gone::default();
        }
    }
}

/// `/a/b` for `a/b/`, `/a//b` and `/a/b`; the root is `/`.
pub fn normal_path(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        out.push('/');
        out.push_str(part);
    }
    if out.is_empty() { "/".into() } else { out }
}

/// True for `root` itself and what lies below it.
pub fn is_at_or_below(path: &str, root: &str) -> bool {
    let is_below = || path.strip_prefix(root).is_some_and(|rest| !root.is_empty() && rest.starts_with('/'));
    root == "/" || path == root || is_below()
}

/// `/a/b`, `/a` and `/`: whatever it [is at or below](is_at_or_below). A file may hold a path that does not begin at the root.
pub fn path_and_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        _ if *path == "/" => None,
        None | Some(0) => Some("/"),
        Some(end) => Some(&path[..end]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ancestors_are_what_a_path_is_below(path in "[/a-b-]{0,8}", root in "[/a-b-]{0,5}") {
            let is_ancestor = path_and_ancestors(&path).any(|at| at == root);
            prop_assert_eq!(is_ancestor, is_at_or_below(&path, &root));
            prop_assert!(path_and_ancestors(&path).last() == Some("/"));
        }
    }

    #[test]
    fn a_cgroup_selects_itself_and_all_below_but_no_namesake() {
        assert!(is_at_or_below("/a", "/a"));
        assert!(is_at_or_below("/a/b", "/a"));
        assert!(!is_at_or_below("/ab", "/a"));
        assert!(is_at_or_below("/ab", "/"));
    }

    #[test]
    fn paths_are_normalised() {
        for path in ["a/b", "/a/b", "/a/b/", "//a//b"] {
            assert_eq!(normal_path(path), "/a/b");
        }
        assert_eq!(normal_path("/"), "/");
        assert_eq!(normal_path(""), "/");
    }
}
