//! The culprits of each exported cgroup. A few culprits have a series with their name; the others share one series.

use std::sync::Arc;

use cgscope_ledger::history::KERNEL;
use cgscope_model::{Blame, Interval, REST, sum};

use crate::{
    choice::{LONGEST_PATH, Newcomers, STICKY},
    forest::{Forest, Places},
};

/// Maximum number of watched culprits, for each named culprit. A watched culprit gets a name if it becomes one of the worst.
const WATCHED: usize = 4;

/// A culprit in an interval. A cgroup is represented by its index in the [`Forest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Kernel,
    Cgroup(usize),
    /// A cgroup that was removed before we read its path, or the sum of several culprits.
    Unnamed,
}

impl Who {
    fn is_there(self, forest: &Forest) -> bool {
        match self {
            Self::Kernel => true,
            Self::Cgroup(at) => forest.nodes[at].now.is_there,
            Self::Unnamed => false,
        }
    }
}

/// A culprit, and how long an exported cgroup waited while this culprit ran, ns.
pub(crate) type Part = (Who, u64);

#[derive(Debug, Default)]
pub(crate) struct Culprits {
    watched: Vec<Watched>,
    /// Sum of all culprits without a name.
    other: Option<CulpritSeries>,
    newcomers: Newcomers,
}

#[derive(Debug)]
struct Watched {
    /// Path of the culprit's cgroup. `None` means kernel threads.
    path: Option<Arc<str>>,
    /// How long the exported cgroup has waited for this culprit since we started to watch the culprit, ns.
    so_far_ns: u64,
    /// How long the exported cgroup waited for this culprit in the latest interval, ns.
    now_ns: u64,
    is_there: bool,
    /// The exported series, if the culprit has a name.
    series: Option<CulpritSeries>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CulpritSeries {
    pub ns: u64,
    pub created_unix_ns: u64,
}

impl Watched {
    /// Returns the wait time that another culprit must exceed to replace this culprit, ns.
    fn hold_ns(&self) -> u64 {
        if self.is_there { self.so_far_ns.saturating_mul(STICKY) } else { 0 }
    }
}

impl Culprits {
    /// Iterates over the series with their labels: first the named culprits, then the sum of the others.
    pub fn series(&self) -> impl Iterator<Item = (&str, CulpritSeries)> {
        let named = self.watched.iter().filter_map(|one| {
            let label = one.path.as_deref().unwrap_or("kernel");
            Some((label, one.series?))
        });
        named.chain(self.other.map(|series| ("other", series)))
    }

    /// Keeps the series of the `most` worst culprits, and drops the series of the others.
    pub fn limit(&mut self, most: usize) {
        self.watched.sort_by_key(|one| std::cmp::Reverse(one.so_far_ns));
        let named = self.watched.iter_mut().filter(|one| one.series.is_some());
        named.skip(most).for_each(|one| one.series = None);
    }

    /// Adds the parts of an interval: one for each culprit, in ascending order. Each time is added to exactly one series.
    pub fn add(&mut self, parts: &[Part], forest: &Forest, most: usize, interval: &Interval) {
        self.watch(parts, forest, most);
        self.limit(most);
        self.name(most, interval.start_unix_ns);
        self.newcomers.pass(interval.duration_ns);
        let mut left_ns = sum::total(parts.iter().map(|(_, ns)| *ns));
        for one in &mut self.watched {
            if let Some(series) = &mut one.series {
                sum::add(&mut series.ns, one.now_ns);
                left_ns = left_ns.saturating_sub(one.now_ns);
            }
        }
        if left_ns != 0 {
            let new = CulpritSeries { ns: 0, created_unix_ns: interval.start_unix_ns };
            sum::add(&mut self.other.get_or_insert(new).ns, left_ns);
        }
        let mut free = most.saturating_mul(WATCHED);
        self.watched.retain(|one| {
            let stays = one.series.is_some() || one.is_there && free != 0;
            free -= usize::from(stays && one.series.is_none());
            stays
        });
    }

    /// Updates the watched culprits, and starts to watch the worst culprits that were not watched.
    fn watch(&mut self, parts: &[Part], forest: &Forest, most: usize) {
        let mut new: Vec<Part> = parts.to_vec();
        for one in &mut self.watched {
            let who = match &one.path {
                None => Some(Who::Kernel),
                Some(path) => forest.find(path).map(Who::Cgroup),
            };
            let part = who.and_then(|who| parts.binary_search_by_key(&who, |(who, _)| *who).ok());
            one.now_ns = part.map_or(0, |at| std::mem::take(&mut new[at].1));
            one.is_there = who.is_some_and(|who| who.is_there(forest));
            sum::add(&mut one.so_far_ns, one.now_ns);
        }
        let can_be_named = |who: &Who| match who {
            Who::Kernel => true,
            Who::Cgroup(at) => forest.nodes[*at].path.len() <= LONGEST_PATH,
            Who::Unnamed => false,
        };
        new.retain(|(who, ns)| *ns != 0 && can_be_named(who));
        let limit = most.saturating_mul(WATCHED);
        let worst = |a: &Part, b: &Part| b.1.cmp(&a.1).then(a.0.cmp(&b.0));
        if new.len() > limit {
            new.select_nth_unstable_by(limit, worst);
            new.truncate(limit);
        }
        new.sort_unstable_by(worst);
        self.watched.extend(new.into_iter().map(|(who, ns)| Watched {
            path: match who {
                Who::Cgroup(at) => Some(forest.nodes[at].path.clone()),
                Who::Kernel | Who::Unnamed => None,
            },
            so_far_ns: ns,
            now_ns: ns,
            is_there: who.is_there(forest),
            series: None,
        }));
    }

    /// Names the worst watched culprits until `most` have names. After that, a culprit replaces one that was removed, or for
    /// which the cgroup waited much less. At most [`WATCHED`] times `most` culprits get a name within a minute.
    fn name(&mut self, most: usize, start_unix_ns: u64) {
        let mut named = self.watched.iter().filter(|one| one.series.is_some()).count();
        // Skip culprits whose cgroup was removed, because they cannot get worse.
        let is_next = |one: &Watched| one.series.is_none() && one.is_there && one.so_far_ns != 0;
        while let Some(worst) = self.watched.iter().position(is_next) {
            let mut replaced = None;
            if named >= most {
                let worst_ns = self.watched[worst].so_far_ns;
                let holders = self.watched.iter().enumerate().filter(|(_, one)| one.series.is_some());
                let least = holders.min_by_key(|(_, one)| one.hold_ns());
                replaced = least.filter(|(_, least)| least.hold_ns() < worst_ns).map(|(at, _)| at);
                // The worst culprits are first. If this culprit cannot replace another culprit, later culprits cannot either.
                if replaced.is_none() {
                    return;
                }
            }
            if !self.newcomers.comes(most.saturating_mul(WATCHED)) {
                return;
            }
            match replaced {
                Some(at) => self.watched[at].series = None,
                None => named += 1,
            }
            self.watched[worst].series = Some(CulpritSeries { ns: 0, created_unix_ns: start_unix_ns });
        }
    }
}

/// Returns the parts of each exported cgroup, including its descendants. Parents must precede their children. `above` holds the
/// index of each exported cgroup's nearest exported ancestor.
pub(crate) fn parts(
    interval: &Interval,
    forest: &Forest,
    places: &Places,
    above: &[usize],
) -> Vec<Vec<Part>> {
    let mut parts: Vec<Vec<Part>> = vec![Vec::new(); above.len()];
    for pair in interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran) {
        let victim = places.find(interval, pair.victim).map_or(0, |at| forest.nodes[at].now.home);
        let culprit = match pair.culprit {
            KERNEL => Who::Kernel,
            REST => Who::Unnamed,
            id => places.find(interval, id).map_or(Who::Unnamed, Who::Cgroup),
        };
        parts[victim].push((culprit, pair.ns));
    }
    for at in (0..above.len()).rev() {
        parts[at].sort_unstable();
        sum::merge(&mut parts[at], |part| part.0, |part| &mut part.1);
        if at != 0 {
            let below = parts[at].clone();
            parts[above[at]].extend(below);
        }
    }
    parts
}
