//! The quotas that apply to each node.

use super::{Effective, Tree};
use crate::Interval;

impl Tree {
    pub(super) fn add_limits(&mut self, interval: &Interval) {
        for (at, limits) in interval.limits.iter().enumerate() {
            let Some(node) = self.find_id(interval, limits.id) else { continue };
            // If the cgroup was created again, the later limits apply. But the tightest quota may be that of either cgroup.
            self.nodes[node].limits = Some(at);
            let quota = limits.quota_cores().map(|cores| Effective { node, cores });
            self.nodes[node].effective = tightest(self.nodes[node].effective, quota);
        }
        for at in 1..self.nodes.len() {
            let above = self.nodes[at].parent.and_then(|parent| self.nodes[parent].effective);
            self.nodes[at].effective = tightest(above, self.nodes[at].effective);
        }
    }
}

/// The tighter of two quotas; if equal, the ancestor's.
fn tightest(above: Option<Effective>, own: Option<Effective>) -> Option<Effective> {
    above.into_iter().chain(own).min_by(|a, b| a.cores.total_cmp(&b.cores))
}
