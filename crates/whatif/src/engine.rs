//! The simulation: from one event to the next.
//!
//! Times are `f64` ns: rates are fractions of a CPU, and at an hour a time is still exact to less than a thousandth of a ns. Slots
//! and refills are whole numbers, which an `f64` holds exactly.

use crate::{
    Limit, Loop, Setting,
    pool::{NONE_NS, Pool},
    replay::{ClosedStep, OpenStep, Replay},
};

/// Late work raises the demand from this amount on, ns of CPU time, and at the start of each slot. Without it, a demand that is only
/// met while it is raised would change without end.
const UNNOTICED_NS: f64 = 250_000.0;

/// The state of one cgroup's own demand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Wanted rate, CPUs.
    wanted: f64,
    /// Open loop: the slot.
    open: OpenStep,
    /// Open loop: the part of the wanted rate that is firm or late.
    raised: f64,
    /// Open loop: late work, ns.
    pub backlog_ns: f64,
    /// Open loop: late work raises the demand.
    is_behind: bool,
    /// Closed loop: the index of the step.
    step: usize,
    /// Closed loop: what is left of the step.
    left: ClosedStep,
    /// Time at which the latest work was done.
    pub done_ns: f64,
    /// Closed loop: time at which the profile was used up.
    pub finished_ns: Option<f64>,
}

/// The state of one cgroup.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The demanded rate, with that of the cgroups below, CPUs.
    rate: f64,
    /// The part of the rate that its own limit lets pass.
    passed: f64,
    /// The part of the rate that the limits above and the capacity let pass.
    above: f64,
    /// The rate at which its own tasks run.
    own: f64,
    /// The rate at which its own tasks and those below run.
    served: f64,
    pub ran_ns: f64,
}

/// A simulation under way.
#[derive(Clone, Debug)]
pub(crate) struct Engine<'a> {
    replay: &'a Replay,
    pub is_open: bool,
    pub now_ns: f64,
    /// Open loop: the index of the next slot.
    slot: usize,
    slot_end_ns: f64,
    pub pools: Vec<Option<Pool>>,
    pub states: Vec<State>,
    pub flows: Vec<Flow>,
    unfinished: usize,
}

impl<'a> Engine<'a> {
    pub fn new(replay: &'a Replay, limits: &[Option<Limit>], setting: &Setting) -> Self {
        let (count, is_open) = (replay.steps.len(), setting.replay == Loop::Open);
        let pools = limits.iter().enumerate();
        let pools = pools.map(|(at, limit)| limit.as_ref().map(|limit| Pool::new(limit, setting, at)));
        let mut this = Self {
            replay,
            is_open,
            now_ns: 0.0,
            slot: 0,
            slot_end_ns: if is_open { 0.0 } else { f64::INFINITY },
            pools: pools.collect(),
            states: vec![State::default(); count],
            flows: vec![Flow::default(); count],
            unfinished: count,
        };
        if !is_open {
            (0..count).for_each(|at| this.begin_step(at));
        }
        this
    }

    /// Runs until this time, or until all work is done.
    pub fn run(&mut self, end_ns: f64, until_done: bool) {
        while self.now_ns < end_ns && !(until_done && self.is_done()) {
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            self.settle();
            let (start_ns, next_ns) = (self.now_ns, self.next_ns(end_ns));
            self.pass(next_ns);
            self.consume(self.now_ns - start_ns);
        }
    }

    fn is_done(&self) -> bool {
        if self.is_open {
            self.flows.iter().all(|flow| flow.backlog_ns <= NONE_NS)
        } else {
            self.unfinished == 0
        }
    }

    /// Open loop: reads the slot of this time. The last one has no work and no end.
    fn begin_slot(&mut self) {
        for (flow, steps) in self.flows.iter_mut().zip(&self.replay.steps) {
            let before = flow.open.parallel;
            flow.open = steps.open.get(self.slot).copied().unwrap_or_default();
            flow.is_behind = flow.backlog_ns > NONE_NS;
            if flow.is_behind {
                flow.open.parallel = flow.open.parallel.max(before);
            }
        }
        self.slot += 1;
        let is_last = self.slot > self.replay.slots;
        self.slot_end_ns = if is_last { f64::INFINITY } else { self.slot as f64 * self.replay.slot_ns };
    }

    /// Closed loop: begins the step at the flow's index.
    fn begin_step(&mut self, at: usize) {
        let flow = &mut self.flows[at];
        match self.replay.steps[at].closed.get(flow.step) {
            Some(step) => flow.left = *step,
            None => {
                flow.left = ClosedStep::default();
                flow.finished_ns = Some(self.now_ns);
                self.unfinished -= 1;
            }
        }
    }

    /// Spreads what is wanted over CPUs, from the lowest cgroups up, and computes what runs, from the highest ones down.
    fn settle(&mut self) {
        let (replay, capacity) = (self.replay, self.replay.capacity);
        for ((state, flow), steps) in self.states.iter_mut().zip(&mut self.flows).zip(&replay.steps) {
            flow.wanted = flow.wanted_rate(self.is_open, steps.most);
            state.rate = flow.wanted.min(capacity);
        }
        let mut roots = 0.0;
        for at in (0..self.states.len()).rev() {
            let rate = self.states[at].rate;
            let mut passed = rate.min(capacity);
            if let Some(pool) = &mut self.pools[at] {
                passed = pool.demand(passed, self.now_ns);
            }
            self.states[at].passed = if rate > 0.0 { passed / rate } else { 1.0 };
            match replay.parents[at] {
                Some(parent) => self.states[parent].rate += passed,
                None => roots += passed,
            }
        }
        let top = if roots > capacity { capacity / roots } else { 1.0 };
        for at in 0..self.states.len() {
            let above = replay.parents[at].map(|parent| self.states[parent].above * self.states[parent].passed);
            let state = &mut self.states[at];
            state.above = above.unwrap_or(top);
            state.own = self.flows[at].wanted.min(capacity) * state.above * state.passed;
            state.served = state.own;
        }
        for at in (0..self.states.len()).rev() {
            if let Some(parent) = replay.parents[at] {
                self.states[parent].served += self.states[at].served;
            }
        }
    }

    /// The next event of a pool, but at most `end_ns`.
    fn next_ns(&mut self, end_ns: f64) -> f64 {
        let timers = self.pools.iter().flatten().map(|pool| pool.refill_ns.min(pool.slack_ns));
        let mut next_ns = timers.fold(end_ns, f64::min);
        for (pool, state) in self.pools.iter_mut().zip(&self.states) {
            if let Some(pool) = pool {
                next_ns = next_ns.min(pool.empty_ns(self.now_ns, next_ns, state.above));
            }
        }
        next_ns
    }

    /// Moves the demand on until `next_ns`, or until a wanted rate changes.
    fn pass(&mut self, next_ns: f64) {
        loop {
            let mut until_ns = next_ns.min(self.slot_end_ns);
            for (flow, state) in self.flows.iter().zip(&self.states) {
                until_ns = until_ns.min(flow.event_ns(self.is_open, self.now_ns, state.own));
            }
            let length_ns = until_ns - self.now_ns;
            self.now_ns = until_ns;
            (0..self.flows.len()).for_each(|at| self.advance(at, self.states[at].own, length_ns));
            if until_ns >= next_ns || until_ns < self.slot_end_ns {
                return;
            }
            self.begin_slot();
            let mut flows = self.flows.iter_mut().zip(&self.replay.steps);
            if flows.any(|(flow, steps)| flow.wanted_rate(true, steps.most) != flow.wanted) {
                return;
            }
        }
    }

    /// Moves one cgroup's own demand on. `rate`: the rate at which it was served.
    fn advance(&mut self, at: usize, rate: f64, length_ns: f64) {
        let flow = &mut self.flows[at];
        if self.is_open {
            let served = rate.min(flow.raised);
            if served > 0.0 {
                flow.done_ns = self.now_ns;
            }
            flow.backlog_ns += (flow.open.firm - served) * length_ns;
            if flow.backlog_ns <= NONE_NS {
                (flow.backlog_ns, flow.is_behind) = (flow.backlog_ns.max(0.0), false);
            } else if flow.backlog_ns >= UNNOTICED_NS - NONE_NS {
                flow.is_behind = true;
            }
            return;
        }
        if flow.finished_ns.is_some() {
            return;
        }
        let is_work = flow.left.rate > 0.0;
        flow.left.amount_ns -= if is_work { rate * length_ns } else { length_ns };
        if flow.left.amount_ns <= NONE_NS {
            if is_work {
                flow.done_ns = self.now_ns;
            }
            flow.step += 1;
            self.begin_step(at);
        }
    }

    /// Uses runtime for a time in which no rate changed, and fires timers.
    fn consume(&mut self, length_ns: f64) {
        for (state, pool) in self.states.iter_mut().zip(&mut self.pools) {
            state.ran_ns += state.served * length_ns;
            if let Some(pool) = pool {
                pool.consume(length_ns, state.above);
                pool.fire(self.now_ns);
            }
        }
    }
}

impl Flow {
    /// The wanted rate, CPUs. `most`: tasks that can run at the same time.
    fn wanted_rate(&mut self, is_open: bool, most: f64) -> f64 {
        if !is_open {
            return self.left.rate;
        }
        self.raised = if self.is_behind { self.open.parallel.max(self.open.firm) } else { self.open.firm };
        // Late work and busy loops are the same tasks.
        self.raised.max(self.open.firm + self.open.presumed).min(most)
    }

    /// The time at which a step is done if it is served at this rate; in the open loop, that at which late work is done or begins to raise
    /// the demand.
    fn event_ns(&self, is_open: bool, now_ns: f64, rate: f64) -> f64 {
        if !is_open {
            let speed = if self.left.rate == 0.0 { 1.0 } else { rate };
            let never = self.finished_ns.is_some() || speed <= 0.0;
            return if never { f64::INFINITY } else { now_ns + self.left.amount_ns / speed };
        }
        let growth = self.open.firm - rate.min(self.raised);
        if self.is_behind && growth < 0.0 {
            now_ns + self.backlog_ns / -growth
        } else if !self.is_behind && growth > 0.0 {
            now_ns + (UNNOTICED_NS - self.backlog_ns).max(0.0) / growth
        } else {
            f64::INFINITY
        }
    }
}
