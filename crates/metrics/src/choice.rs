//! Which cgroups are exported.

use std::{cmp::Ordering, collections::HashSet, sync::Arc};

use regex::Regex;

use crate::forest::{Forest, Node, ROOT};

/// An exported cgroup gives its place away while it lives only to one that has waited more than so many times as long: a page
/// on which cgroups come and go is of no use.
pub(crate) const STICKY: u64 = 2;

/// How much is exported.
#[derive(Clone, Debug)]
pub struct Config {
    /// So many cgroups at most, the root among them, which always is: those that waited most.
    pub cgroups: usize,
    /// None deeper below the root: `/a/b` is at 2.
    pub depth: usize,
    /// Only those whose path it matches, and the root.
    pub include: Option<Regex>,
    /// None whose path it matches, but for the root.
    pub exclude: Option<Regex>,
    /// So many culprits of each cgroup are named.
    pub culprits: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { cgroups: 200, depth: 8, include: None, exclude: None, culprits: 5 }
    }
}

impl Config {
    /// So many cgroups have a place beside the root.
    fn places(&self) -> usize {
        self.cgroups.saturating_sub(1)
    }

    pub(crate) fn standing(&self, path: &str, depth: usize) -> Standing {
        let is_match = |regex: &Regex| regex.is_match(path);
        if self.include.as_ref().is_some_and(|include| !is_match(include))
            || self.exclude.as_ref().is_some_and(is_match)
        {
            Standing::Excluded
        } else if depth > self.depth {
            Standing::TooDeep
        } else {
            Standing::Eligible
        }
    }
}

/// What the configuration says about a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Eligible,
    TooDeep,
    Excluded,
}

/// What becomes of the cgroups of a host, in the order of the page.
pub(crate) fn states(forest: &Forest) -> [(&'static str, u64); 4] {
    let count = |which: &dyn Fn(&Node) -> bool| forest.nodes.iter().filter(|node| which(node)).count() as u64;
    let cut =
        |standing| count(&|node| !node.now.is_exported && node.now.has_tasks && node.standing == standing);
    [
        ("exported", count(&|node| node.now.is_exported)),
        ("over_limit", cut(Standing::Eligible)),
        ("too_deep", cut(Standing::TooDeep)),
        ("excluded", cut(Standing::Excluded)),
    ]
}

/// The paths to export beside the root, given those that are: who is gone or may not stay loses the place, free places go to
/// those that waited most, and one that has waited much longer takes that of whoever waited least.
pub(crate) fn choose<'a>(
    forest: &Forest,
    exported: impl Iterator<Item = &'a Arc<str>>,
    config: &Config,
) -> HashSet<Arc<str>> {
    let is_eligible = |at: &usize| *at != ROOT && forest.nodes[*at].standing == Standing::Eligible;
    let stays = |at: &usize| is_eligible(at) && forest.nodes[*at].now.is_there;
    let mut chosen: Vec<usize> = exported.filter_map(|path| forest.find(path)).filter(stays).collect();
    let most_first = |a: &usize, b: &usize| by_wait(&forest.nodes[*a], &forest.nodes[*b]);
    chosen.sort_unstable_by(most_first);
    chosen.truncate(config.places());
    let held: HashSet<usize> = chosen.iter().copied().collect();
    let all = 0..forest.nodes.len();
    let mut others: Vec<usize> =
        all.filter(|at| is_eligible(at) && forest.nodes[*at].now.has_tasks && !held.contains(at)).collect();
    // No more can get a place: of thousands of others the order does not matter.
    if others.len() > config.places() {
        others.select_nth_unstable_by(config.places(), most_first);
        others.truncate(config.places());
    }
    others.sort_unstable_by(most_first);
    let mut others = others.into_iter();
    let free = config.places() - chosen.len();
    let newcomers: Vec<usize> = others.by_ref().take(free).collect();
    for (other, holder) in others.zip(chosen.iter_mut().rev()) {
        let enough_ns = forest.nodes[*holder].waited_ns.saturating_mul(STICKY);
        if forest.nodes[other].waited_ns <= enough_ns {
            break;
        }
        *holder = other;
    }
    chosen.into_iter().chain(newcomers).map(|at| forest.nodes[at].path.clone()).collect()
}

/// Who waited longest first; of the same by path.
fn by_wait(a: &Node, b: &Node) -> Ordering {
    b.waited_ns.cmp(&a.waited_ns).then_with(|| a.path.cmp(&b.path))
}
