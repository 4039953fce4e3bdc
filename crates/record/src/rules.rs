//! What holds for every Sample. The model relies on it, so a file is not believed, and what breaks it is not written.

use cgscope_model::{PairReading, Sample};

/// The rule that `sample` breaks, in words.
pub(crate) fn broken(sample: &Sample) -> Option<&'static str> {
    let hists = sample.tasks.iter().map(|task| &task.hist).chain(sample.exited.iter().map(|e| &e.hist));
    let mut hists = hists.chain(sample.cpus.iter().filter_map(|cpu| Some(&cpu.waits.as_ref()?.hist)));
    let is_odd = !hists.all(|hist| hist.is_valid());
    out_of_order(sample)
        .or_else(|| is_odd.then_some("a histogram in it has buckets that do not exist, or out of order"))
}

/// The same, but for what the cells of a file cannot say.
pub(crate) fn out_of_order(sample: &Sample) -> Option<&'static str> {
    if !ascending(sample.tasks.iter().map(|task| task.serial)) {
        Some("its tasks are not in the order of their serials")
    } else if !ascending(sample.exited.iter().map(|exited| exited.cgroup_id)) {
        Some("its exited tasks are not in the order of their cgroups")
    } else if !ascending(sample.pairs.iter().map(PairReading::key)) {
        Some("its pairs of victim and culprit are not in the order of their ids")
    } else if !ascending(sample.limits.iter().map(|limits| limits.id)) {
        Some("its limits are not in the order of their cgroups")
    } else if !ascending(sample.cgroups.iter().map(|(id, _)| *id)) {
        Some("its cgroups are not in the order of their ids")
    } else if !ascending(sample.cpus.iter().map(|cpu| cpu.cpu)) {
        Some("its CPUs are not in the order of their numbers")
    } else if !ascending(sample.nodes.iter().map(|node| node.node)) {
        Some("its nodes are not in the order of their numbers")
    } else if !ascending(sample.memory.iter().map(|memory| memory.tgid)) {
        Some("the memory of its processes is not in the order of their ids")
    } else {
        None
    }
}

fn ascending<K: PartialOrd + Copy>(keys: impl Iterator<Item = K>) -> bool {
    keys.is_sorted_by(|a, b| a < b)
}
