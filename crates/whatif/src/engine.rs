//! The simulation: from one event to the next.
//!
//! Times are `f64` ns: rates are fractions of a CPU, and at an hour a time is still exact to less than a thousandth of a ns. Slots
//! and refills are whole numbers, which an `f64` holds exactly.

use crate::{
    Limit, Loop, Setting,
    pool::{NONE_NS, Pool, cpus_of},
    replay::{ClosedStep, OpenStep, Replay, Steps},
};

/// Late work raises the demand from this amount on, ns of CPU time, and at the start of each slot. Without it, a demand that is only
/// met while it is raised would change without end.
const UNNOTICED_NS: f64 = 250_000.0;

/// A cgroup, and the state of the demand of its own tasks. Rates are CPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cgroup {
    pub pool: Option<Pool>,
    /// Tasks that can run at the same time.
    most: f64,
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
    /// The demanded rate, with that of the cgroups below.
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
    pub cgroups: Vec<Cgroup>,
}

impl<'a> Engine<'a> {
    pub fn new(replay: &'a Replay, limits: &[Option<Limit>], setting: &Setting) -> Self {
        let is_open = setting.replay == Loop::Open;
        let cgroup = |(at, (steps, limit)): (usize, (&Steps, &Option<Limit>))| {
            let pool = limit.as_ref().map(|limit| Pool::new(limit, setting, at));
            let mut cgroup = Cgroup { pool, most: steps.most, ..Cgroup::default() };
            if !is_open {
                cgroup.begin_step(steps, 0.0);
            }
            cgroup
        };
        let cgroups = replay.steps.iter().zip(limits).enumerate().map(cgroup).collect();
        let slot_end_ns = if is_open { 0.0 } else { f64::INFINITY };
        Self { replay, is_open, now_ns: 0.0, slot: 0, slot_end_ns, cgroups }
    }

    pub fn run(&mut self, end_ns: f64, until_done: bool) {
        while self.now_ns < end_ns
            && !(until_done && self.cgroups.iter().all(|one| one.is_done(self.is_open)))
        {
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            if !self.run_calm(end_ns) {
                self.settle();
                self.run_to_event(end_ns);
            }
            for pool in self.cgroups.iter_mut().filter_map(|cgroup| cgroup.pool.as_mut()) {
                pool.fire(self.now_ns);
            }
        }
    }

    /// Open loop: reads the slot of this time. The last one has no work and no end.
    fn begin_slot(&mut self) {
        for (cgroup, steps) in self.cgroups.iter_mut().zip(&self.replay.steps) {
            let before = cgroup.open.parallel;
            cgroup.open = steps.open.get(self.slot).copied().unwrap_or_default();
            cgroup.is_behind = cgroup.backlog_ns > NONE_NS;
            if cgroup.is_behind {
                cgroup.open.parallel = cgroup.open.parallel.max(before);
            }
        }
        self.slot += 1;
        let is_last = self.slot > self.replay.slots;
        self.slot_end_ns = if is_last { f64::INFINITY } else { self.slot as f64 * self.replay.slot_ns };
    }

    /// Spreads what is wanted over CPUs, from the lowest cgroups up, and computes what runs, from the highest ones down.
    fn settle(&mut self) {
        let (cgroups, parents, capacity) = (&mut self.cgroups, &self.replay.parents, self.replay.capacity);
        let mut roots = 0.0;
        cgroups.iter_mut().for_each(|cgroup| cgroup.rate = cgroup.wanted.min(capacity));
        for at in (0..cgroups.len()).rev() {
            let cgroup = &mut cgroups[at];
            let mut passed = cgroup.rate.min(capacity);
            if let Some(pool) = &mut cgroup.pool {
                passed = pool.demand(passed, self.now_ns);
            }
            cgroup.passed = if cgroup.rate > 0.0 { passed / cgroup.rate } else { 1.0 };
            match parents[at] {
                Some(parent) => cgroups[parent].rate += passed,
                None => roots += passed,
            }
        }
        let top = if roots > capacity { capacity / roots } else { 1.0 };
        for at in 0..cgroups.len() {
            let above = parents[at].map_or(top, |parent| cgroups[parent].above * cgroups[parent].passed);
            let cgroup = &mut cgroups[at];
            cgroup.above = above;
            cgroup.own = cgroup.wanted.min(capacity) * above * cgroup.passed;
            cgroup.served = cgroup.own;
        }
        for at in (0..cgroups.len()).rev() {
            if let Some(parent) = parents[at] {
                cgroups[parent].served += cgroups[at].served;
            }
        }
    }

    /// The next time at which a timer of a pool fires, but at most `end_ns`.
    fn timers_ns(&self, end_ns: f64) -> f64 {
        let pools = self.cgroups.iter().filter_map(|cgroup| cgroup.pool.as_ref());
        pools.map(|pool| pool.refill_ns.min(pool.slack_ns)).fold(end_ns, f64::min)
    }

    /// The time at which a wanted rate may change, but at most `end_ns`.
    fn change_ns(&self, end_ns: f64) -> f64 {
        let events = self.cgroups.iter().map(|cgroup| cgroup.event_ns(self.is_open, self.now_ns));
        events.fold(end_ns.min(self.slot_end_ns), f64::min)
    }

    /// Runs everything that is wanted until a wanted rate may change, but at most until `end_ns`. False if something may hinder it.
    fn run_calm(&mut self, end_ns: f64) -> bool {
        let (parents, capacity, now_ns) = (&self.replay.parents, self.replay.capacity, self.now_ns);
        for cgroup in &mut self.cgroups {
            cgroup.wanted = cgroup.wanted_rate(self.is_open);
            (cgroup.own, cgroup.rate) = (cgroup.wanted, cgroup.wanted);
        }
        if self.cgroups.iter().any(Cgroup::is_hindered) {
            return false;
        }
        let until_ns = self.change_ns(self.timers_ns(end_ns));
        let (length_ns, mut roots) = (until_ns - now_ns, 0.0);
        for at in (0..self.cgroups.len()).rev() {
            let cgroup = &self.cgroups[at];
            let rate = cgroup.rate;
            let is_enough = |pool: &Pool| pool.suffices(rate * length_ns, cpus_of(rate), now_ns, length_ns);
            if rate > capacity || !cgroup.pool.as_ref().is_none_or(is_enough) {
                return false;
            }
            match parents[at] {
                Some(parent) => self.cgroups[parent].rate += rate,
                None => roots += rate,
            }
        }
        if roots > capacity {
            return false;
        }
        for cgroup in &mut self.cgroups {
            cgroup.ran_ns += cgroup.rate * length_ns;
            if let Some(pool) = &mut cgroup.pool {
                pool.run_calm(cgroup.rate, cpus_of(cgroup.rate), now_ns, length_ns);
            }
        }
        self.advance(until_ns);
        true
    }

    /// Runs until the next event of a pool, but at most until `end_ns`, or until a wanted rate changes.
    fn run_to_event(&mut self, end_ns: f64) {
        let (start_ns, mut next_ns) = (self.now_ns, self.timers_ns(end_ns));
        for Cgroup { pool, above, .. } in &mut self.cgroups {
            if let Some(pool) = pool {
                next_ns = next_ns.min(pool.empty_ns(start_ns, next_ns, *above));
            }
        }
        let is_behind = self.cgroups.iter().any(|cgroup| cgroup.is_behind);
        loop {
            self.advance(self.change_ns(next_ns));
            if !is_behind || self.now_ns >= next_ns || self.now_ns < self.slot_end_ns {
                break;
            }
            self.begin_slot();
            if self.cgroups.iter_mut().any(|cgroup| cgroup.wanted_rate(true) != cgroup.wanted) {
                break;
            }
        }
        let length_ns = self.now_ns - start_ns;
        for cgroup in &mut self.cgroups {
            cgroup.ran_ns += cgroup.served * length_ns;
            if let Some(pool) = &mut cgroup.pool {
                pool.consume(length_ns, cgroup.above);
            }
        }
    }

    fn advance(&mut self, now_ns: f64) {
        let length_ns = now_ns - self.now_ns;
        self.now_ns = now_ns;
        for (cgroup, steps) in self.cgroups.iter_mut().zip(&self.replay.steps) {
            cgroup.advance(self.is_open, steps, now_ns, length_ns);
        }
    }
}

impl Cgroup {
    pub fn is_done(&self, is_open: bool) -> bool {
        if is_open { self.backlog_ns <= NONE_NS } else { self.finished_ns.is_some() }
    }

    /// A CPU is throttled; or in the open loop, work is late, or more is wanted than there are tasks.
    #[inline(always)]
    fn is_hindered(&self) -> bool {
        self.backlog_ns > NONE_NS
            || self.open.firm + self.open.presumed > self.most
            || self.pool.as_ref().is_some_and(Pool::is_throttled)
    }

    /// Closed loop: begins the step at the index.
    fn begin_step(&mut self, steps: &Steps, now_ns: f64) {
        let step = steps.closed.get(self.step).copied();
        self.left = step.unwrap_or_default();
        self.finished_ns = step.is_none().then_some(now_ns);
    }

    #[inline(always)]
    fn wanted_rate(&mut self, is_open: bool) -> f64 {
        if !is_open {
            return self.left.rate;
        }
        self.raised = if self.is_behind { self.open.parallel.max(self.open.firm) } else { self.open.firm };
        // Late work and busy loops are the same tasks.
        self.raised.max(self.open.firm + self.open.presumed).min(self.most)
    }

    /// The time at which the step is done; in the open loop, that at which late work is done or begins to raise the demand.
    #[inline(always)]
    fn event_ns(&self, is_open: bool, now_ns: f64) -> f64 {
        if !is_open {
            let speed = if self.left.rate == 0.0 { 1.0 } else { self.own };
            let never = self.finished_ns.is_some() || speed <= 0.0;
            return if never { f64::INFINITY } else { now_ns + self.left.amount_ns / speed };
        }
        let growth = self.open.firm - self.own.min(self.raised);
        if self.is_behind && growth < 0.0 {
            now_ns + self.backlog_ns / -growth
        } else if !self.is_behind && growth > 0.0 {
            now_ns + (UNNOTICED_NS - self.backlog_ns).max(0.0) / growth
        } else {
            f64::INFINITY
        }
    }

    #[inline(always)]
    fn advance(&mut self, is_open: bool, steps: &Steps, now_ns: f64, length_ns: f64) {
        if is_open {
            let served = self.own.min(self.raised);
            if served > 0.0 {
                self.done_ns = now_ns;
            }
            self.backlog_ns += (self.open.firm - served) * length_ns;
            if self.backlog_ns <= NONE_NS {
                (self.backlog_ns, self.is_behind) = (self.backlog_ns.max(0.0), false);
            } else if self.backlog_ns >= UNNOTICED_NS - NONE_NS {
                self.is_behind = true;
            }
        } else if self.finished_ns.is_none() {
            let is_work = self.left.rate > 0.0;
            self.left.amount_ns -= if is_work { self.own * length_ns } else { length_ns };
            if self.left.amount_ns <= NONE_NS {
                if is_work {
                    self.done_ns = now_ns;
                }
                self.step += 1;
                self.begin_step(steps, now_ns);
            }
        }
    }
}
