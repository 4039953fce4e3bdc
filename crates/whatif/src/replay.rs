//! A tree of cgroups, prepared to be replayed under many limits and settings.

use std::collections::VecDeque;

use serde::Serialize;

use crate::{
    Outcome,
    engine::Engine,
    pool::{Pool, cpus_of},
};

/// The demand of one cgroup's own tasks in one slot of time. All four are ns of CPU or task time, summed over tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    pub ran_ns: u64,
    /// Time in which tasks were runnable but did not run: throttled, or waiting for a CPU.
    pub waited_ns: u64,
    /// CPU work at the time at which it would have run without any hindrance: a burst that was woken at `w` and used `c` ns of CPU
    /// demands one CPU over `[w, w + c)`. Over all slots it is the same sum as `ran_ns`.
    pub firm_ns: u64,
    /// Extra demand of tasks that never sleep. They would have used this time, but it need not be made up for later. Only the open
    /// loop uses it.
    pub presumed_ns: u64,
}

/// The demand of one cgroup's own tasks over time, without cgroups below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Length of a slot, ns of wall time; typically 2^24.
    pub slot_ns: u64,
    /// The slots, in order and without gaps.
    pub slots: Vec<Slot>,
}

impl Profile {
    pub fn length_ns(&self) -> u64 {
        self.slot_ns * self.slots.len() as u64
    }
}

/// A limit as `cpu.max` and `cpu.max.burst` set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// CPU time per period, ns; at least [`Limit::LEAST_NS`].
    pub quota_ns: u64,
    /// Length of a period, ns of wall time; at least [`Limit::LEAST_NS`].
    pub period_ns: u64,
    /// Unused quota that may be saved for later periods, ns.
    pub burst_ns: u64,
}

impl Limit {
    /// The kernel accepts no quota or period below 1 ms (`min_cfs_quota_period`).
    pub const LEAST_NS: u64 = 1_000_000;

    /// No kernel allows longer quotas, periods and bursts: `max_cfs_runtime`, which is 2^44 us (`kernel/sched/core.c`, Linux 5.14).
    pub const MOST_US: u64 = 1 << 44;

    pub fn cpus(&self) -> f64 {
        self.quota_ns as f64 / self.period_ns as f64
    }
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The index of the cgroup above it in [`Tree::nodes`], which is lower than its own; `None`: no recorded cgroup is above it.
    pub parent: Option<usize>,
    /// The limit in force when the profile was recorded.
    pub limit: Option<Limit>,
    /// How many of its own tasks can run at the same time at most.
    pub threads: Option<u32>,
    pub profile: Profile,
}

/// The cgroups that share limits and CPUs. Cgroups that share neither are better replayed in trees of their own: the time that a replay
/// takes grows with the number of events times the number of cgroups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// The cgroups, at least one; parents come before their children. Their profiles have the same length of slots.
    pub nodes: Vec<Node>,
    /// CPUs that the whole tree can use, above 0: those of the host or the cpuset.
    pub capacity: f64,
}

/// A tree of cgroups whose demand is prepared. One is enough for any number of limits, loops and phases.
#[derive(Clone, Debug)]
pub struct Replay {
    pub(crate) parents: Vec<Option<usize>>,
    pub(crate) steps: Vec<Steps>,
    pub(crate) capacity: f64,
    pub(crate) slot_ns: f64,
    /// Number of slots of the longest profile.
    pub(crate) slots: usize,
}

impl Replay {
    pub fn new(tree: &Tree) -> Self {
        let nodes = &tree.nodes;
        let mut steps: Vec<Steps> =
            nodes.iter().map(|node| Steps::new(&node.profile, node.threads, tree.capacity)).collect();
        if nodes.len() > 1 {
            // In the closed loop, nobody waits for a cgroup without tasks.
            steps.iter_mut().filter(|steps| !steps.has_work()).for_each(|steps| steps.closed.clear());
        }
        Self {
            parents: nodes.iter().map(|node| node.parent).collect(),
            steps,
            capacity: tree.capacity,
            slot_ns: nodes[0].profile.slot_ns as f64,
            slots: nodes.iter().map(|node| node.profile.slots.len()).max().unwrap_or(0),
        }
    }

    /// Replays the tree under these limits, one for each cgroup. Returns an outcome for each cgroup; `None` if a quota or
    /// period is too short for the kernel.
    pub fn run(&self, limits: &[Option<Limit>], setting: &Setting) -> Option<Vec<Outcome>> {
        let is_allowed = |limit: &Limit| limit.quota_ns.min(limit.period_ns) >= Limit::LEAST_NS;
        if !limits.iter().flatten().all(is_allowed) {
            return None;
        }
        let mut engine = Engine::new(self, limits, setting);
        let length_ns = self.slot_ns * self.slots as f64;
        let longest_ns = length_ns * f64::from(setting.longest.max(1));
        if setting.replay == Loop::Closed {
            engine.run(longest_ns, true);
            return Some(self.outcomes(&engine, &engine, limits));
        }
        engine.run(length_ns, false);
        let counted = engine.clone();
        engine.run(longest_ns, true);
        Some(self.outcomes(&counted, &engine, limits))
    }

    /// The figures of all cgroups. `counted`: the simulation at the end of the duration; `ended`: when all work was done.
    fn outcomes(&self, counted: &Engine, ended: &Engine, limits: &[Option<Limit>]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = (0..limits.len()).map(|at| self.own(counted, ended, at)).collect();
        for at in (0..limits.len()).rev() {
            if let Some(limit) = &limits[at] {
                let allowed_ns = limit.cpus() * outcomes[at].duration_ns as f64;
                let unused_ns = (allowed_ns - outcomes[at].ran_ns as f64).max(0.0);
                outcomes[at].unused_quota_ns = Some(unused_ns as u64);
            }
            if let Some(parent) = self.parents[at] {
                let (above, below) = outcomes.split_at_mut(at);
                let (parent, child) = (&mut above[parent], &below[0]);
                parent.duration_ns = parent.duration_ns.max(child.duration_ns);
                parent.backlog_ns += child.backlog_ns;
                parent.done_ns = parent.done_ns.zip(child.done_ns).map(|(a, b)| a.max(b));
            }
        }
        outcomes
    }

    /// The figures of a cgroup; backlog, duration and end of work without the cgroups below it.
    fn own(&self, counted: &Engine, ended: &Engine, at: usize) -> Outcome {
        let (cgroup, last, no_pool) = (&counted.cgroups[at], &ended.cgroups[at], Pool::default());
        let pool = cgroup.pool.as_ref().unwrap_or(&no_pool);
        let stalls = pool.stalls(counted.now_ns);
        Outcome {
            duration_ns: cgroup.finished_ns.unwrap_or(counted.now_ns).round() as u64,
            periods: pool.periods,
            throttled_periods: pool.throttled_periods,
            throttled_ns: stalls.total_ns.round() as u64,
            limited_ns: pool.limited_ns.round() as u64,
            ran_ns: cgroup.ran_ns.round() as u64,
            unused_quota_ns: None,
            done_ns: last.is_done(counted.is_open).then_some(last.done_ns.round() as u64),
            backlog_ns: cgroup.backlog_ns.round() as u64,
            stalls,
        }
    }
}

/// When work arrives if earlier work is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// Work arrives when it did: requests from outside. Late work waits in a backlog.
    Open,
    /// A cgroup does its work in order, and everything after a hindrance moves later by its length: a batch job.
    Closed,
}

impl Loop {
    pub const BOTH: [Self; 2] = [Self::Open, Self::Closed];
}

/// The conditions of one replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub replay: Loop,
    /// Time of the first refill of the first cgroup after the start, ns, modulo its period. The kernel's grid of periods begins at a random time, so any
    /// value is as likely.
    pub phase_ns: u64,
    /// The grid of each further cgroup of the tree begins later by this time, ns. Nested limits depend on it: quota that a cgroup gets
    /// while the one above it is throttled is left for the next period of that one.
    pub spread_ns: u64,
    /// Runtime that a CPU takes from the pool at a time, ns: the sysctl `kernel.sched_cfs_bandwidth_slice_us`.
    pub slice_ns: u64,
    /// The replay ends after this multiple of the profile's length, even if work is left.
    pub longest: u32,
}

impl Setting {
    /// The kernel's default slice, 5 ms (`sysctl_sched_cfs_bandwidth_slice`, Linux 6.1 to 7.2).
    pub const SLICE_NS: u64 = 5_000_000;

    /// The kernel's defaults. A CPU notices at once that its runtime is used up, and not only at the next tick of the kernel.
    pub fn new(replay: Loop, phase_ns: u64) -> Self {
        Self { replay, phase_ns, spread_ns: 0, slice_ns: Self::SLICE_NS, longest: 16 }
    }

    /// Time of the first refill of a cgroup after the start, ns, below its period.
    pub fn phase_of(&self, node: usize, period_ns: u64) -> u64 {
        let later_ns = u128::from(self.spread_ns) * node as u128;
        ((u128::from(self.phase_ns) + later_ns) % u128::from(period_ns.max(1))) as u64
    }
}

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
pub(crate) struct Steps {
    /// Tasks that can run at the same time.
    pub most: f64,
    pub open: Vec<OpenStep>,
    pub closed: Vec<ClosedStep>,
}

impl Steps {
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
        Self { most, open: open.collect(), closed: joined(closed) }
    }

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
