//! The quota of one cgroup: its pool, its CPUs, and the kernel's rules for both.
//!
//! The rules are those of `kernel/sched/fair.c`. They were read in a version between Linux 6.6 and 6.11 and in the changes of 6.18, which
//! throttle each task on its way to user space instead of the whole run queue: the same rules for the pool, but a CPU may run on a
//! little longer. Comments name the kernel's functions.
//!
//! Demand is a rate. A rate of 2.5 CPUs uses CPU 0 and CPU 1 all the time and CPU 2 half of the time, as tasks do that stay where they
//! are. Each CPU has its own runtime, which it takes from the pool slice by slice.

use crate::{Limit, Setting, outcome::Stalls};

/// Runtime or work up to this counts as none, ns. It is above the rounding of times, which is 0.004 ns after a day, times the number of
/// CPUs; else a replay could stand still.
pub(crate) const NONE_NS: f64 = 0.5;
/// What a CPU keeps when it falls idle: `min_cfs_rq_runtime`.
const KEPT_NS: f64 = 1e6;
/// Nothing is distributed if the next refill is nearer than this: `min_bandwidth_expiration`.
const NEAR_NS: f64 = 2e6;
/// Returned runtime is distributed this much later: `cfs_bandwidth_slack_period`.
const SLACK_NS: f64 = 5e6;
/// A part of a CPU that does not count as one more CPU: slots are never exact.
const SMALL_PART: f64 = 0.01;

/// CPUs that a rate uses. The last one may run at up to 1.01, so that the inexact length of slots does not add a CPU.
#[inline(always)]
pub(crate) fn cpus_of(rate: f64) -> u32 {
    // Rounds up without `ceil`, which is a call on x86-64 before SSE 4.1.
    let least = rate - SMALL_PART;
    let whole = least as i32;
    (whole + i32::from(rate > 0.0 && (least > f64::from(whole) || whole == 0))) as u32
}

/// One CPU of the cgroup: a `cfs_rq`.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// Runtime left, ns: `runtime_remaining`. Negative: to be paid back.
    left_ns: f64,
    /// Demanded rate, 0 to 1.01.
    demand: f64,
    /// Start of the throttle, if `is_throttled`.
    since_ns: f64,
    is_throttled: bool,
}

impl Cpu {
    /// Runs at this demand for a time in which the pool does not run out. Returns what was taken from the pool and what was returned to
    /// it, ns. Without branches: neither demand nor slices can be predicted.
    #[inline(always)]
    fn run_calm(&mut self, demand: f64, length_ns: f64, slice_ns: f64, per_slice: f64) -> (f64, f64) {
        let is_idle = demand == 0.0;
        // `Pool::give_back`. A CPU that was idle before has no more than that.
        let kept_ns = if is_idle { self.left_ns.min(KEPT_NS) } else { self.left_ns };
        // Exactly a slice more than nothing, as in `Pool::demand`.
        let first_ns = if !is_idle & (kept_ns <= NONE_NS) { slice_ns } else { kept_ns };
        let left_ns = first_ns - demand * length_ns;
        let missing_ns = if is_idle { 0.0 } else { (-left_ns).max(0.0) };
        let whole = (missing_ns * per_slice) as i64 as f64;
        let slices = whole + f64::from(u8::from(whole * slice_ns < missing_ns - NONE_NS));
        let returned_ns = self.left_ns - kept_ns;
        self.demand = demand;
        self.left_ns = left_ns + slices * slice_ns;
        (first_ns - kept_ns + slices * slice_ns, returned_ns)
    }
}

/// A pool of quota: `struct cfs_bandwidth`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    quota_ns: f64,
    most_ns: f64,
    period_ns: f64,
    phase_ns: f64,
    slice_ns: f64,
    /// Runtime left in the pool, ns: `runtime`.
    left_ns: f64,
    /// The timer runs: `period_active`.
    is_active: bool,
    /// Nothing was taken since the last refill: `idle`.
    is_idle: bool,
    /// Time of the next refill; infinite while the timer is stopped.
    pub refill_ns: f64,
    /// Time of the next distribution of returned runtime, or infinite.
    pub slack_ns: f64,
    cpus: Vec<Cpu>,
    /// CPUs with demand.
    used: usize,
    /// The pool has slices for all until the next event.
    is_plenty: bool,
    /// Throttled CPUs, in the order in which they were throttled: `throttled_cfs_rq`.
    queue: Vec<usize>,
    pub periods: u64,
    pub throttled_periods: u64,
    /// Time in which a CPU was throttled, ns.
    pub limited_ns: f64,
    /// Without the stalls that have not ended.
    stalls: Stalls,
}

impl Pool {
    /// A full pool whose timer is stopped, as after a quiet time. `node`: the index of its cgroup.
    pub fn new(limit: &Limit, setting: &Setting, node: usize) -> Self {
        Self {
            quota_ns: limit.quota_ns as f64,
            most_ns: (limit.quota_ns + limit.burst_ns) as f64,
            period_ns: limit.period_ns as f64,
            phase_ns: setting.phase_of(node, limit.period_ns) as f64,
            slice_ns: setting.slice_ns.max(1) as f64,
            left_ns: (limit.quota_ns + limit.burst_ns) as f64,
            refill_ns: f64::INFINITY,
            slack_ns: f64::INFINITY,
            ..Self::default()
        }
    }

    pub fn is_throttled(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if `work_ns` can be done on `cpus` CPUs without throttling, if none is throttled now: what CPUs may have left over is set
    /// aside. False, too, if the timer starts and fires within this time.
    #[inline(always)]
    pub fn suffices(&self, work_ns: f64, cpus: u32, now_ns: f64, length_ns: f64) -> bool {
        self.left_ns >= work_ns + f64::from(cpus) * self.slice_ns
            && (self.is_active || cpus == 0 || self.grid_ns(now_ns) >= now_ns + length_ns)
    }

    fn grid_ns(&self, now_ns: f64) -> f64 {
        let passed = ((now_ns - self.phase_ns) / self.period_ns).floor() + 1.0;
        let next_ns = self.phase_ns + passed * self.period_ns;
        if next_ns > now_ns { next_ns } else { next_ns + self.period_ns }
    }

    /// Runs at this rate for a time in which nothing is throttled: see [`Pool::suffices`].
    #[inline(always)]
    pub fn run_calm(&mut self, rate: f64, cpus: u32, now_ns: f64, length_ns: f64) {
        let (per_slice, cpus) = (1.0 / self.slice_ns, cpus as usize);
        if cpus > self.cpus.len() {
            self.cpus.resize(cpus, Cpu::default());
        }
        let (mut taken_ns, mut returned_ns) = (0.0, 0.0);
        let all = cpus.max(self.used);
        let mut left = rate;
        for (at, cpu) in self.cpus[..all].iter_mut().enumerate() {
            let is_whole = at + 1 < cpus;
            let demand = if is_whole { 1.0 } else { left };
            left -= demand;
            let (taken, returned) = cpu.run_calm(demand, length_ns, self.slice_ns, per_slice);
            taken_ns += taken;
            returned_ns += returned;
        }
        self.used = cpus;
        self.left_ns += returned_ns - taken_ns;
        if taken_ns > 0.0 {
            self.is_idle = false;
            self.start_timer(now_ns);
        }
    }

    /// `start_cfs_bandwidth`: the timer keeps its grid of periods.
    #[inline(always)]
    fn start_timer(&mut self, now_ns: f64) {
        if !self.is_active {
            self.is_active = true;
            self.refill_ns = self.grid_ns(now_ns);
        }
    }

    /// Sets the number of CPUs with demand. CPUs that fall idle return their runtime.
    #[inline(always)]
    fn use_cpus(&mut self, cpus: usize, now_ns: f64) {
        if cpus == self.used {
            return;
        }
        if cpus > self.cpus.len() {
            self.cpus.resize(cpus, Cpu::default());
        }
        for at in cpus..self.used {
            self.cpus[at].demand = 0.0;
            self.give_back(at, now_ns);
        }
        self.used = cpus;
    }

    /// `__return_cfs_rq_runtime`: a CPU that falls idle returns all but 1 ms.
    fn give_back(&mut self, at: usize, now_ns: f64) {
        let returned_ns = self.cpus[at].left_ns - KEPT_NS;
        if returned_ns <= 0.0 {
            return;
        }
        self.cpus[at].left_ns = KEPT_NS;
        self.left_ns += returned_ns;
        // `start_cfs_slack_bandwidth`.
        let is_near = self.refill_ns < now_ns + SLACK_NS + NEAR_NS;
        if self.left_ns > self.slice_ns && !self.queue.is_empty() && self.slack_ns.is_infinite() && !is_near {
            self.slack_ns = now_ns + SLACK_NS;
        }
    }

    /// Spreads a demanded rate over CPUs. A CPU without runtime takes a slice from the pool, and pays back what it used too much
    /// (`__assign_cfs_rq_runtime`), or is throttled (`throttle_cfs_rq`). Returns the rate on CPUs that are not throttled.
    pub fn demand(&mut self, rate: f64, now_ns: f64) -> f64 {
        let cpus = cpus_of(rate) as usize;
        self.use_cpus(cpus, now_ns);
        let (mut passed, mut left, mut requested) = (0.0, rate, false);
        for (at, cpu) in self.cpus[..cpus].iter_mut().enumerate() {
            cpu.demand = if at + 1 < cpus { 1.0 } else { left };
            left -= cpu.demand;
            if !cpu.is_throttled && cpu.left_ns <= NONE_NS {
                requested = true;
                if self.left_ns > NONE_NS {
                    let amount_ns = (self.slice_ns - cpu.left_ns).min(self.left_ns);
                    self.left_ns -= amount_ns;
                    cpu.left_ns += amount_ns;
                    self.is_idle = false;
                }
                if cpu.left_ns <= NONE_NS {
                    (cpu.is_throttled, cpu.since_ns) = (true, now_ns);
                    self.queue.push(at);
                }
            }
            passed += if cpu.is_throttled { 0.0 } else { cpu.demand };
        }
        if requested {
            self.start_timer(now_ns);
        }
        passed
    }

    /// `unthrottle_cfs_rq`.
    fn unthrottle(&mut self, at: usize, now_ns: f64) {
        self.cpus[at].is_throttled = false;
        self.stalls.add(now_ns - self.cpus[at].since_ns);
    }

    /// The earliest time before `next_ns` at which the runtime of a CPU is used up and the pool may not have a slice for it, or until which
    /// it has slices for all. `above`: the part of the rate that limits above let pass.
    pub fn empty_ns(&mut self, now_ns: f64, next_ns: f64, above: f64) -> f64 {
        let running = self.cpus[..self.used].iter().filter(|cpu| !cpu.is_throttled);
        let (rate, kept_ns) = running
            .fold((0.0, 0.0), |(rate, kept_ns), cpu| (rate + cpu.demand * above, kept_ns + self.slice_ns));
        let plenty_ns = self.left_ns - kept_ns;
        let is_whole = rate * (next_ns - now_ns) <= plenty_ns;
        // A shorter time is worth an event of its own if it saves one.
        self.is_plenty = self.is_active && (is_whole || plenty_ns > 2.0 * self.slice_ns * rate);
        if self.is_plenty {
            return if is_whole { f64::INFINITY } else { now_ns + plenty_ns / rate };
        }
        let mut first_ns = f64::INFINITY;
        for cpu in &self.cpus[..self.used] {
            let rate = cpu.demand * above;
            if !cpu.is_throttled && rate > 0.0 {
                first_ns = first_ns.min(now_ns + cpu.left_ns.max(0.0) / rate);
            }
        }
        first_ns
    }

    /// Uses runtime for a time in which no rate changes, and takes slices if the pool has plenty.
    pub fn consume(&mut self, length_ns: f64, above: f64) {
        for cpu in self.cpus[..self.used].iter_mut().filter(|cpu| !cpu.is_throttled) {
            cpu.left_ns -= cpu.demand * above * length_ns;
            while self.is_plenty && cpu.left_ns < -NONE_NS {
                cpu.left_ns += self.slice_ns;
                self.left_ns -= self.slice_ns;
                self.is_idle = false;
            }
        }
        if !self.queue.is_empty() {
            self.limited_ns += length_ns;
        }
    }

    #[inline(always)]
    pub fn fire(&mut self, now_ns: f64) {
        if self.refill_ns <= now_ns {
            self.refill(now_ns);
        }
        if self.slack_ns <= now_ns {
            self.distribute_slack(now_ns);
        }
    }

    /// `do_sched_cfs_period_timer` with `__refill_cfs_bandwidth_runtime`: the timer stops after a period in which nothing was taken,
    /// but refills even then.
    fn refill(&mut self, now_ns: f64) {
        self.periods += 1;
        self.left_ns = (self.left_ns + self.quota_ns).min(self.most_ns);
        self.refill_ns += self.period_ns;
        if !self.queue.is_empty() {
            self.throttled_periods += 1;
            self.distribute(now_ns);
            self.is_idle = false;
        } else if self.is_idle {
            self.is_active = false;
            self.refill_ns = f64::INFINITY;
        } else {
            self.is_idle = true;
        }
    }

    /// `do_sched_cfs_slack_timer`.
    fn distribute_slack(&mut self, now_ns: f64) {
        self.slack_ns = f64::INFINITY;
        if self.refill_ns >= now_ns + NEAR_NS && self.left_ns > self.slice_ns {
            self.distribute(now_ns);
        }
    }

    /// `distribute_cfs_runtime`: in order, CPUs pay back what they used too much and run again. The kernel gives each one 1 ns more
    /// than that. A CPU that runs takes a slice next, and gets it here at once.
    fn distribute(&mut self, now_ns: f64) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|at| {
            let cpu = &mut self.cpus[*at];
            let target_ns = if cpu.demand > 0.0 { self.slice_ns } else { 1.0 };
            let amount_ns = (target_ns - cpu.left_ns).min(self.left_ns).max(0.0);
            self.left_ns -= amount_ns;
            cpu.left_ns += amount_ns;
            let is_throttled = cpu.left_ns <= NONE_NS;
            if !is_throttled {
                self.unthrottle(*at, now_ns);
            }
            is_throttled
        });
        self.queue = queue;
    }

    /// The stalls until now. Those that have not ended count up to here.
    pub fn stalls(&self, now_ns: f64) -> Stalls {
        let mut stalls = self.stalls.clone();
        self.queue.iter().for_each(|at| stalls.add(now_ns - self.cpus[*at].since_ns));
        stalls
    }
}
