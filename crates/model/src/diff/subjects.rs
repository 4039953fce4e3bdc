//! Who is compared: the most active of each kind.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Presence, Subject,
    blocks::{Measure, Rows},
    series::{Both, Frame},
};
use crate::selection::is_at_or_below;

/// A subject that ran and waited for less than this share of wall time on both sides is left out.
const LEAST_ACTIVITY: f64 = 0.001;
/// Subjects of each kind that are compared: those that waited and ran most.
const MOST_SUBJECTS: usize = 60;

/// Everything that did anything on either side.
pub(super) fn subjects<'a>(frame: &Frame<'a>) -> Vec<Both<'a>> {
    let all: BTreeSet<&Subject> = frame.sides.iter().flat_map(|side| side.rows.keys()).collect();
    let both = all.into_iter().map(|subject| {
        let rows = frame.sides.map(|side| side.rows.get(subject));
        Both {
            subject: subject.clone(),
            rows,
            sums: rows.map(|rows| rows.map(Rows::sum).unwrap_or_default()),
        }
    });
    both.collect()
}

/// Share of wall time that it waited and ran, on the side where that is more.
fn activity(frame: &Frame, both: &Both) -> f64 {
    let measures = [Measure::Wait, Measure::OnCpu, Measure::Behind];
    let [before, after] =
        [0, 1].map(|side| measures.iter().map(|measure| frame.share(both, *measure, side)).sum::<f64>());
    before.max(after)
}

/// Those worth comparing: the most active of each kind. A cgroup that has nothing but another one below it is left out, but for
/// its limits.
pub(super) fn chosen<'s, 'a>(frame: &Frame, subjects: &'s [Both<'a>]) -> Vec<(&'s Both<'a>, bool)> {
    let mut alike: HashMap<[u64; 6], Vec<&str>> = HashMap::new();
    let key = |both: &Both| {
        let measures = [Measure::Wait, Measure::OnCpu, Measure::Waits];
        std::array::from_fn(|i| both.sums[i / 3].get(measures[i % 3]))
    };
    for both in subjects {
        if let Subject::Cgroup(path) = &both.subject {
            alike.entry(key(both)).or_default().push(path);
        }
    }
    let mut chosen: Vec<(f64, usize)> = Vec::new();
    for (at, both) in subjects.iter().enumerate() {
        if both.subject == Subject::Cgroup("/".into()) {
            continue;
        }
        let activity = activity(frame, both);
        let always = matches!(both.subject, Subject::All | Subject::Own);
        if always || activity >= LEAST_ACTIVITY {
            chosen.push((activity, at));
        }
    }
    chosen.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut counts = HashMap::new();
    chosen.retain(|(_, at)| {
        let count = counts.entry(std::mem::discriminant(&subjects[*at].subject)).or_insert(0);
        *count += 1;
        *count <= MOST_SUBJECTS
    });
    let is_shadow = |both: &Both| {
        let Subject::Cgroup(path) = &both.subject else { return false };
        let is_below = |other: &&str| *other != &**path && is_at_or_below(other, path);
        alike.get(&key(both)).is_some_and(|paths| paths.iter().any(is_below))
    };
    chosen.into_iter().map(|(_, at)| (&subjects[at], is_shadow(&subjects[at]))).collect()
}

pub(super) fn presence(frame: &Frame, subject: &Subject) -> Presence {
    let can_be_alone = matches!(subject, Subject::Cgroup(_) | Subject::Program(_));
    match frame.sides.map(|side| side.rows.contains_key(subject)) {
        [true, false] if can_be_alone => Presence::OnlyBefore,
        [false, true] if can_be_alone => Presence::OnlyAfter,
        _ => Presence::Both,
    }
}

pub(super) fn alone(frame: &Frame, chosen: &[(&Both, bool)]) -> BTreeMap<Subject, Presence> {
    let subjects = chosen.iter().map(|(both, _)| (both.subject.clone(), presence(frame, &both.subject)));
    subjects.filter(|(_, presence)| *presence != Presence::Both).collect()
}
