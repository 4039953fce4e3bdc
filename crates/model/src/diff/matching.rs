//! Who is who on both sides: by path and by name, as ids of tasks and cgroups are others each time.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use super::{
    Subject,
    blocks::Rows,
    recorded::{Limits, Recorded, same_settings},
};
use crate::cgroup_name::without_ids;

/// Gives cgroups that differ in nothing but ids (of containers, pods, sessions) the same name, where both sides have such and
/// neither has that of the other. Several of one side become one; their limits are kept where they are the same.
pub(super) fn align(before: &mut Recorded, after: &mut Recorded) {
    let forms = |one: &Recorded, other: &Recorded| -> BTreeMap<Arc<str>, Arc<str>> {
        let alone = one.present.difference(&other.present).filter_map(|subject| match subject {
            Subject::Cgroup(path) => Some((path.clone(), Arc::from(without_ids(path)))),
            _ => None,
        });
        alone.filter(|(path, form)| path != form).collect()
    };
    let (mut of_before, mut of_after) = (forms(before, after), forms(after, before));
    let both: BTreeSet<Arc<str>> = of_before
        .values()
        .collect::<BTreeSet<_>>()
        .intersection(&of_after.values().collect())
        .map(|form| (*form).clone())
        .collect();
    for (side, forms) in [(before, &mut of_before), (after, &mut of_after)] {
        forms.retain(|_, form| both.contains(form));
        if !forms.is_empty() {
            rename(side, forms);
        }
    }
}

fn rename(side: &mut Recorded, forms: &BTreeMap<Arc<str>, Arc<str>>) {
    let name = |path: &Arc<str>| forms.get(path).unwrap_or(path).clone();
    let renamed = |subject: Subject| match subject {
        Subject::Cgroup(path) => Subject::Cgroup(name(&path)),
        Subject::Behind { victim, culprit } => {
            Subject::Behind { victim: name(&victim), culprit: culprit.as_ref().map(name) }
        }
        other => other,
    };
    let mut rows: BTreeMap<Subject, Rows> = BTreeMap::new();
    for (subject, of) in std::mem::take(&mut side.rows) {
        rows.entry(renamed(subject)).and_modify(|rows| rows.merge(&of)).or_insert(of);
    }
    side.rows = rows;
    side.present = std::mem::take(&mut side.present).into_iter().map(renamed).collect();
    side.limits = renamed_limits(std::mem::take(&mut side.limits), name);
    side.changed_limits = side.changed_limits.iter().map(name).collect();
    side.names = forms.clone();
}

/// The limits by the new names; `None` where several came together that are not the same.
fn renamed_limits(limits: Limits, name: impl Fn(&Arc<str>) -> Arc<str>) -> Limits {
    let mut renamed = Limits::new();
    for (path, limits) in limits {
        match renamed.entry(name(&path)) {
            Entry::Vacant(new) => drop(new.insert(limits)),
            Entry::Occupied(mut others) => {
                let is_same =
                    others.get().as_ref().zip(limits.as_ref()).is_some_and(|(a, b)| same_settings(a, b));
                if !is_same {
                    others.insert(None);
                }
            }
        }
    }
    renamed
}
