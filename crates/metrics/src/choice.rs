//! Which cgroups are exported.

use std::{collections::HashSet, sync::Arc};

use regex::Regex;

use crate::forest::{Forest, Node, ROOT};

/// An exported cgroup that still exists loses its place only to one that has waited this many times as long: series that appear
/// and vanish all the time are of no use.
pub(crate) const STICKY: u64 = 2;

/// The bounds of a page.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most cgroups, including the root: those that waited most.
    pub cgroups: usize,
    /// Greatest depth below the root: `/a/b` is at 2.
    pub depth: usize,
    /// Export only cgroups with a matching path, and the root.
    pub include: Option<Regex>,
    /// Export no cgroups with a matching path, except the root.
    pub exclude: Option<Regex>,
    /// Most culprits of each cgroup that are named.
    pub culprits: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { cgroups: 200, depth: 8, include: None, exclude: None, culprits: 5 }
    }
}

impl Config {
    /// Most cgroups besides the root.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Eligible,
    TooDeep,
    Excluded,
}

/// The number of cgroups in each state, in the order of the page.
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

/// The paths to export besides the root. Removed and ineligible cgroups lose their places, free places go to those that waited most,
/// and one that has waited much longer takes the place of the one that waited least.
pub(crate) fn choose<'a>(
    forest: &Forest,
    exported: impl Iterator<Item = &'a Arc<str>>,
    config: &Config,
) -> HashSet<Arc<str>> {
    let is_eligible = |at: &usize| *at != ROOT && forest.nodes[*at].standing == Standing::Eligible;
    let stays = |at: &usize| is_eligible(at) && forest.nodes[*at].now.is_there;
    let mut chosen: Vec<usize> = exported.filter_map(|path| forest.find(path)).filter(stays).collect();
    let most_first = |a: &usize, b: &usize| {
        let (a, b) = (&forest.nodes[*a], &forest.nodes[*b]);
        b.waited_ns.cmp(&a.waited_ns).then_with(|| a.path.cmp(&b.path))
    };
    chosen.sort_unstable_by(most_first);
    chosen.truncate(config.places());
    let held: HashSet<usize> = chosen.iter().copied().collect();
    let all = 0..forest.nodes.len();
    let mut others: Vec<usize> =
        all.filter(|at| is_eligible(at) && forest.nodes[*at].now.has_tasks && !held.contains(at)).collect();
    // No more can get a place: among thousands of others the order does not matter.
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
