//! A tree of cgroups, prepared to be replayed under many limits.

use crate::{
    Error, Limit, Loop, Outcome, Setting, Tree,
    demand::Demand,
    engine::Engine,
    pool::{Counters, NONE_NS, Pool},
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
