//! The culprits of each exported cgroup, and the wakers of its sleeping tasks. A few of them have series with their name; the others
//! share series. This module calls both culprits.

use std::sync::Arc;

use cgscope_ledger::{chains::Waker, history::KERNEL};
use cgscope_model::{Blame, Cause, Doing, Interval, REST, sum};

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

/// A culprit, and how long an exported cgroup waited or slept for it, ns, in `N` parts.
pub(crate) type Part<const N: usize> = (Who, [u64; N]);

#[derive(Debug, Default)]
pub(crate) struct Culprits<const N: usize> {
    watched: Vec<Watched<N>>,
    /// Sum of all culprits without a name.
    other: Option<CulpritSeries<N>>,
    newcomers: Newcomers,
}

#[derive(Debug)]
struct Watched<const N: usize> {
    /// Path of the culprit's cgroup. `None` means kernel threads.
    path: Option<Arc<str>>,
    /// How long the exported cgroup has waited for this culprit since we started to watch the culprit, ns.
    so_far_ns: u64,
    /// How long the exported cgroup waited for this culprit in the latest interval, ns.
    now_ns: [u64; N],
    is_there: bool,
    /// The exported series, if the culprit has a name.
    series: Option<CulpritSeries<N>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CulpritSeries<const N: usize> {
    pub ns: [u64; N],
    pub created_unix_ns: u64,
}

impl<const N: usize> Watched<N> {
    /// Returns the wait time that another culprit must exceed to replace this culprit, ns.
    fn hold_ns(&self) -> u64 {
        if self.is_there { self.so_far_ns.saturating_mul(STICKY) } else { 0 }
    }
}

impl<const N: usize> Culprits<N> {
    /// Iterates over the series with their labels: first the named culprits, then the sum of the others.
    pub fn series(&self) -> impl Iterator<Item = (&str, CulpritSeries<N>)> {
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
    pub fn add(&mut self, parts: &[Part<N>], forest: &Forest, most: usize, interval: &Interval) {
        self.watch(parts, forest, most);
        self.limit(most);
        self.name(most, interval.start_unix_ns);
        self.newcomers.pass(interval.duration_ns);
        let mut left_ns = [0; N];
        parts.iter().for_each(|(_, ns)| add(&mut left_ns, ns));
        for one in &mut self.watched {
            if let Some(series) = &mut one.series {
                add(&mut series.ns, &one.now_ns);
                left_ns.iter_mut().zip(one.now_ns).for_each(|(left, ns)| *left = left.saturating_sub(ns));
            }
        }
        if left_ns != [0; N] {
            let new = CulpritSeries { ns: [0; N], created_unix_ns: interval.start_unix_ns };
            add(&mut self.other.get_or_insert(new).ns, &left_ns);
        }
        let mut free = most.saturating_mul(WATCHED);
        self.watched.retain(|one| {
            let stays = one.series.is_some() || one.is_there && free != 0;
            free -= usize::from(stays && one.series.is_none());
            stays
        });
    }

    /// Updates the watched culprits, and starts to watch the worst culprits that were not watched.
    fn watch(&mut self, parts: &[Part<N>], forest: &Forest, most: usize) {
        let mut new: Vec<Part<N>> = parts.to_vec();
        for one in &mut self.watched {
            let path = one.path.as_ref();
            let who = path.map_or(Some(Who::Kernel), |path| forest.find(path).map(Who::Cgroup));
            let part = who.and_then(|who| parts.binary_search_by_key(&who, |(who, _)| *who).ok());
            one.now_ns = part.map_or([0; N], |at| std::mem::replace(&mut new[at].1, [0; N]));
            one.is_there = who.is_some_and(|who| who.is_there(forest));
            sum::add(&mut one.so_far_ns, sum::total(one.now_ns));
        }
        let can_be_named = |who: &Who| match who {
            Who::Kernel => true,
            Who::Cgroup(at) => forest.nodes[*at].path.len() <= LONGEST_PATH,
            Who::Unnamed => false,
        };
        new.retain(|(who, ns)| *ns != [0; N] && can_be_named(who));
        let limit = most.saturating_mul(WATCHED);
        let worst = |a: &Part<N>, b: &Part<N>| sum::total(b.1).cmp(&sum::total(a.1)).then(a.0.cmp(&b.0));
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
            so_far_ns: sum::total(ns),
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
        let is_next = |one: &Watched<N>| one.series.is_none() && one.is_there && one.so_far_ns != 0;
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
            self.watched[worst].series = Some(CulpritSeries { ns: [0; N], created_unix_ns: start_unix_ns });
        }
    }
}

fn add<const N: usize>(sums: &mut [u64; N], more: &[u64; N]) {
    sums.iter_mut().zip(more).for_each(|(sum, ns)| sum::add(sum, *ns));
}

/// A cgroup that waited or slept, the culprit, and the time, ns. Cgroups are represented by their ids.
type Row<const N: usize> = (u64, u64, [u64; N]);

/// Returns who ran while others waited.
pub(crate) fn ran(interval: &Interval) -> impl Iterator<Item = Row<1>> {
    let ran = interval.pairs.iter().filter(|pair| pair.blame == Blame::Ran);
    ran.map(|pair| (pair.victim, pair.culprit, [pair.ns]))
}

/// What a waker did while tasks slept for it: the values of the label `doing`.
pub(crate) const DOINGS: [&str; 5] = ["ran", "throttled", "waiting", "slept", "unknown"];

/// Returns which tasks woke others, and for how long they did each of [`DOINGS`] before.
pub(crate) fn woke(interval: &Interval) -> impl Iterator<Item = Row<5>> {
    let rows = interval.chains.iter().flatten().filter(|row| row.waker == Waker::Task);
    rows.map(|row| {
        let mut did = [0; 5];
        for (doing, ns) in row.doings() {
            let at = match doing {
                Doing::Ran => 0,
                Doing::Waited(Cause::Throttled) => 1,
                Doing::Waited(_) => 2,
                Doing::Slept => 3,
                Doing::Unknown => 4,
            };
            sum::add(&mut did[at], ns);
        }
        (row.sleeper, row.waker_cgroup, did)
    })
}

/// Returns the parts of each exported cgroup, including its descendants. Parents must precede their children. `above` holds the
/// index of each exported cgroup's nearest exported ancestor.
pub(crate) fn parts<const N: usize>(
    rows: impl Iterator<Item = Row<N>>,
    interval: &Interval,
    forest: &Forest,
    places: &Places,
    above: &[usize],
) -> Vec<Vec<Part<N>>> {
    let mut parts: Vec<Vec<Part<N>>> = vec![Vec::new(); above.len()];
    for (victim, culprit, ns) in rows {
        let victim = places.find(interval, victim).map_or(0, |at| forest.nodes[at].now.home);
        let culprit = match culprit {
            KERNEL => Who::Kernel,
            REST => Who::Unnamed,
            id => places.find(interval, id).map_or(Who::Unnamed, Who::Cgroup),
        };
        parts[victim].push((culprit, ns));
    }
    for at in (0..above.len()).rev() {
        parts[at].sort_unstable();
        parts[at].dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                add(&mut kept.1, &next.1);
            }
            is_same
        });
        if at != 0 {
            let below = parts[at].clone();
            parts[above[at]].extend(below);
        }
    }
    parts
}
