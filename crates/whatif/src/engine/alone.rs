//! A fast path for a cgroup alone while nothing hinders it: a few additions a slot.

use super::Engine;
use crate::{
    Limit,
    pool::{NONE_NS, Pool, cpus_of},
};

impl Engine<'_> {
    /// Runs a cgroup alone, slot after slot, until something may hinder it. The figures are the same as those of the general code.
    pub(super) fn run_alone(&mut self, end_ns: f64) {
        if self.flows.len() != 1 {
            return;
        }
        let start_ns = self.now_ns;
        while self.now_ns < end_ns && self.run_behind(end_ns) {}
        // The caller finds out whether all is done.
        if self.now_ns > start_ns {
            return;
        }
        if self.flows[0].backlog_ns > NONE_NS {
            return;
        }
        if self.is_open { self.run_slots(end_ns) } else { self.run_steps(end_ns) }
    }

    /// The open loop while work is late: runs to the next event of the pool, over all slots in which the demanded rate stays the same. False
    /// if that is not the case.
    fn run_behind(&mut self, end_ns: f64) -> bool {
        if !self.is_open || !self.flows[0].is_behind || self.now_ns >= self.slot_end_ns {
            return false;
        }
        let rate = self.flows[0].wanted_rate(self.replay.threads[0]).min(self.capacity);
        let (now_ns, Some(pool)) = (self.now_ns, &mut self.pools[0]) else { return false };
        if pool.has_ticks() || rate == 0.0 {
            return false;
        }
        let passed = pool.demand(rate, now_ns);
        let most_ns = end_ns.min(pool.refill_ns).min(pool.slack_ns);
        let next_ns = most_ns.min(pool.empty_ns(now_ns, most_ns, 1.0));
        self.pass_slots(rate, passed, next_ns);
        let length_ns = self.now_ns - now_ns;
        self.states[0].ran_ns += passed * length_ns;
        if passed == 0.0 {
            self.states[0].stalled_ns += length_ns;
        } else {
            self.flows[0].done_ns = self.now_ns;
        }
        if let Some(pool) = &mut self.pools[0] {
            pool.consume(length_ns, 1.0);
            pool.fire(self.now_ns);
        }
        true
    }

    /// Lets time pass until `next_ns`, the end of late work, or a slot with another rate. `served`: the part of the rate that runs.
    fn pass_slots(&mut self, rate: f64, served: f64, next_ns: f64) {
        loop {
            let flow = &mut self.flows[0];
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
            let now = self.flows[0].wanted_rate(self.replay.threads[0]).min(self.capacity);
            if now != rate {
                return;
            }
        }
    }

    /// The open loop.
    fn run_slots(&mut self, end_ns: f64) {
        let replay = self.replay;
        let most = replay.threads[0].unwrap_or(f64::INFINITY);
        while self.now_ns < end_ns {
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            let step = self.flows[0].open;
            let rate = step.firm + step.presumed;
            let next_ns = end_ns.min(self.slot_end_ns);
            if rate > self.capacity || rate > most {
                return;
            }
            let Some(next_ns) = self.run_calm_alone(rate, next_ns) else { return };
            self.now_ns = next_ns;
            if step.firm > 0.0 {
                self.flows[0].done_ns = next_ns;
            }
        }
    }

    /// The closed loop.
    fn run_steps(&mut self, end_ns: f64) {
        while self.now_ns < end_ns && self.flows[0].finished_ns.is_none() {
            if self.now_ns >= self.slot_end_ns {
                self.begin_slot();
            }
            let rate = self.flows[0].left.rate;
            if rate > self.capacity {
                return;
            }
            let step_end_ns = self.flows[0].end_ns(self.now_ns, rate);
            let limit_ns = end_ns.min(self.slot_end_ns).min(step_end_ns);
            let Some(next_ns) = self.run_calm_alone(rate, limit_ns) else { return };
            let length_ns = next_ns - self.now_ns;
            self.now_ns = next_ns;
            self.advance(0, rate, length_ns);
        }
    }

    /// Runs at this rate until `next_ns` or the next timer, and fires it. Returns the time of the end; `None` if the quota may not
    /// suffice.
    #[inline(always)]
    fn run_calm_alone(&mut self, rate: f64, next_ns: f64) -> Option<f64> {
        let (now_ns, pool): (f64, Option<&mut Pool>) = (self.now_ns, self.pools[0].as_mut());
        let Some(pool) = pool else {
            self.states[0].ran_ns += rate * (next_ns - now_ns);
            return Some(next_ns);
        };
        let next_ns = next_ns.min(pool.refill_ns).min(pool.slack_ns);
        let (length_ns, cpus) = (next_ns - now_ns, cpus_of(rate));
        if !pool.suffices(rate * length_ns, cpus, now_ns, length_ns) {
            return None;
        }
        pool.run_calm(rate, cpus, now_ns, length_ns);
        pool.fire(next_ns);
        self.states[0].ran_ns += rate * length_ns;
        Some(next_ns)
    }

    /// After the end of the profile: leaves out periods that each use the whole quota for late work. Returns their length, ns, by
    /// which the rest of the simulation is too early.
    pub fn skip_periods(&mut self, limit: &Limit, end_ns: f64) -> f64 {
        let (quota_ns, period_ns) = (limit.quota_ns as f64, limit.period_ns as f64);
        if self.flows.len() != 1 || self.now_ns + 3.0 * period_ns > end_ns {
            return 0.0;
        }
        // Saved quota is used up first.
        self.run(self.now_ns + 2.0 * period_ns, true);
        let before_ns = self.states[0].ran_ns;
        self.run(self.now_ns + period_ns, true);
        if (self.states[0].ran_ns - before_ns - quota_ns).abs() > 1.0 {
            return 0.0;
        }
        let most = ((end_ns - self.now_ns) / period_ns).floor();
        let periods = ((self.flows[0].backlog_ns / quota_ns).floor() - 2.0).min(most).max(0.0);
        self.flows[0].backlog_ns -= periods * quota_ns;
        periods * period_ns
    }
}
