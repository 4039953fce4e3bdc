//! What limits the subject: quotas, culprits and pressure.

use std::{cmp::Reverse, sync::Arc};

use cgscope_model::{Blame, CgroupReading, PairReading};

use super::{LABEL, TaskView, who::on_nodes};
use crate::{
    draw::prelude::*,
    text::{self, micros},
};

/// Maximum number of culprits or quotas named.
const NAMED: usize = 4;
/// Widths of a time and of a share, in cells.
const TIME: usize = 6;
const SHARE: usize = 6;

impl<'a> TaskView<'a> {
    /// The quotas of the subject's cgroup and its ancestors.
    pub(super) fn quotas(&self) -> Lines {
        let Some((at, node)) = self.node() else { return Vec::new() };
        let tree = &self.data.tree;
        let chain = || std::iter::once(at).chain(tree.ancestors(at));
        let mut lines = Vec::new();
        for at in chain() {
            let Some(limits) = tree.limits(self.interval, at) else { continue };
            let above = &tree.nodes()[at];
            let used_ns = self.data.used_ns(&Subject::Cgroup(above));
            let Some(words) = pane::quota_words(limits, used_ns, self.interval.duration_ns) else { continue };
            let throttled = limits.throttled_ns.filter(|ns| *ns != 0);
            let throttled = throttled.map_or(String::new(), |ns| format!(", throttled {}", duration(ns)));
            lines.extend(
                self.fact("quota", &format!("{}: {words}{throttled}", self.interval.names.of(&above.path))),
            );
        }
        // A limit that was not read may still exist, so "none" is shown only if all of them were read.
        let all_read = chain().all(|at| at == 0 || tree.limits(self.interval, at).is_some());
        if lines.is_empty() && all_read && at != 0 {
            lines.extend(self.fact("quota", "none for its cgroup and ancestors"));
        }
        lines.extend(self.ranked("throttled", "by the quota of", &self.throttled_by(node)));
        lines
    }

    /// Names with their times and shares, one per line, worst first.
    fn ranked(&self, label: &str, words: &str, all: &[(String, u64)]) -> Lines {
        let total = all.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let mut lines = Vec::new();
        if self.own_cgroup().is_some() && !all.is_empty() {
            // The culprits of a thread or process are known only for its whole cgroup.
            lines.push(format!("all tasks of its cgroup, {words}"));
        }
        lines.extend(all.iter().take(NAMED).map(|(name, ns)| {
            let share = format!("({:.0}%)", percent(*ns, total).unwrap_or(0.0));
            let room = self.cells.saturating_sub(LABEL + TIME + SHARE + 2);
            format!("{} {} {}", right(&duration(*ns), TIME), right(&share, SHARE), cut_start(name, room))
        }));
        if all.len() > NAMED {
            lines.push(format!("{} more", all.len() - NAMED));
        }
        pane::hanging(self.label(label), lines, Style::new())
    }

    /// The quotas that ran out, worst first, and the waiting time that each caused, ns.
    fn throttled_by(&self, node: &Node) -> Vec<(String, u64)> {
        let names = &self.interval.names;
        let named = |path: Option<&Arc<str>>, ns| {
            (path.map_or_else(|| UNNAMED.to_owned(), |path| names.of(path).into()), ns)
        };
        if let Some(id) = self.own_cgroup() {
            let pairs = self.pairs(id, Blame::Limited).into_iter();
            return pairs.map(|pair| named(self.interval.cgroup_path(pair.culprit), pair.ns)).collect();
        }
        let nodes = self.data.tree.nodes();
        node.throttled_by.iter().map(|(by, ns)| named(by.map(|by| &nodes[by].path), *ns)).collect()
    }

    pub(super) fn behind(&self) -> Lines {
        let culprits = match self.own_cgroup() {
            Some(id) => {
                self.pairs(id, Blame::Ran).into_iter().map(|pair| self.interval.culprit(pair)).collect()
            }
            None => self.subject.culprits(self.data),
        };
        let named: Vec<_> =
            culprits.iter().map(|culprit| (culprit.words(&self.interval.names), culprit.ns)).collect();
        self.ranked("behind", "behind", &named)
    }

    fn own_cgroup(&self) -> Option<u64> {
        self.subject.task().map(|task| task.reading.cgroup_id)
    }

    /// The culprits of the tasks directly in a cgroup, worst first.
    fn pairs(&self, victim: u64, blame: Blame) -> Vec<&'a PairReading> {
        let pairs = self.interval.pairs.iter();
        let mut pairs: Vec<_> = pairs.filter(|pair| pair.victim == victim && pair.blame == blame).collect();
        pairs.sort_by_key(|pair| Reverse(pair.ns));
        pairs
    }

    /// Weight, CPUs, pressure, burst and memory of a cgroup.
    pub(super) fn own_limits(&self) -> Lines {
        let Some(limits) = self.subject.limits(self.interval) else { return Vec::new() };
        let facts = [
            ("weight", limits.weight.map(|weight| format!("{weight} among its siblings, by default 100"))),
            ("cpuset", limits.cpuset.as_ref().map(|cpus| format!("CPUs {cpus}"))),
            ("contention", self.contention(limits)),
            ("pressure", self.pressure(limits)),
            ("burst", limits.burst_us.filter(|us| *us != 0).map(|us| burst(limits, us))),
            ("memory", Some(on_nodes(&limits.memory_by_node)).filter(|words| !words.is_empty())),
        ];
        facts.into_iter().flat_map(|(label, words)| self.known(label, words)).collect()
    }

    fn contention(&self, limits: &CgroupReading) -> Option<String> {
        text::contention(limits.contention_ns, limits.throttled_pressure_ns, self.interval.duration_ns)
    }

    fn pressure(&self, limits: &CgroupReading) -> Option<String> {
        let share = |ns| percent(ns, self.interval.duration_ns);
        let some = share(limits.pressure_some_ns?)?;
        let full = limits.pressure_full_ns.and_then(share);
        let full = full.map_or(String::new(), |full| format!("; in {full:.1}% some waited and none ran"));
        Some(format!("in {some:.1}% of the interval some task waited for a CPU{full} (cpu.pressure)"))
    }
}

fn burst(limits: &CgroupReading, burst_us: u64) -> String {
    let may = format!("may save {} of unused quota", micros(burst_us));
    let used = limits.nr_bursts.zip(limits.burst_ns).map(|(count, ns)| {
        format!(", used {} above the quota in {}", duration(ns), units::count(count, "period"))
    });
    may + &used.unwrap_or_default()
}
