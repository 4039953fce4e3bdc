//! The cost of cgscope itself.

use serde::Serialize;

use crate::Cost;

/// The cost of cgscope itself over an interval. `None`: could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostInterval {
    /// Time in the hook over all CPUs, ns.
    pub hook_ns: Option<u64>,
    /// Runs of the hook.
    pub hook_runs: Option<u64>,
    /// CPU time of this process, ns.
    pub cpu_ns: Option<u64>,
    /// Resident memory of this process at the end, bytes.
    pub rss_bytes: Option<u64>,
}

impl CostInterval {
    pub(super) fn between(a: &Cost, b: &Cost) -> Self {
        let since = |b: Option<u64>, a: Option<u64>| b?.checked_sub(a?);
        let hook_runs = since(b.switches, a.switches);
        let hook_ns = hook_runs.zip(b.hook_ns_per_run).map(|(runs, ns)| (runs as f64 * ns) as u64);
        Self { hook_runs, hook_ns, cpu_ns: since(b.cpu_ns, a.cpu_ns), rss_bytes: b.rss_bytes }
    }

    pub(super) fn append(&mut self, next: &Self) {
        // Before the first measurement of the hook's time, only its number of runs is known. These runs count with the first
        // measured time per run.
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        self.hook_ns = match (self.hook_ns, self.hook_runs, next.hook_ns, next.hook_runs) {
            (None, Some(before), Some(ns), Some(runs)) if runs != 0 => {
                Some(ns.saturating_add((before as f64 * ns as f64 / runs as f64) as u64))
            }
            (ours, _, theirs, _) => sum(ours, theirs),
        };
        self.hook_runs = sum(self.hook_runs, next.hook_runs);
        self.cpu_ns = sum(self.cpu_ns, next.cpu_ns);
        self.rss_bytes = next.rss_bytes;
    }
}
