//! Makes names comparable: ids of containers and numbers of threads differ between runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{DiffSubject, blocks::SubjectBlocks, side::Recorded};
use crate::cgroup_name::without_ids;

/// Gives cgroups that differ only in ids the same name. Only cgroups that exist on one side alone are renamed, and only if the
/// other side has such a cgroup of the same form. Several cgroups of one side with the same form are merged. Their limits are
/// kept if they are equal.
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

/// Maps each path of `one` that has ids and that `other` lacks to the path without ids.
fn names(one: &Recorded, other: &Recorded) -> BTreeMap<Arc<str>, Arc<str>> {
    let alone = one.rows.keys().filter(|subject| !other.rows.contains_key(subject));
    let paths = alone
        .filter_map(|subject| if let DiffSubject::Cgroup { path } = subject { Some(path) } else { None });
    paths.map(|path| (path.clone(), without_ids(path).into())).filter(|(path, form)| path != form).collect()
}

fn rename(side: &mut Recorded, names: BTreeMap<Arc<str>, Arc<str>>) {
    let name = |path: Arc<str>| names.get(&path).cloned().unwrap_or(path);
    let mut renamed: BTreeMap<DiffSubject, SubjectBlocks> = BTreeMap::new();
    for (subject, rows) in std::mem::take(&mut side.rows) {
        let subject = match subject {
            DiffSubject::Cgroup { path } => DiffSubject::Cgroup { path: name(path) },
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

/// The program name for a thread name: `#` replaces each number after a separator. `worker-12` becomes `worker-#`; `python3` and
/// `nginx` stay. All kernel workers are `kworker`.
pub(super) fn program(comm: &str) -> String {
    if comm.starts_with("kworker/") {
        return "kworker".into();
    }
    let mut out = String::with_capacity(comm.len());
    let mut letters = comm.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(letter);
        let is_separator = !letter.is_alphanumeric();
        if is_separator && letters.next_if(char::is_ascii_digit).is_some() {
            while letters.next_if(char::is_ascii_digit).is_some() {}
            out.push('#');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_are_removed_and_versions_stay() {
        for (comm, expected) in [
            ("python3", "python3"),
            ("worker-12", "worker-#"),
            ("kworker/0:1-events", "kworker"),
            ("kworker/u8:2", "kworker"),
            ("ksoftirqd/11", "ksoftirqd/#"),
            ("http-nio-8080-e", "http-nio-#-e"),
            ("CPU 3/KVM", "CPU #/KVM"),
            ("", ""),
            ("é-1", "é-#"),
        ] {
            assert_eq!(program(comm), expected);
        }
    }
}
