//! Tests that the tree of an interval agrees with the interval's own figures for each cgroup.

use std::{collections::BTreeSet, sync::Arc};

use crate::any::{nothing_before, sample};
use cgscope_made_up::host;
use cgscope_model::{
    Group, Interval, Sample, TaskInterval, Tree, pairs,
    path::{is_at_or_below, path_and_ancestors},
    placement::sum_by_node,
};
use proptest::{collection::vec, prelude::*};

/// Generates paths with few different names, so that many paths are nested. Some paths appear twice, and some do not begin at the
/// root.
fn paths() -> impl Strategy<Value = Vec<Arc<str>>> {
    vec(prop_oneof![8 => "(/[ab-]){0,4}", 1 => "[a/]{0,3}"].prop_map(Arc::from), 0..7)
}

fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    let named = (sample(), paths())
        .prop_map(|(sample, paths)| Sample { cgroups: (0..).zip(paths).collect(), ..sample });
    vec(named, 2).prop_map(|samples| {
        let mut whole = Interval::between(&nothing_before(&samples[0]), &samples[0]);
        let next = Interval::between(&samples[0], &samples[1]);
        let intervals = vec![whole.clone(), next.clone()];
        whole.append(next);
        [intervals, vec![whole]].concat()
    })
}

/// Returns the sum over the tasks and exited tasks of the chosen cgroups, added one by one.
fn group(interval: &Interval, is_in: impl Fn(u64) -> bool) -> Option<Group> {
    let tasks: Vec<&TaskInterval> =
        interval.tasks.iter().filter(|task| is_in(task.reading.cgroup_id)).collect();
    let mut group = Group { threads: tasks.len() as u64, ..Group::default() };
    let processes: BTreeSet<u32> = tasks.iter().map(|task| task.reading.tgid).collect();
    group.processes = processes.len() as u64;
    for task in &tasks {
        group.totals.add(&task.totals);
        group.wait.add(&task.wait);
        if let Some(pending) = &task.reading.pending {
            group.pending += 1;
            group.pending_max_ns = group.pending_max_ns.max(pending.ns);
            group.pending_by_cause.add(&pending.by_cause);
        }
    }
    let mut is_any = !tasks.is_empty();
    for exited in interval.exited.iter().filter(|exited| is_in(exited.cgroup_id)) {
        is_any = true;
        group.totals.add(&exited.totals);
        group.wait.add(&exited.wait);
        group.exited = group.exited.saturating_add(exited.tasks);
    }
    is_any.then_some(group)
}

fn below<'a>(interval: &'a Interval, root: &str) -> impl Fn(u64) -> bool + 'a {
    let root = root.to_owned();
    move |id| interval.cgroup_path(id).is_some_and(|path| is_at_or_below(path, &root))
}

/// Returns the tightest quota of a cgroup and its ancestors, in CPUs.
fn tightest(interval: &Interval, path: &str) -> Option<(Arc<str>, f64)> {
    let quotas = interval.limits.iter().filter_map(|limits| {
        let at = interval.cgroup_path(limits.id).filter(|at| is_at_or_below(path, at))?;
        Some((at.clone(), limits.quota_cores()?))
    });
    // If two quotas are equal, the ancestor's counts. Path length does not identify the ancestor: "" and "a" are below "/".
    let depth = |path: &str| path_and_ancestors(path).count();
    quotas.min_by(|a, b| a.1.total_cmp(&b.1).then_with(|| depth(&a.0).cmp(&depth(&b.0))))
}

fn agree(interval: &Interval) -> Result<(), TestCaseError> {
    let tree = Tree::new(interval);
    prop_assert_eq!(&tree.unknown, &group(interval, |id| interval.cgroup_path(id).is_none()));
    prop_assert_eq!(interval.total(), group(interval, |_| true).unwrap_or_default());
    let name = |node: usize| tree.nodes()[node].path.clone();
    for (at, node) in tree.nodes().iter().enumerate() {
        let path = &*node.path;
        let known = group(interval, below(interval, path));
        prop_assert_eq!(node.has_tasks, known.is_some());
        let ids = interval.cgroups.iter().filter(|(_, at)| &**at == path);
        prop_assert_eq!(node.id, ids.map(|(id, _)| *id).next_back());
        prop_assert_eq!(&node.group, &known.unwrap_or_default(), "{}", path);
        prop_assert_eq!(tree.limits(interval, at), interval.limits_at(path));
        let effective = node.effective.map(|limit| (name(limit.node), limit.cores));
        prop_assert_eq!(effective, tightest(interval, path));
        let ran_out = interval.limits_of(path).into_iter().find_map(|(limit, _)| limit);
        let limited_by = ran_out.or_else(|| tightest(interval, path).map(|(at, _)| at));
        prop_assert_eq!(node.limited_by.map(name), limited_by);
        let throttled_by: Vec<_> = node.throttled_by.iter().map(|(at, ns)| (at.map(name), *ns)).collect();
        prop_assert_eq!(throttled_by, interval.limits_of(path));
        let culprits: Vec<_> = interval.culprits_of(path).into_iter().take(pairs::NAMED).collect();
        prop_assert_eq!(&node.culprits, &culprits);
    }
    Ok(())
}

fn is_in_order(interval: &Interval) -> Result<(), TestCaseError> {
    let tree = Tree::new(interval);
    prop_assert_eq!(tree.total(interval), interval.total());
    for (at, node) in tree.nodes().iter().enumerate() {
        let path = &*node.path;
        prop_assert_eq!(tree.find(path), Some(at));
        let above: Vec<&str> = tree.ancestors(at).map(|above| &*tree.nodes()[above].path).collect();
        prop_assert_eq!(&above, &path_and_ancestors(path).skip(1).collect::<Vec<_>>());
        prop_assert_eq!(node.depth, above.len());
        prop_assert!(node.children.iter().all(|child| tree.nodes()[*child].parent == Some(at)));
        let is_below: Vec<usize> = (0..tree.nodes().len())
            .filter(|other| is_at_or_below(&tree.nodes()[*other].path, path))
            .collect();
        prop_assert_eq!(is_below, tree.below(at).collect::<Vec<_>>());
        let mut tasks = tree.tasks_below(at).to_vec();
        tasks.sort_unstable();
        let is_in = below(interval, path);
        let expected: Vec<usize> =
            (0..interval.tasks.len()).filter(|task| is_in(interval.tasks[*task].reading.cgroup_id)).collect();
        prop_assert_eq!(tasks, expected);
        let mut pairs: Vec<usize> = tree.pairs_below(at).collect();
        pairs.sort_unstable();
        let expected: Vec<usize> =
            (0..interval.pairs.len()).filter(|pair| is_in(interval.pairs[*pair].victim)).collect();
        prop_assert_eq!(pairs, expected);
        let tasks = interval.tasks.iter().filter(|task| is_in(task.reading.cgroup_id));
        prop_assert_eq!(&node.ran, &sum_by_node(tasks.flat_map(TaskInterval::ran_by_node)));
    }
    prop_assert_eq!(tree.find("/a/nobody"), None);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_node_agrees_with_the_interval(intervals in intervals()) {
        intervals.iter().try_for_each(agree)?;
    }

    #[test]
    fn each_node_is_at_the_place_of_its_path(intervals in intervals()) {
        intervals.iter().try_for_each(is_in_order)?;
    }
}

#[test]
fn the_tree_of_a_large_host_is_correct() {
    let interval = Interval::between(&host(600, 120, 1), &host(600, 120, 2));
    agree(&interval).expect("the tree and the interval agree");
    is_in_order(&interval).expect("each node is at the place of its path");
    let tree = Tree::new(&interval);
    let root = &tree.nodes()[0];
    assert_eq!((&*root.path, root.depth, root.parent), ("/", 0, None));
    assert!(root.group == interval.total() && tree.unknown.is_none());
    let named = tree.nodes().iter().filter(|node| node.path.ends_with("/kubepods-burstable.slice")).count();
    assert_eq!(named, 1);
    assert!(tree.nodes().iter().any(|node| !node.throttled_by.is_empty() && !node.culprits.is_empty()));
}

#[test]
fn an_empty_interval_has_an_empty_tree() {
    let tree = Tree::new(&Interval::default());
    assert_eq!((tree.nodes().len(), tree.find("/"), tree.unknown), (0, None, None));
}
