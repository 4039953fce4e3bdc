//! The demand of a profile, prepared for many replays.

use std::collections::VecDeque;

use crate::{Profile, Slot, pool::cpus_of};

/// Late work may use as many CPUs as its cgroup used in this time before, ns.
const RECENT_NS: u64 = 1_000_000_000;

/// A slot in the open loop. Rates are CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenStep {
    /// Rate at which firm work arrives.
    pub firm: f64,
    /// Rate of what is dropped if it is not served.
    pub presumed: f64,
    /// CPUs that late work may use if no work was late before. While work is late, the number does not fall.
    pub parallel: f64,
}

/// A part of the profile in the closed loop, in which the rate is constant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClosedStep {
    /// Wanted rate, CPUs; 0: nobody wants to run.
    pub rate: f64,
    /// ns of work if the rate is above 0, else ns of time.
    pub amount_ns: f64,
}

/// The demand of one cgroup's own tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    pub open: Vec<OpenStep>,
    pub closed: Vec<ClosedStep>,
}

impl Demand {
    /// Prepares a profile. `threads`: as in [`Node`](crate::Node); `cpus`: the most that the tree ever has.
    pub fn new(profile: &Profile, threads: Option<u32>, cpus: f64) -> Self {
        let slot_ns = profile.slot_ns as f64;
        let parallel = parallel(profile);
        let most = threads.map_or(f64::INFINITY, f64::from);
        let open = profile.slots.iter().zip(parallel).map(|(slot, parallel)| OpenStep {
            firm: slot.firm_ns as f64 / slot_ns,
            presumed: slot.presumed_ns as f64 / slot_ns,
            parallel: (parallel as f64).min(most).min(cpus),
        });
        let closed = profile.slots.iter().filter_map(|slot| closed_step(slot, slot_ns, most));
        Self { open: open.collect(), closed: joined(closed) }
    }

    /// The same with at most this number of threads, which is not more than before.
    pub fn with_threads(&self, threads: u32) -> Self {
        let most = f64::from(threads);
        let open = self.open.iter().map(|step| OpenStep { parallel: step.parallel.min(most), ..*step });
        let closed = self.closed.iter().map(|step| ClosedStep { rate: step.rate.min(most), ..*step });
        Self { open: open.collect(), closed: joined(closed) }
    }

    /// Some task ever wants to run.
    pub fn has_work(&self) -> bool {
        self.open.iter().any(|step| step.firm > 0.0 || step.presumed > 0.0)
            || self.closed.iter().any(|step| step.rate > 0.0)
    }
}

/// Each step takes time to simulate: steps of one rate are one step.
fn joined(steps: impl Iterator<Item = ClosedStep>) -> Vec<ClosedStep> {
    let mut joined: Vec<ClosedStep> = Vec::new();
    for step in steps {
        match joined.last_mut() {
            Some(last) if last.rate == step.rate => last.amount_ns += step.amount_ns,
            _ => joined.push(step),
        }
    }
    joined
}

/// A slot in the closed loop; `None` if all its time was spent waiting.
fn closed_step(slot: &Slot, slot_ns: f64, most: f64) -> Option<ClosedStep> {
    let (ran_ns, waited_ns) = (slot.ran_ns as f64, slot.waited_ns as f64);
    if ran_ns + waited_ns >= slot_ns {
        let rate = (ran_ns + waited_ns) / slot_ns;
        return (ran_ns > 0.0).then_some(ClosedStep { rate: rate.min(most), amount_ns: ran_ns });
    }
    // Tasks ran, waited and slept in turn. Only the waits end.
    let time_ns = slot_ns - waited_ns;
    let is_idle = ran_ns == 0.0;
    Some(ClosedStep { rate: (ran_ns / time_ns).min(most), amount_ns: if is_idle { time_ns } else { ran_ns } })
}

/// The most CPUs that firm work used in the last second, for each slot; at least 1.
fn parallel(profile: &Profile) -> Vec<usize> {
    let window = RECENT_NS.div_ceil(profile.slot_ns.max(1)) as usize;
    // Slots that may be the largest of a window to come: each one is larger than all later ones.
    let mut largest: VecDeque<(usize, usize)> = VecDeque::new();
    let mut found = Vec::with_capacity(profile.slots.len());
    for (at, slot) in profile.slots.iter().enumerate() {
        let cpus = cpus_of(slot.firm_ns as f64 / profile.slot_ns as f64).max(1) as usize;
        while largest.back().is_some_and(|(_, before)| *before <= cpus) {
            largest.pop_back();
        }
        largest.push_back((at, cpus));
        if largest.front().is_some_and(|(first, _)| first + window <= at) {
            largest.pop_front();
        }
        found.push(largest.front().map_or(1, |(_, cpus)| *cpus));
    }
    found
}
