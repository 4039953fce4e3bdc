//! What holds it back: quotas, whose tasks ran meanwhile, pressure.

use std::sync::Arc;

use cgscope_model::{
    Blame, CgroupReading, PairReading,
    units::{self, duration, percent},
};
use ratatui::text::{Line, Span};

use super::{LABEL, TaskView, who::on_nodes};
use crate::{
    causes,
    draw::pane,
    subject::Subject,
    width::{cut_start, left, right},
};

/// So many are named: those who ran meanwhile, and whose quota ran out.
const NAMED: usize = 4;
/// Cells of a time, and of a share.
const TIME: usize = 6;
const SHARE: usize = 6;

impl<'a> TaskView<'a> {
    /// The quotas of its cgroup and of those above it.
    pub(super) fn quotas(&self) -> Vec<Line<'static>> {
        let Some((at, _)) = self.node() else { return Vec::new() };
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
            lines.extend(self.fact("quota", &format!("{}: {words}{throttled}", above.path)));
        }
        // A limit that was not read may be there.
        let all_read = chain().all(|at| at == 0 || tree.limits(self.interval, at).is_some());
        if lines.is_empty() && all_read && at != 0 {
            lines.extend(self.fact("quota", "none, neither of its cgroup nor above"));
        }
        let named = self.throttled_by();
        lines.extend(self.ranked(
            "throttled",
            "by the quota of",
            named.into_iter().map(|(path, ns)| (path.into(), ns)),
        ));
        lines
    }

    /// Names with their times and shares, the worst first, a line each; nothing for nobody.
    fn ranked(
        &self,
        label: &'static str,
        words: &str,
        all: impl Iterator<Item = (String, u64)> + Clone,
    ) -> Vec<Line<'static>> {
        let total = all.clone().fold(0u64, |sum, (_, ns)| sum.saturating_add(ns));
        let count = all.clone().count();
        let mut lines = Vec::new();
        let one = |(name, ns): (String, u64)| {
            let share = format!("({:.0}%)", percent(ns, total).unwrap_or(0.0));
            let figures = format!("{} {} ", right(&duration(ns), TIME), right(&share, SHARE));
            let room = self.cells.saturating_sub(LABEL + TIME + SHARE + 2);
            format!("{figures}{}", cut_start(&name, room))
        };
        if self.own_cgroup().is_some() && count != 0 {
            // Who had them wait is known of their cgroup alone.
            lines.push(format!("all tasks of its cgroup, {words}"));
        }
        lines.extend(all.take(NAMED).map(one));
        if count > NAMED {
            lines.push(format!("{} more", count - NAMED));
        }
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        let line = |(label, text)| {
            Line::from(vec![Span::styled(left(label, LABEL), self.app.theme.quiet()), Span::raw(text)])
        };
        labels.zip(lines).map(line).collect()
    }

    /// Whose quotas had run out, the worst first, ns.
    fn throttled_by(&self) -> Vec<(&str, u64)> {
        let path = |path: Option<&'a Arc<str>>| path.map_or(causes::UNNAMED, |path| path);
        match (self.own_cgroup(), self.node()) {
            (Some(id), _) => {
                let pairs = self.pairs(id, Blame::Limited);
                pairs
                    .into_iter()
                    .map(|pair| (path(self.interval.cgroup_path(pair.culprit)), pair.ns))
                    .collect()
            }
            (None, Some((_, node))) => {
                let named = |by: Option<usize>| path(by.map(|by| &self.data.tree.nodes()[by].path));
                node.throttled_by.iter().map(|(by, ns)| (named(*by), *ns)).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Who ran while it waited.
    pub(super) fn behind(&self) -> Vec<Line<'static>> {
        let culprits = match self.own_cgroup() {
            Some(id) => {
                self.pairs(id, Blame::Ran).into_iter().map(|pair| self.interval.culprit(pair)).collect()
            }
            None => self.subject.culprits(self.interval),
        };
        let named = culprits.iter().map(|culprit| (causes::culprit(culprit), culprit.ns));
        self.ranked("behind", "behind", named)
    }

    /// The id of its cgroup, of a thread or process: who had them wait is known of their cgroup alone.
    fn own_cgroup(&self) -> Option<u64> {
        self.subject.task().map(|task| task.reading.cgroup_id)
    }

    /// Who had the tasks directly in a cgroup wait, the worst first.
    fn pairs(&self, victim: u64, blame: Blame) -> Vec<&'a PairReading> {
        let pairs = self.interval.pairs.iter();
        let mut pairs: Vec<_> = pairs.filter(|pair| pair.victim == victim && pair.blame == blame).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.ns));
        pairs
    }

    /// Weight, CPUs, pressure, burst and memory of a cgroup.
    pub(super) fn own_limits(&self) -> Vec<Line<'static>> {
        let Some(limits) = self.subject.limits(self.interval) else { return Vec::new() };
        let burst = limits.burst_us.filter(|us| *us != 0).map(|us| burst(limits, us));
        let facts = [
            ("weight", limits.weight.map(|weight| format!("{weight} among its siblings, by default 100"))),
            ("cpuset", limits.cpuset.as_ref().map(|cpus| format!("CPUs {cpus}"))),
            ("pressure", self.pressure(limits)),
            ("burst", burst),
            ("memory", Some(on_nodes(&limits.memory_by_node)).filter(|words| !words.is_empty())),
        ];
        let known = facts.into_iter().filter_map(|(label, words)| Some((label, words?)));
        known.flat_map(|(label, words)| self.fact(label, &words)).collect()
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
    let may = format!("may save up {}", duration(burst_us.saturating_mul(1_000)));
    match limits.nr_bursts.zip(limits.burst_ns) {
        Some((count, ns)) => {
            format!("{may}, used {} above the quota in {}", duration(ns), units::count(count, "period"))
        }
        None => may,
    }
}
