//! A tree of cgroups, prepared to be replayed under many limits and settings.

use std::collections::VecDeque;

use crate::{
    Error, Limit, Outcome, Profile, Slot, Tree,
    engine::Engine,
    pool::{Counters, NONE_NS, Pool, cpus_of},
};

/// How many times a replay of [`Replay::run_within`] may end.
const PARTS: u32 = 64;

/// A tree of cgroups whose demand is prepared. One is enough for any number of limits, loops and phases.
#[derive(Clone, Debug)]
pub struct Replay {
    pub(crate) parents: Vec<Option<usize>>,
    pub(crate) threads: Vec<Option<f64>>,
    pub(crate) demands: Vec<Demand>,
    /// The only cgroup with demand, and those above it, from below; empty: several have demand.
    pub(crate) chain: Vec<usize>,
    pub(crate) capacity: Vec<f64>,
    pub(crate) slot_ns: f64,
    /// Length of the longest profile, ns.
    length_ns: u64,
}

/// [`Replay::chain`].
fn chain(parents: &[Option<usize>], demands: &[Demand]) -> Vec<usize> {
    let mut busy = (0..demands.len()).filter(|at| demands.len() == 1 || demands[*at].has_work());
    let (first, None) = (busy.next(), busy.next()) else { return Vec::new() };
    std::iter::successors(first, |at| parents[*at]).collect()
}

impl Replay {
    /// Prepares a tree.
    ///
    /// # Errors
    /// If [`Tree`] is not as it describes itself.
    pub fn new(tree: &Tree) -> Result<Self, Error> {
        tree.check()?;
        let cpus = tree.capacity.iter().copied().fold(0.0, f64::max);
        let nodes = &tree.nodes;
        let parents: Vec<Option<usize>> = nodes.iter().map(|node| node.parent).collect();
        let mut demands: Vec<Demand> =
            nodes.iter().map(|node| Demand::new(&node.profile, node.threads, cpus)).collect();
        if nodes.len() > 1 {
            // In the closed loop, nobody waits for a cgroup without tasks.
            demands.iter_mut().filter(|demand| !demand.has_work()).for_each(|demand| demand.closed.clear());
        }
        Ok(Self {
            chain: chain(&parents, &demands),
            parents,
            threads: nodes.iter().map(|node| node.threads.map(f64::from)).collect(),
            demands,
            capacity: tree.capacity.clone(),
            slot_ns: nodes[0].profile.slot_ns as f64,
            length_ns: nodes.iter().map(|node| node.profile.length_ns()).max().unwrap_or(0),
        })
    }

    /// The same with at most this number of threads in the cgroup at `at`: see [`Node::threads`](crate::Node::threads). There were no less
    /// before.
    #[must_use]
    pub fn with_threads(&self, at: usize, threads: u32) -> Self {
        let fewer = |(place, demand): (usize, &Demand)| {
            if place == at { demand.with_threads(threads) } else { demand.clone() }
        };
        let mut all_threads = self.threads.clone();
        all_threads[at] = Some(f64::from(threads));
        Self {
            parents: self.parents.clone(),
            threads: all_threads,
            demands: self.demands.iter().enumerate().map(fewer).collect(),
            chain: self.chain.clone(),
            capacity: self.capacity.clone(),
            ..*self
        }
    }

    /// Length of the longest profile, ns.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Replays the tree under these limits, one for each cgroup. Returns an outcome for each cgroup.
    ///
    /// # Errors
    /// If the number of limits is wrong, or a quota or period is too short.
    pub fn run(&self, limits: &[Option<Limit>], setting: &Setting) -> Result<Vec<Outcome>, Error> {
        Ok(self.run_while(limits, setting, |_| true)?.unwrap_or_default())
    }

    /// Replays the tree as [`Self::run`] does, but only while it is possible that at most this share (0 to 1) of the periods of the cgroup at
    /// `at` is throttled. `None`: more are.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn run_within(
        &self,
        limits: &[Option<Limit>],
        setting: &Setting,
        at: usize,
        share: f64,
    ) -> Result<Option<Outcome>, Error> {
        let times = if setting.replay == Loop::Closed { setting.longest.max(1) } else { 1 };
        let period_ns = limits.get(at).copied().flatten().map_or(u64::MAX, |limit| limit.period_ns.max(1));
        let end_ns = self.length_ns as f64 * f64::from(times);
        let may_do = |engine: &Engine| {
            engine.pools[at].as_ref().is_none_or(|pool| {
                // The timer may stop, but does not fire more often.
                let left = (end_ns - engine.now_ns).max(0.0) / period_ns as f64 + 1.0;
                pool.counters.throttled_periods as f64 <= share * (pool.counters.periods as f64 + left)
            })
        };
        let outcomes = self.run_while(limits, setting, may_do)?;
        Ok(outcomes.map(|mut all| all.swap_remove(at)).filter(|outcome| outcome.throttled_share() <= share))
    }

    /// `goes_on`: called [`PARTS`] times during the first length of the profile; false ends the replay, which then has no outcome.
    fn run_while(
        &self,
        limits: &[Option<Limit>],
        setting: &Setting,
        goes_on: impl Fn(&Engine) -> bool,
    ) -> Result<Option<Vec<Outcome>>, Error> {
        if limits.len() != self.parents.len() {
            return Err(Error::Limits);
        }
        let is_wrong = |limit: &Option<Limit>| {
            limit.is_some_and(|limit| limit.quota_ns.min(limit.period_ns) < Limit::LEAST_NS)
        };
        if let Some(node) = limits.iter().position(is_wrong) {
            return Err(Error::Limit(node));
        }
        let mut engine = Engine::new(self, limits, setting);
        let (length_ns, is_closed) = (self.length_ns as f64, setting.replay == Loop::Closed);
        let longest_ns = length_ns * f64::from(setting.longest.max(1));
        for part in 1..=PARTS {
            engine.run(length_ns * f64::from(part) / f64::from(PARTS), is_closed);
            if !goes_on(&engine) {
                return Ok(None);
            }
        }
        if is_closed {
            engine.run(longest_ns, true);
            return Ok(Some(self.outcomes(&engine, &engine, limits)));
        }
        let counted = engine.clone();
        let skipped_ns = engine.skip_periods(limits, longest_ns);
        engine.run(longest_ns - skipped_ns, true);
        for flow in engine.flows.iter_mut().filter(|_| skipped_ns > 0.0) {
            flow.done_ns += skipped_ns;
        }
        Ok(Some(self.outcomes(&counted, &engine, limits)))
    }

    /// The figures of all cgroups. `counted`: the simulation at the end of the duration; `ended`: when all work was done.
    fn outcomes(&self, counted: &Engine, ended: &Engine, limits: &[Option<Limit>]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = (0..limits.len()).map(|at| self.own(counted, ended, at)).collect();
        for at in (0..limits.len()).rev() {
            if let Some(limit) = &limits[at] {
                outcomes[at].unused_quota_ns = Some(outcomes[at].unused_of(limit));
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
        let no_pool = Counters::default();
        let counters = counted.pools[at].as_ref().map_or(no_pool, |pool| pool.counters(counted.now_ns));
        let (flow, last) = (&counted.flows[at], &ended.flows[at]);
        let is_done = if counted.is_open { last.backlog_ns <= NONE_NS } else { last.finished_ns.is_some() };
        let state = &counted.states[at];
        Outcome {
            duration_ns: flow.finished_ns.unwrap_or(counted.now_ns).round() as u64,
            periods: counters.periods,
            throttled_periods: counters.throttled_periods,
            throttled_ns: counters.throttled_ns.round() as u64,
            limited_ns: counters.limited_ns.round() as u64,
            stalled_ns: state.stalled_ns.round() as u64,
            ran_ns: state.ran_ns.round() as u64,
            unused_quota_ns: None,
            done_ns: is_done.then_some(last.done_ns.round() as u64),
            backlog_ns: flow.backlog_ns.round() as u64,
            stalls: counters.stalls,
            is_free: ended.pools[at].as_ref().is_none_or(Pool::is_free),
        }
    }
}

/// When work arrives if earlier work is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loop {
    /// Work arrives when it did: requests from outside. Late work waits in a backlog.
    Open,
    /// A cgroup does its work in order, and everything after a hindrance moves later by its length: a batch job.
    Closed,
}

/// The conditions of one replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// When work arrives.
    pub replay: Loop,
    /// Time of the first refill of the first cgroup after the start, ns, modulo its period. The kernel's grid of periods begins at a random time, so any
    /// value is as likely.
    pub phase_ns: u64,
    /// The grid of each further cgroup of the tree begins later by this time, ns. Nested limits depend on it: quota that a cgroup gets
    /// while the one above it is throttled is left for the next period of that one.
    pub spread_ns: u64,
    /// A CPU notices at multiples of this time that its runtime is used up, ns: the tick of the kernel, 4 ms at `HZ=250`. 0: at once, which is also
    /// the fastest to replay.
    pub tick_ns: u64,
    /// Runtime that a CPU takes from the pool at a time, ns: the sysctl `kernel.sched_cfs_bandwidth_slice_us`.
    pub slice_ns: u64,
    /// The replay ends after this multiple of the profile's length, even if work is left.
    pub longest: u32,
}

impl Setting {
    /// The kernel's default slice, 5 ms (`sysctl_sched_cfs_bandwidth_slice`, Linux 6.1 to 7.2).
    pub const SLICE_NS: u64 = 5_000_000;

    /// The kernel's defaults, without the delay of the tick.
    pub fn new(replay: Loop, phase_ns: u64) -> Self {
        Self { replay, phase_ns, spread_ns: 0, tick_ns: 0, slice_ns: Self::SLICE_NS, longest: 16 }
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
