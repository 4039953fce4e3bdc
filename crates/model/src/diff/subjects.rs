//! The subjects that are compared: the most active of each kind.

use std::collections::{BTreeSet, HashMap};

use super::{
    DiffSubject, Presence,
    blocks::{Measure, SubjectBlocks},
    series::{Comparison, SubjectPair},
};
use crate::selection::is_at_or_below;

/// A subject that ran and waited for less than this share of wall time on both sides is left out.
const LEAST_ACTIVITY: f64 = 0.001;
/// Subjects of each kind that are compared: those that waited and ran most.
const MOST_SUBJECTS: usize = 60;

/// Everything that was there on either side.
pub(super) fn subjects<'a>(comparison: &Comparison<'a>) -> Vec<SubjectPair<'a>> {
    let all: BTreeSet<&DiffSubject> = comparison.sides.iter().flat_map(|side| side.rows.keys()).collect();
    let pairs = all.into_iter().map(|subject| {
        let rows = comparison.sides.map(|side| side.rows.get(subject));
        let can_be_alone = matches!(subject, DiffSubject::Cgroup(_) | DiffSubject::Program(_));
        SubjectPair {
            subject: subject.clone(),
            presence: match rows {
                [Some(_), None] if can_be_alone => Presence::OnlyBefore,
                [None, Some(_)] if can_be_alone => Presence::OnlyAfter,
                _ => Presence::Both,
            },
            rows,
            sums: rows.map(|rows| rows.map(SubjectBlocks::sum).unwrap_or_default()),
        }
    });
    pairs.collect()
}

/// Share of wall time that it waited and ran, on the side where that is more.
fn activity(comparison: &Comparison, pair: &SubjectPair) -> f64 {
    let measures = [Measure::Wait, Measure::OnCpu, Measure::Behind];
    let [before, after] =
        [0, 1].map(|side| measures.iter().map(|measure| comparison.share(pair, *measure, side)).sum::<f64>());
    before.max(after)
}

/// The most active subjects of each kind. True with a cgroup that has nothing but another one below it: only what it has by itself
/// is compared.
pub(super) fn chosen<'s, 'a>(
    comparison: &Comparison,
    subjects: &'s [SubjectPair<'a>],
) -> Vec<(&'s SubjectPair<'a>, bool)> {
    let key = |pair: &SubjectPair| {
        [0, 1].map(|side| {
            [Measure::Wait, Measure::OnCpu, Measure::Waits].map(|measure| pair.sums[side].get(measure))
        })
    };
    let mut alike: HashMap<[[u64; 3]; 2], Vec<&str>> = HashMap::new();
    for pair in subjects {
        if let DiffSubject::Cgroup(path) = &pair.subject {
            alike.entry(key(pair)).or_default().push(path);
        }
    }
    let is_chosen = |(activity, pair): &(f64, &SubjectPair)| match &pair.subject {
        DiffSubject::All | DiffSubject::Own => true,
        DiffSubject::Cgroup(path) if &**path == "/" => false,
        _ => *activity >= LEAST_ACTIVITY,
    };
    let mut chosen: Vec<(f64, &SubjectPair)> =
        subjects.iter().map(|pair| (activity(comparison, pair), pair)).filter(is_chosen).collect();
    chosen.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut counts = HashMap::new();
    chosen.retain(|(_, pair)| {
        let count = counts.entry(std::mem::discriminant(&pair.subject)).or_insert(0);
        *count += 1;
        *count <= MOST_SUBJECTS
    });
    let is_shadow = |pair: &SubjectPair| {
        let DiffSubject::Cgroup(path) = &pair.subject else { return false };
        let is_below = |other: &&str| *other != &**path && is_at_or_below(other, path);
        alike.get(&key(pair)).is_some_and(|paths| paths.iter().any(is_below))
    };
    chosen.into_iter().map(|(_, pair)| (pair, is_shadow(pair))).collect()
}
