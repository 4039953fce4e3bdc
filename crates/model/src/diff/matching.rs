//! Cgroups are matched by path; ids of containers, pods and sessions are others each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{DiffSubject, blocks::SubjectBlocks, side::Recorded};
use crate::cgroup_name::without_ids;

/// Gives cgroups that differ in nothing but ids the same name, where both sides have such and neither has that of the other. Several of
/// one side become one; their limits are kept where they are the same.
pub(super) fn align(before: &mut Recorded, after: &mut Recorded) {
    let (mut names, mut others) = (names(before, after), names(after, before));
    let [forms, other_forms] =
        [&names, &others].map(|names| names.values().cloned().collect::<BTreeSet<Arc<str>>>());
    names.retain(|_, form| other_forms.contains(form));
    others.retain(|_, form| forms.contains(form));
    for (side, names) in [(before, names), (after, others)] {
        if !names.is_empty() {
            rename(side, names);
        }
    }
}

/// The form without ids of each path with ids that `other` does not have.
fn names(one: &Recorded, other: &Recorded) -> BTreeMap<Arc<str>, Arc<str>> {
    let alone = one.rows.keys().filter(|subject| !other.rows.contains_key(subject));
    let paths =
        alone.filter_map(|subject| if let DiffSubject::Cgroup(path) = subject { Some(path) } else { None });
    paths.map(|path| (path.clone(), without_ids(path).into())).filter(|(path, form)| path != form).collect()
}

fn rename(side: &mut Recorded, names: BTreeMap<Arc<str>, Arc<str>>) {
    let name = |path: Arc<str>| names.get(&path).cloned().unwrap_or(path);
    let mut renamed: BTreeMap<DiffSubject, SubjectBlocks> = BTreeMap::new();
    for (subject, rows) in std::mem::take(&mut side.rows) {
        let subject = match subject {
            DiffSubject::Cgroup(path) => DiffSubject::Cgroup(name(path)),
            DiffSubject::Behind { victim, culprit } => {
                DiffSubject::Behind { victim: name(victim), culprit: culprit.map(name) }
            }
            other => other,
        };
        renamed.entry(subject).or_default().merge(rows);
    }
    side.rows = renamed;
    let mut limits = BTreeMap::new();
    for (path, one) in std::mem::take(&mut side.limits) {
        let all = limits.entry(name(path)).or_insert_with(|| one.clone());
        if *all != one {
            *all = None;
        }
    }
    side.limits = limits;
    side.changed_limits = std::mem::take(&mut side.changed_limits).into_iter().map(name).collect();
    side.names = names;
}
