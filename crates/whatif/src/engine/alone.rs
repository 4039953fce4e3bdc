//! A fast path for a cgroup alone, below others that have no demand of their own: a few additions a slot while nothing hinders it.

use super::Engine;
use crate::{
    Limit,
    pool::{NONE_NS, Pool, cpus_of},
};

impl Engine<'_> {
    /// Runs a cgroup that is alone, slot after slot, until something may hinder it, and while its work is late. The figures are the same
    /// as those of the general code.
    pub(super) fn run_alone(&mut self, end_ns: f64) {
        let Some(own) = self.replay.chain.first().copied() else { return };
        if !self.is_open {
            self.run_steps(own, end_ns);
            while self.now_ns < end_ns && self.run_hindered(own, end_ns) {
                self.run_steps(own, end_ns);
            }
            return;
        }
        if self.flows[own].backlog_ns <= NONE_NS {
            self.run_slots(own, end_ns);
        }
        // The caller finds out whether all is done.
        while self.now_ns < end_ns && self.run_late(own, end_ns) && self.flows[own].backlog_ns > NONE_NS {}
    }

    /// The closed loop while a quota hinders it: runs to the next event. False if that is not the case.
    fn run_hindered(&mut self, own: usize, end_ns: f64) -> bool {
        if self.flows[own].finished_ns.is_some() || self.has_ticks() {
            return false;
        }
        if self.now_ns >= self.slot_end_ns {
            self.begin_slot();
        }
        let rate = self.flows[own].left.rate.min(self.capacity);
        let (served, next_ns) = self.settle_alone(rate, end_ns.min(self.slot_end_ns));
        let next_ns = next_ns.min(self.flows[own].end_ns(self.now_ns, served));
        let length_ns = next_ns - self.now_ns;
        self.now_ns = next_ns;
        self.pass_alone(rate, served, length_ns);
        self.advance(own, served, length_ns);
        true
    }

    fn has_ticks(&self) -> bool {
        self.pools.iter().flatten().any(Pool::has_ticks)
    }

    /// The open loop while a quota hinders it: runs to the next event. While work is late, that may be after several slots in which the
    /// demanded rate stays the same. False if that is not the case.
    fn run_late(&mut self, own: usize, end_ns: f64) -> bool {
        if self.has_ticks() {
            return false;
        }
        if self.now_ns >= self.slot_end_ns {
            self.begin_slot();
        }
        let start_ns = self.now_ns;
        let rate = self.flows[own].wanted_rate(self.replay.threads[own]).min(self.capacity);
        let (served, next_ns) = self.settle_alone(rate, end_ns);
        if self.flows[own].is_behind {
            self.pass_slots(own, rate, served, next_ns);
            if served > 0.0 {
                self.flows[own].done_ns = self.now_ns;
            }
        } else {
            let event_ns = self.flows[own].backlog_event_ns(start_ns, served);
            self.now_ns = next_ns.min(self.slot_end_ns).min(event_ns);
            self.advance(own, served, self.now_ns - start_ns);
        }
        self.pass_alone(rate, served, self.now_ns - start_ns);
        true
    }

    /// Lets time pass at all levels, until now.
    fn pass_alone(&mut self, rate: f64, served: f64, length_ns: f64) {
        for at in self.replay.chain.iter().rev() {
            let state = &mut self.states[*at];
            state.ran_ns += served * length_ns;
            state.stalled_ns += if rate > 0.0 && served == 0.0 { length_ns } else { 0.0 };
            if let Some(pool) = &mut self.pools[*at] {
                pool.consume(length_ns, state.above);
                pool.fire(self.now_ns);
            }
        }
    }

    /// Spreads a rate over CPUs, at all levels. Returns the rate that runs, and the time of the next event of a pool.
    fn settle_alone(&mut self, rate: f64, end_ns: f64) -> (f64, f64) {
        let (replay, now_ns) = (self.replay, self.now_ns);
        let (mut passed, mut next_ns) = (rate, end_ns);
        for at in &replay.chain {
            let rate = passed;
            if let Some(pool) = &mut self.pools[*at] {
                passed = pool.demand(rate, now_ns);
                next_ns = next_ns.min(pool.refill_ns).min(pool.slack_ns);
            }
            self.states[*at].passed = if rate > 0.0 { passed / rate } else { 1.0 };
        }
        let mut above = 1.0;
        for at in replay.chain.iter().rev() {
            let state = &mut self.states[*at];
            state.above = above;
            above *= state.passed;
            if let Some(pool) = &mut self.pools[*at] {
                next_ns = next_ns.min(pool.empty_ns(now_ns, next_ns, state.above));
            }
        }
        (rate * above, next_ns)
    }

    /// Lets time pass until `next_ns`, the end of late work, or a slot with another rate. `served`: the part of the rate that runs.
    fn pass_slots(&mut self, own: usize, rate: f64, served: f64, next_ns: f64) {
        loop {
            let flow = &mut self.flows[own];
            let growth = flow.open.firm - served.min(flow.raised);
            let slot_ns = next_ns.min(self.slot_end_ns) - self.now_ns;
            if growth < 0.0 && flow.backlog_ns <= -growth * slot_ns + NONE_NS {
                self.now_ns += (flow.backlog_ns / -growth).min(slot_ns);
                (flow.backlog_ns, flow.is_behind) = (0.0, false);
                return;
            }
            flow.backlog_ns += growth * slot_ns;
            self.now_ns = next_ns.min(self.slot_end_ns);
            if self.now_ns >= next_ns {
                return;
            }
            self.begin_slot();
            let now = self.flows[own].wanted_rate(self.replay.threads[own]).min(self.capacity);
            if now != rate {
                return;
            }
        }
    }

    /// The open loop.
    fn run_slots(&mut self, own: usize, end_ns: f64) {
        let replay = self.replay;
        let most = replay.threads[own].unwrap_or(f64::INFINITY);
        while self.now_ns < end_ns {
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            let step = self.flows[own].open;
            let rate = step.firm + step.presumed;
            let next_ns = end_ns.min(self.slot_end_ns);
            if rate > self.capacity || rate > most {
                return;
            }
            let Some(next_ns) = self.run_calm_alone(rate, next_ns) else { return };
            self.now_ns = next_ns;
            if step.firm > 0.0 {
                self.flows[own].done_ns = next_ns;
            }
        }
    }

    /// The closed loop.
    fn run_steps(&mut self, own: usize, end_ns: f64) {
        while self.now_ns < end_ns && self.flows[own].finished_ns.is_none() {
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            let rate = self.flows[own].left.rate;
            if rate > self.capacity {
                return;
            }
            let step_end_ns = self.flows[own].end_ns(self.now_ns, rate);
            let limit_ns = end_ns.min(self.slot_end_ns).min(step_end_ns);
            let Some(next_ns) = self.run_calm_alone(rate, limit_ns) else { return };
            let length_ns = next_ns - self.now_ns;
            self.now_ns = next_ns;
            self.advance(own, rate, length_ns);
        }
    }

    /// Runs at this rate until `next_ns` or the next timer, and fires it. Returns the time of the end; `None` if a quota may not
    /// suffice.
    #[inline(always)]
    fn run_calm_alone(&mut self, rate: f64, mut next_ns: f64) -> Option<f64> {
        let (now_ns, chain) = (self.now_ns, &self.replay.chain);
        for at in chain {
            if let Some(pool) = &self.pools[*at] {
                next_ns = next_ns.min(pool.refill_ns).min(pool.slack_ns);
            }
        }
        let (length_ns, cpus) = (next_ns - now_ns, cpus_of(rate));
        for at in chain {
            if let Some(pool) = &self.pools[*at]
                && !pool.suffices(rate * length_ns, cpus, now_ns, length_ns)
            {
                return None;
            }
        }
        for at in chain {
            if let Some(pool) = &mut self.pools[*at] {
                pool.run_calm(rate, cpus, now_ns, length_ns);
                pool.fire(next_ns);
            }
            self.states[*at].ran_ns += rate * length_ns;
        }
        Some(next_ns)
    }

    /// After the end of the profile: leaves out periods that each use the whole quota for late work. Returns their length, ns, by
    /// which the rest of the simulation is too early.
    pub fn skip_periods(&mut self, limits: &[Option<Limit>], end_ns: f64) -> f64 {
        let &[own] = &self.replay.chain[..] else { return 0.0 };
        let Some(limit) = limits[own] else { return 0.0 };
        let (quota_ns, period_ns) = (limit.quota_ns as f64, limit.period_ns as f64);
        if self.now_ns + 3.0 * period_ns > end_ns {
            return 0.0;
        }
        // Saved quota is used up first.
        self.run(self.now_ns + 2.0 * period_ns, true);
        let before_ns = self.states[own].ran_ns;
        self.run(self.now_ns + period_ns, true);
        if (self.states[own].ran_ns - before_ns - quota_ns).abs() > 1.0 {
            return 0.0;
        }
        let most = ((end_ns - self.now_ns) / period_ns).floor();
        let periods = ((self.flows[own].backlog_ns / quota_ns).floor() - 2.0).min(most).max(0.0);
        self.flows[own].backlog_ns -= periods * quota_ns;
        periods * period_ns
    }
}
