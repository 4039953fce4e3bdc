//! Counts waits by the CPU on which they end, if requested: on hosts with several NUMA nodes, or for figures per CPU.
//!
//! The functions are not inlined, so that the hook stays small on hosts that do not need them.

use cgscope_layout::{cause::WHOLE, verifier::opaque};

use crate::{ledger, maps::cpu_counters};

#[inline(never)]
pub fn count(cpu: u32, bucket: u64, ns: u64) {
    let Some(counters) = cpu_counters(cpu) else { return };
    if let Some(count) = counters.histogram.counts.get_mut(opaque(bucket as usize)) {
        *count = count.wrapping_add(1);
    }
    if ns > counters.max_ns {
        counters.max_ns = ns;
    }
}

/// Adds a wait that has a single cause.
#[inline(never)]
pub fn enter(cpu: u32, bucket: u64, cause: u64, ns: u64) {
    let Some(counters) = cpu_counters(cpu) else { return };
    ledger::add(&mut counters.by_cause, cause, ns);
    ledger::count(&mut counters.histogram, bucket, cause, u64::from(WHOLE));
}
