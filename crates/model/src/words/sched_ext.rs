//! The advice while a BPF scheduler (sched_ext) is loaded.

use crate::findings::{Finding, Rule};

/// Replaces advice that relies on `cpu.weight` and `cpu.max`: the scheduler may ignore them.
pub(crate) fn advise(finding: &mut Finding, scheduler: &str) {
    match finding.rule {
        Rule::NoisyNeighbour => {
            finding.action = format!("see the options of the BPF scheduler {scheduler}");
            finding.advice = format!(
                "see the options of the BPF scheduler {scheduler}, which may ignore cpu.weight and cpu.max; or give the \
                 cgroups separate CPUs (cpuset.cpus)"
            );
        }
        Rule::CpuOversubscription => {
            finding.advice = format!(
                "run fewer tasks at once on this host, or add CPUs; until then, the BPF scheduler {scheduler} decides who \
                 waits, and it may ignore cpu.weight and cpu.max"
            );
        }
        _ => {}
    }
}
