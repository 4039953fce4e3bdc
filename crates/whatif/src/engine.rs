//! The simulation: from one event to the next.
//!
//! Times are `f64` ns: rates are fractions of a CPU, and at an hour a time is still exact to less than a thousandth of a ns. Slots
//! and refills are whole numbers, which an `f64` holds exactly.

mod alone;

use crate::{
    Limit, Loop, Setting,
    pool::{NONE_NS, Pool, cpus_of},
    replay::Replay,
    replay::{ClosedStep, OpenStep},
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
    /// Some task wants to run.
    wants: bool,
    pub ran_ns: f64,
    pub stalled_ns: f64,
}

/// A simulation under way.
#[derive(Clone, Debug)]
pub(crate) struct Engine<'a> {
    replay: &'a Replay,
    pub is_open: bool,
    pub now_ns: f64,
    /// Index of the next slot.
    slot: usize,
    slot_end_ns: f64,
    capacity: f64,
    pub pools: Vec<Option<Pool>>,
    pub states: Vec<State>,
    pub flows: Vec<Flow>,
    unfinished: usize,
}

impl<'a> Engine<'a> {
    pub fn new(replay: &'a Replay, limits: &[Option<Limit>], setting: &Setting) -> Self {
        let count = replay.demands.len();
        let pools = limits.iter().enumerate();
        let pools = pools.map(|(at, limit)| limit.as_ref().map(|limit| Pool::new(limit, setting, at)));
        let mut this = Self {
            replay,
            is_open: setting.replay == Loop::Open,
            now_ns: 0.0,
            slot: 0,
            slot_end_ns: 0.0,
            capacity: replay.capacity[0],
            pools: pools.collect(),
            states: vec![State::default(); count],
            flows: vec![Flow::default(); count],
            unfinished: count,
        };
        if !this.is_open {
            (0..count).for_each(|at| this.begin_step(at));
        }
        this
    }

    /// Runs until this time, or until all work is done.
    pub fn run(&mut self, end_ns: f64, until_done: bool) {
        while self.now_ns < end_ns && !(until_done && self.is_done()) {
            let start_ns = self.now_ns;
            self.run_alone(end_ns);
            if self.now_ns > start_ns {
                continue;
            }
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            let next_ns = self.calm_end_ns(end_ns);
            if self.is_calm(next_ns - self.now_ns) {
                self.run_calm(next_ns);
            } else {
                self.run_to_event(end_ns);
            }
            for pool in self.pools.iter_mut().flatten() {
                pool.fire(self.now_ns);
            }
        }
    }

    fn is_done(&self) -> bool {
        if self.is_open {
            self.flows.iter().all(|flow| flow.backlog_ns <= NONE_NS)
        } else {
            self.unfinished == 0
        }
    }

    /// Reads the slot of this time: the capacity, and in the open loop the demand.
    fn begin_slot(&mut self) {
        let (replay, slot_ns) = (self.replay, self.replay.slot_ns);
        self.capacity = replay.capacity[self.slot.min(replay.capacity.len() - 1)];
        self.slot_end_ns += slot_ns;
        self.slot += 1;
        if !self.is_open {
            if self.slot >= replay.capacity.len() {
                self.slot_end_ns = f64::INFINITY;
            }
            return;
        }
        // Others have no demand if one is alone.
        let flows = match replay.chain.first() {
            Some(own) => *own..own + 1,
            None => 0..self.flows.len(),
        };
        for at in flows {
            let (flow, demand) = (&mut self.flows[at], &replay.demands[at]);
            let before = flow.open.parallel;
            flow.open = demand.open.get(self.slot - 1).copied().unwrap_or_default();
            flow.is_behind = flow.backlog_ns > NONE_NS;
            if flow.is_behind {
                flow.open.parallel = flow.open.parallel.max(before);
            }
        }
    }

    /// Closed loop: begins the step at the flow's index.
    fn begin_step(&mut self, at: usize) {
        let flow = &mut self.flows[at];
        match self.replay.demands[at].closed.get(flow.step) {
            Some(step) => flow.left = *step,
            None => {
                flow.left = ClosedStep::default();
                flow.finished_ns = Some(self.now_ns);
                self.unfinished -= 1;
            }
        }
    }

    /// Computes what each cgroup wants, and returns the end of the time in which that stays so if nothing hinders it.
    #[inline(always)]
    fn calm_end_ns(&mut self, end_ns: f64) -> f64 {
        let mut next_ns = end_ns.min(self.slot_end_ns);
        for pool in self.pools.iter().flatten() {
            next_ns = next_ns.min(pool.refill_ns).min(pool.slack_ns);
        }
        for (at, flow) in self.flows.iter_mut().enumerate() {
            if self.is_open {
                flow.wanted = flow.wanted_rate(self.replay.threads[at]);
            } else {
                flow.wanted = flow.left.rate;
                next_ns = next_ns.min(flow.end_ns(self.now_ns, flow.wanted));
            }
            self.states[at].rate = flow.wanted.min(self.capacity);
        }
        next_ns
    }

    /// True if everything that is wanted runs for this length of time.
    #[inline(always)]
    fn is_calm(&mut self, length_ns: f64) -> bool {
        let mut roots = 0.0;
        for at in (0..self.states.len()).rev() {
            let (rate, flow) = (self.states[at].rate, &self.flows[at]);
            if flow.backlog_ns > NONE_NS || flow.wanted > self.capacity || rate > self.capacity {
                return false;
            }
            if let Some(pool) = &self.pools[at]
                && !pool.suffices(rate * length_ns, cpus_of(rate), self.now_ns, length_ns)
            {
                return false;
            }
            match self.replay.parents[at] {
                Some(parent) => self.states[parent].rate += rate,
                None => roots += rate,
            }
        }
        roots <= self.capacity
    }

    /// Runs everything that is wanted until this time.
    #[inline(always)]
    fn run_calm(&mut self, next_ns: f64) {
        let length_ns = next_ns - self.now_ns;
        for (at, state) in self.states.iter_mut().enumerate() {
            state.ran_ns += state.rate * length_ns;
            if let Some(pool) = &mut self.pools[at] {
                pool.run_calm(state.rate, cpus_of(state.rate), self.now_ns, length_ns);
            }
        }
        self.now_ns = next_ns;
        for at in 0..self.flows.len() {
            let rate = self.flows[at].wanted;
            self.advance(at, rate, length_ns);
        }
    }

    /// Moves one cgroup's own demand on. `rate`: the rate at which it was served.
    #[inline(always)]
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

    /// Spreads what is wanted over CPUs, from the lowest cgroups up, and computes what runs, from the highest ones down.
    fn settle(&mut self) {
        for (state, flow) in self.states.iter_mut().zip(&self.flows) {
            state.rate = flow.wanted.min(self.capacity);
            state.wants = flow.wanted > 0.0;
        }
        let mut roots = 0.0;
        for at in (0..self.states.len()).rev() {
            let rate = self.states[at].rate;
            let mut passed = rate.min(self.capacity);
            if let Some(pool) = &mut self.pools[at] {
                passed = pool.demand(passed, self.now_ns);
            }
            self.states[at].passed = if rate > 0.0 { passed / rate } else { 1.0 };
            match self.replay.parents[at] {
                Some(parent) => {
                    self.states[parent].rate += passed;
                    self.states[parent].wants |= self.states[at].wants;
                }
                None => roots += passed,
            }
        }
        self.serve(if roots > self.capacity { self.capacity / roots } else { 1.0 });
    }

    /// Computes what runs, from the highest cgroups down. `top`: the part of the demanded rate for which there are CPUs.
    fn serve(&mut self, top: f64) {
        for at in 0..self.states.len() {
            let above =
                self.replay.parents[at].map(|parent| self.states[parent].above * self.states[parent].passed);
            let wanted = self.flows[at].wanted.min(self.capacity);
            let state = &mut self.states[at];
            state.above = above.unwrap_or(top);
            state.own = wanted * state.above * state.passed;
            state.served = state.own;
        }
        for at in (0..self.states.len()).rev() {
            if let Some(parent) = self.replay.parents[at] {
                self.states[parent].served += self.states[at].served;
            }
        }
    }

    /// Runs to the next event.
    fn run_to_event(&mut self, end_ns: f64) {
        self.settle();
        let mut next_ns = end_ns.min(self.slot_end_ns);
        for pool in self.pools.iter().flatten() {
            next_ns = next_ns.min(pool.refill_ns).min(pool.slack_ns);
        }
        for (flow, state) in self.flows.iter().zip(&self.states) {
            let event_ns = if self.is_open {
                flow.backlog_event_ns(self.now_ns, state.own)
            } else {
                flow.end_ns(self.now_ns, state.own)
            };
            next_ns = next_ns.min(event_ns);
        }
        for (pool, state) in self.pools.iter_mut().zip(&self.states) {
            if let Some(pool) = pool {
                next_ns = next_ns.min(pool.empty_ns(self.now_ns, next_ns, state.above));
            }
        }
        self.pass(next_ns);
    }

    /// Lets time pass until `next_ns`, in which no rate changes.
    fn pass(&mut self, next_ns: f64) {
        let length_ns = next_ns - self.now_ns;
        self.now_ns = next_ns;
        for at in 0..self.states.len() {
            let state = &mut self.states[at];
            state.ran_ns += state.served * length_ns;
            if state.wants && state.served == 0.0 {
                state.stalled_ns += length_ns;
            }
            let (own, above) = (state.own, state.above);
            if let Some(pool) = &mut self.pools[at] {
                pool.consume(length_ns, above);
            }
            self.advance(at, own, length_ns);
        }
    }
}

impl Flow {
    /// Open loop: the wanted rate, CPUs. `most`: tasks that can run at the same time.
    #[inline(always)]
    fn wanted_rate(&mut self, most: Option<f64>) -> f64 {
        self.raised = if self.is_behind { self.open.parallel.max(self.open.firm) } else { self.open.firm };
        // Late work and busy loops are the same tasks.
        let wanted = self.raised.max(self.open.firm + self.open.presumed);
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// Closed loop: the end of the step if it is served at this rate.
    #[inline(always)]
    fn end_ns(&self, now_ns: f64, rate: f64) -> f64 {
        if self.finished_ns.is_some() {
            f64::INFINITY
        } else if self.left.rate == 0.0 {
            now_ns + self.left.amount_ns
        } else if rate > 0.0 {
            now_ns + self.left.amount_ns / rate
        } else {
            f64::INFINITY
        }
    }

    /// Open loop: the time at which late work is done or begins to raise the demand.
    fn backlog_event_ns(&self, now_ns: f64, rate: f64) -> f64 {
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
