//! Selects the cgroups to export.

use std::{collections::HashSet, sync::Arc};

use regex::Regex;

use crate::forest::{Forest, Node, ROOT};

/// How many times longer another cgroup must have waited to replace an exported cgroup that still exists. Series that constantly
/// appear and vanish are useless.
pub(crate) const STICKY: u64 = 2;

/// Limits on the size of a page.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of cgroups, including the root; those that waited most are exported.
    pub cgroups: usize,
    /// Maximum depth below the root: `/a/b` is at depth 2.
    pub depth: usize,
    /// Export only cgroups whose path matches, and the root.
    pub include: Option<Regex>,
    /// Do not export cgroups whose path matches, except the root.
    pub exclude: Option<Regex>,
    /// Maximum number of named culprits for each cgroup.
    pub culprits: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { cgroups: 200, depth: 8, include: None, exclude: None, culprits: 5 }
    }
}

impl Config {
    /// Returns the maximum number of cgroups besides the root.
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

/// Counts the cgroups in each state, in the order of the page.
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

/// Returns the paths to export besides the root. Removed and ineligible cgroups lose their places, and free places go to the
/// cgroups that waited most. A cgroup that waited much longer than the exported one that waited least replaces it.
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
    // There may be thousands of others. At most `places` of them can get a place, so only the first `places` need to be sorted.
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
