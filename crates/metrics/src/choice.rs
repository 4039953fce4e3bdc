//! Selects the cgroups to export.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cgscope_model::path::family;
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
        D::Error::custom(format!(
            "{text:?} is not a regular expression: {}",
            words.lines().last().unwrap_or_default()
        ))
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

/// Returns the paths to export in addition to the root. Removed and ineligible cgroups lose their places. [`Shares`] divides half
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
        chosen = Shares::of(forest, &all).divide(places / 2);
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

/// Divides places evenly among the children of each cgroup, as far as they want places. So no user can take all places.
struct Shares {
    /// Children of each cgroup that want a place for themselves or for descendants. The children that waited most are first.
    below: HashMap<usize, Vec<usize>>,
    /// Number of places that each cgroup wants for itself and its descendants.
    wanted: HashMap<usize, usize>,
    wants: HashSet<usize>,
}

impl Shares {
    /// Creates shares for the cgroups in `all`, which each want a place. `all` must be sorted by claim, the largest claim first.
    fn of(forest: &Forest, all: &[usize]) -> Self {
        let (mut below, mut wanted) = (HashMap::<usize, Vec<usize>>::new(), HashMap::<usize, usize>::new());
        for at in all {
            let mut at = *at;
            loop {
                let before = wanted.entry(at).or_default();
                *before += 1;
                if at == ROOT {
                    break;
                }
                let parent = forest.nodes[at].parent;
                if *before == 1 {
                    below.entry(parent).or_default().push(at);
                }
                at = parent;
            }
        }
        Self { below, wanted, wants: all.iter().copied().collect() }
    }

    fn divide(&self, places: usize) -> HashSet<usize> {
        let mut given = HashSet::new();
        let mut open = vec![(ROOT, places)];
        while let Some((at, mut places)) = open.pop() {
            if places != 0 && self.wants.contains(&at) {
                given.insert(at);
                places -= 1;
            }
            let Some(below) = self.below.get(&at).filter(|_| places != 0) else { continue };
            open.extend(self.level(below, places));
        }
        given
    }

    /// Divides places among siblings: each sibling gets as many places as it wants, up to a maximum that is the same for all. If
    /// places are left, the first siblings that want more get one more place each.
    fn level(&self, siblings: &[usize], mut places: usize) -> Vec<(usize, usize)> {
        let mut wants: Vec<usize> = siblings.iter().map(|at| self.wanted[at]).collect();
        wants.sort_unstable();
        let mut level = 0;
        for (done, want) in wants.iter().enumerate() {
            let others = wants.len() - done;
            let step = (want - level).min(places / others);
            (level, places) = (level + step, places - step * others);
            if level < *want {
                break;
            }
        }
        let share = |at: &usize| {
            let want = self.wanted[at];
            let more = usize::from(want > level && places != 0);
            places -= more;
            (*at, want.min(level) + more)
        };
        siblings.iter().map(share).collect()
    }
}

/// Limits how many new names appear on the pages, so that renames do not create endless series.
#[derive(Debug)]
pub(crate) struct Newcomers {
    /// Unused time, at most [`RENEWAL_NS`], ns. The time grows with each interval, and each new name uses a part of it.
    saved_ns: u64,
}

/// Time after which a full set of new names is allowed again, ns.
const RENEWAL_NS: u64 = 60_000_000_000;

impl Default for Newcomers {
    fn default() -> Self {
        Self { saved_ns: RENEWAL_NS }
    }
}

impl Newcomers {
    /// Counts one more newcomer if it is allowed now, and returns whether it is. `most` is the number allowed in a minute.
    pub fn comes(&mut self, most: usize) -> bool {
        let cost_ns = RENEWAL_NS / (most as u64).clamp(1, RENEWAL_NS);
        let left_ns = self.saved_ns.checked_sub(cost_ns).filter(|_| most != 0);
        self.saved_ns = left_ns.unwrap_or(self.saved_ns);
        left_ns.is_some()
    }

    /// Adds time that has passed. Returns whether a full set of new names is allowed again.
    pub fn pass(&mut self, duration_ns: u64) -> bool {
        self.saved_ns = self.saved_ns.saturating_add(duration_ns).min(RENEWAL_NS);
        self.saved_ns == RENEWAL_NS
    }
}

/// The newcomers of each family: a service, a user or a pod. Only root can create new families.
#[derive(Debug, Default)]
pub(crate) struct Families(HashMap<Box<str>, Newcomers>);

impl Families {
    pub fn comes(&mut self, path: &str, most: usize) -> bool {
        self.0.entry(family(path).into()).or_default().comes(most)
    }

    pub fn pass(&mut self, duration_ns: u64) {
        self.0.retain(|_, newcomers| !newcomers.pass(duration_ns));
    }
}
