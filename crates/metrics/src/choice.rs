//! Selects the cgroups to export.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use regex::Regex;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::forest::{Forest, Node, ROOT};

/// A new cgroup replaces an exported cgroup only if it waited this many times longer. Otherwise many series would be too short.
pub(crate) const STICKY: u64 = 2;

/// Maximum length of a path in a label, bytes. Up to 210 series have the label. Paths in pods take about 200 bytes.
pub(crate) const LONGEST_PATH: usize = 512;

/// Limits on the size of a page: the section `[metrics]` of the daemon's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Maximum number of cgroups, including the root. The cgroups that waited most are exported.
    pub cgroups: usize,
    /// Maximum depth below the root: `/a/b` is at depth 2.
    pub depth: usize,
    /// Regular expression that the paths of exported cgroups must match. The root is always exported.
    #[serde(deserialize_with = "expression")]
    pub include: Option<Regex>,
    /// Regular expression that the paths of exported cgroups must not match. The root is always exported.
    #[serde(deserialize_with = "expression")]
    pub exclude: Option<Regex>,
    /// Maximum number of named culprits for each cgroup.
    pub culprits: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { cgroups: 200, depth: 8, include: None, exclude: None, culprits: 5 }
    }
}

fn expression<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Regex::new(&text).map(Some).map_err(|error| {
        let words = error.to_string();
        let why = words.lines().last().unwrap_or_default();
        D::Error::custom(format!("{text:?} is not a regular expression: {why}"))
    })
}

impl Config {
    fn places(&self) -> usize {
        self.cgroups.saturating_sub(1)
    }

    /// Returns the maximum number of cgroups of a family that can become exported within a minute.
    pub(crate) fn newcomers(&self) -> usize {
        (self.places() / 8).max(8)
    }

    pub(crate) fn standing(&self, path: &str, depth: usize) -> Standing {
        let is_match = |regex: &Regex| regex.is_match(path);
        if self.include.as_ref().is_some_and(|include| !is_match(include))
            || self.exclude.as_ref().is_some_and(is_match)
        {
            Standing::Excluded
        } else if depth > self.depth {
            Standing::TooDeep
        } else if path.len() > LONGEST_PATH {
            Standing::TooLong
        } else {
            Standing::Eligible
        }
    }
}

cgscope_ledger::named! {
    /// Whether a cgroup can be exported, or why not. If the cgroup is not exported, the page counts it under this name.
    Standing {
        Eligible = "over_limit",
        TooDeep = "too_deep",
        TooLong = "too_long",
        Excluded = "excluded",
    }
}

/// Returns the number of cgroups in each state, in the order of the page.
pub(crate) fn states(forest: &Forest) -> impl Iterator<Item = (&'static str, u64)> {
    let count = |which: &dyn Fn(&Node) -> bool| forest.nodes.iter().filter(|node| which(node)).count() as u64;
    let exported = ("exported", count(&|node| node.now.is_exported));
    let cut = move |standing: Standing| {
        let is_cut = |node: &Node| !node.now.is_exported && node.now.has_tasks && node.standing == standing;
        (standing.name(), count(&is_cut))
    };
    std::iter::once(exported).chain(Standing::ALL.into_iter().map(cut))
}

/// Returns the paths to export in addition to the root. Removed and ineligible cgroups lose their places. [`in_turns`] divides half
/// of the places evenly. The other half goes to the cgroups that waited most. A cgroup that waited much longer than an exported
/// cgroup replaces it, unless too many cgroups of its family are [new](Newcomers).
pub(crate) fn choose<'a>(
    forest: &Forest,
    exported: impl Iterator<Item = &'a Arc<str>>,
    config: &Config,
    newcomers: &mut impl FnMut(&str) -> bool,
) -> HashSet<Arc<str>> {
    let held: HashSet<usize> = exported.filter_map(|path| forest.find(path)).collect();
    let wants = |at: &usize| {
        let node = &forest.nodes[*at];
        let exists = if held.contains(at) { node.now.is_there } else { node.now.has_tasks };
        *at != ROOT && exists && node.standing == Standing::Eligible
    };
    let claim_ns = |at: usize| {
        let waited_ns = forest.nodes[at].waited_ns;
        if held.contains(&at) { waited_ns.saturating_mul(STICKY) } else { waited_ns }
    };
    let most_first = |a: &usize, b: &usize| {
        let by_claim = claim_ns(*b).cmp(&claim_ns(*a));
        // If both claims are equal, the cgroup that has a place keeps it.
        let by_place = held.contains(b).cmp(&held.contains(a));
        by_claim.then(by_place).then_with(|| forest.nodes[*a].path.cmp(&forest.nodes[*b].path))
    };
    let mut all: Vec<usize> = (0..forest.nodes.len()).filter(wants).collect();
    let places = config.places();
    let mut chosen: HashSet<usize> = all.iter().copied().collect();
    if all.len() > places {
        all.sort_unstable_by(most_first);
        chosen = in_turns(forest, &all, places / 2);
        let by_claim = all.iter().filter(|at| !chosen.contains(at)).take(places - chosen.len());
        let by_claim: Vec<usize> = by_claim.copied().collect();
        chosen.extend(by_claim);
    }
    chosen.retain(|at| held.contains(at) || newcomers(&forest.nodes[*at].path));
    // Some places are still free if newcomers were refused. The exported cgroups that were not chosen keep these places.
    let kept = all.iter().filter(|at| held.contains(at) && !chosen.contains(at)).take(places - chosen.len());
    let kept: Vec<usize> = kept.copied().collect();
    chosen.into_iter().chain(kept).map(|at| forest.nodes[at].path.clone()).collect()
}

/// Returns the cgroups in `all` that get one of the places. `all` must be sorted by claim, the largest claim first. The children
/// of each cgroup take turns, as long as they want places for themselves or for descendants. So no user can take all places.
fn in_turns(forest: &Forest, all: &[usize], places: usize) -> HashSet<usize> {
    let ranks: HashMap<usize, usize> = all.iter().enumerate().map(|(rank, at)| (*at, rank)).collect();
    // For each child of a cgroup, the best rank in it, and the cgroups in it that get a place if the child has enough turns.
    let mut below: HashMap<usize, Vec<(usize, Vec<usize>)>> = HashMap::new();
    for at in (0..forest.nodes.len()).rev() {
        let mut children = below.remove(&at).unwrap_or_default();
        children.sort_unstable();
        let own = ranks.get(&at).copied();
        let best = own.into_iter().chain(children.first().map(|(best, _)| *best)).min();
        let Some(best) = best else { continue };
        let mut turns = Vec::new();
        for (child, (_, takers)) in children.iter().enumerate() {
            turns.extend(takers.iter().enumerate().map(|(turn, taker)| (turn, child, *taker)));
        }
        turns.sort_unstable();
        let takers = own.map(|_| at).into_iter().chain(turns.into_iter().map(|(.., taker)| taker));
        below.entry(forest.nodes[at].parent).or_default().push((best, takers.take(places).collect()));
    }
    // The root is its own parent.
    below.remove(&ROOT).into_iter().flatten().flat_map(|(_, takers)| takers).collect()
}

/// Limits how many new names appear on the pages, so that renames do not create endless series.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    /// Used part of [`RENEWAL_NS`]. Each new name uses a part of it, and the time that passes is subtracted.
    used_ns: u64,
}

/// Time after which a full set of new names is allowed again, ns.
const RENEWAL_NS: u64 = 60_000_000_000;

impl Newcomers {
    /// Counts one more newcomer if it is allowed now, and returns whether it is. `most` is the number allowed in a minute.
    pub fn comes(&mut self, most: usize) -> bool {
        let cost_ns = RENEWAL_NS / (most as u64).clamp(1, RENEWAL_NS);
        let is_allowed = most != 0 && self.used_ns + cost_ns <= RENEWAL_NS;
        self.used_ns += if is_allowed { cost_ns } else { 0 };
        is_allowed
    }

    /// Subtracts time that has passed. Returns whether a full set of new names is allowed again.
    pub fn pass(&mut self, duration_ns: u64) -> bool {
        self.used_ns = self.used_ns.saturating_sub(duration_ns);
        self.used_ns == 0
    }
}
