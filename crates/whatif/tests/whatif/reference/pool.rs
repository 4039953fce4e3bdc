//! The quota pool of the reference.

use cgscope_whatif::{Limit, Setting};

use super::Figures;

/// Runtime or work up to this amount counts as zero.
pub const NONE_NS: f64 = 0.5;
/// Runtime that a CPU keeps when it becomes idle.
const KEPT_NS: f64 = 1e6;

/// One CPU of a cgroup with a limit.
#[derive(Clone, Default)]
pub struct Cpu {
    pub left_ns: f64,
    pub demand: f64,
    pub is_throttled: bool,
}

/// The pool from which the CPUs of a cgroup take slices of the quota.
pub struct Pool {
    limit: Limit,
    node: usize,
    left_ns: f64,
    is_active: bool,
    is_idle: bool,
    refill_ns: u64,
    slack_ns: Option<u64>,
    pub cpus: Vec<Cpu>,
    /// Throttled CPUs, in the order in which they were throttled.
    pub queue: Vec<usize>,
}

pub fn cpus_of(rate: f64) -> usize {
    if rate <= 0.0 { 0 } else { ((rate - 0.01).ceil() as usize).max(1) }
}

impl Pool {
    pub fn new(limit: Limit, node: usize) -> Self {
        Self {
            limit,
            node,
            left_ns: (limit.quota_ns + limit.burst_ns) as f64,
            is_active: false,
            is_idle: false,
            refill_ns: 0,
            slack_ns: None,
            cpus: Vec::new(),
            queue: Vec::new(),
        }
    }

    /// Gives a CPU a slice of runtime: `__assign_cfs_rq_runtime`.
    fn assign(&mut self, cpu: usize, now_ns: u64, setting: &Setting) {
        if !self.is_active {
            self.is_active = true;
            self.refill_ns = setting.phase_of(self.node, self.limit.period_ns);
            while self.refill_ns <= now_ns {
                self.refill_ns += self.limit.period_ns;
            }
        }
        let wanted_ns = setting.slice_ns as f64 - self.cpus[cpu].left_ns;
        if self.left_ns > NONE_NS {
            let amount_ns = wanted_ns.min(self.left_ns);
            self.left_ns -= amount_ns;
            self.cpus[cpu].left_ns += amount_ns;
            self.is_idle = false;
        }
    }

    /// Divides the demand among CPUs. Returns the demand of CPUs that are not throttled.
    pub fn demand(&mut self, rate: f64, now_ns: u64, setting: &Setting) -> f64 {
        let used = cpus_of(rate);
        if self.cpus.len() < used {
            self.cpus.resize(used, Cpu::default());
        }
        let mut passed = 0.0;
        for at in 0..self.cpus.len() {
            let last = used.wrapping_sub(1);
            let demand = if at < last && at < used {
                1.0
            } else if at == last {
                rate - last as f64
            } else {
                0.0
            };
            let was_idle = self.cpus[at].demand == 0.0;
            self.cpus[at].demand = demand;
            if demand == 0.0 {
                if !was_idle {
                    self.give_back(at, now_ns, setting);
                }
                continue;
            }
            if !self.cpus[at].is_throttled && self.cpus[at].left_ns <= NONE_NS {
                self.assign(at, now_ns, setting);
                if self.cpus[at].left_ns <= NONE_NS {
                    self.cpus[at].is_throttled = true;
                    self.queue.push(at);
                }
            }
            if !self.cpus[at].is_throttled {
                passed += demand;
            }
        }
        passed
    }

    /// Returns the unused runtime of a CPU to the pool: `__return_cfs_rq_runtime`.
    fn give_back(&mut self, cpu: usize, now_ns: u64, setting: &Setting) {
        if self.cpus[cpu].left_ns <= KEPT_NS {
            return;
        }
        self.left_ns += self.cpus[cpu].left_ns - KEPT_NS;
        self.cpus[cpu].left_ns = KEPT_NS;
        let is_near = self.refill_ns < now_ns + 7_000_000;
        if self.left_ns > setting.slice_ns as f64
            && !self.queue.is_empty()
            && self.slack_ns.is_none()
            && !is_near
        {
            self.slack_ns = Some(now_ns + 5_000_000);
        }
    }

    /// Gives runtime to throttled CPUs: `distribute_cfs_runtime`. A CPU with demand takes its next slice at once.
    fn distribute(&mut self, setting: &Setting) {
        let mut rest = Vec::new();
        for at in std::mem::take(&mut self.queue) {
            let cpu = &mut self.cpus[at];
            let target_ns = if cpu.demand > 0.0 { setting.slice_ns as f64 } else { 1.0 };
            let amount_ns = (target_ns - cpu.left_ns).min(self.left_ns).max(0.0);
            self.left_ns -= amount_ns;
            cpu.left_ns += amount_ns;
            if cpu.left_ns > NONE_NS {
                cpu.is_throttled = false;
            } else {
                rest.push(at);
            }
        }
        self.queue = rest;
    }

    /// Runs the timers that are due: refill and slack.
    pub fn timers(&mut self, now_ns: u64, setting: &Setting, figures: &mut Figures) {
        if self.is_active && self.refill_ns <= now_ns {
            let most_ns = (self.limit.quota_ns + self.limit.burst_ns) as f64;
            figures.periods += 1;
            self.left_ns = (self.left_ns + self.limit.quota_ns as f64).min(most_ns);
            self.refill_ns += self.limit.period_ns;
            if self.queue.is_empty() {
                self.is_active = !self.is_idle;
                self.is_idle = true;
            } else {
                figures.throttled_periods += 1;
                self.distribute(setting);
                self.is_idle = false;
            }
        }
        if self.slack_ns.is_some_and(|at| at <= now_ns) {
            self.slack_ns = None;
            if self.refill_ns >= now_ns + 2_000_000 && self.left_ns > setting.slice_ns as f64 {
                self.distribute(setting);
            }
        }
    }
}
