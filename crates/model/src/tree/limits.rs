//! The quotas that hold for each node.

use super::{Effective, Tree};
use crate::Interval;

impl Tree {
    pub(super) fn add_limits(&mut self, interval: &Interval) {
        for (at, limits) in interval.limits.iter().enumerate() {
            let Some(node) = self.find_id(interval, limits.id) else { continue };
            // Of a cgroup that was made again the later limits hold, but either quota may have been the tightest.
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

/// Of the same, the one above.
fn tightest(above: Option<Effective>, own: Option<Effective>) -> Option<Effective> {
    above.into_iter().chain(own).min_by(|a, b| a.cores.total_cmp(&b.cores))
}
