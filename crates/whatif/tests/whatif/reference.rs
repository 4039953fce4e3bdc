//! A plain simulation in small steps, as a reference. It simulates every CPU of every cgroup, without optimisations.

mod pool;

use cgscope_whatif::{Limit, Loop, Profile, Setting, Slot, Tree};

use pool::{NONE_NS, Pool, cpus_of};

/// Late work up to this amount (ns) does not raise the demand.
const UNNOTICED_NS: f64 = 250_000.0;

/// The figures to compare.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_ns: f64,
    pub limited_ns: f64,
    pub ran_ns: f64,
    pub done_ns: Option<f64>,
    pub backlog_ns: f64,
    pub duration_ns: f64,
}

/// A cgroup's own demand, without its descendants.
#[derive(Clone, Default)]
struct Flow {
    step: usize,
    left_ns: f64,
    backlog_ns: f64,
    is_behind: bool,
    /// CPUs that late work may use.
    parallel: f64,
    wanted: f64,
    done_ns: f64,
}

pub struct Reference<'a> {
    tree: &'a Tree,
    setting: Setting,
    pools: Vec<Option<Pool>>,
    flows: Vec<Flow>,
    figures: Vec<Figures>,
    now_ns: u64,
    step_ns: u64,
}

impl<'a> Reference<'a> {
    /// Replays the whole tree under these limits, in steps of `step_ns`.
    pub fn run(tree: &'a Tree, limits: &[Option<Limit>], setting: Setting, step_ns: u64) -> Vec<Figures> {
        let count = tree.nodes.len();
        let mut flows = vec![Flow::default(); count];
        for (flow, node) in flows.iter_mut().zip(&tree.nodes) {
            flow.step = next_step(&node.profile, 0);
            flow.left_ns = closed_left(node.profile.slots.get(flow.step), node.profile.slot_ns);
        }
        let pools = limits.iter().enumerate();
        let pools = pools.map(|(at, limit)| limit.map(|limit| Pool::new(limit, at)));
        let mut this = Self {
            tree,
            setting,
            pools: pools.collect(),
            flows,
            figures: vec![Figures::default(); count],
            now_ns: 0,
            step_ns,
        };
        let slots = tree.nodes.iter().map(|node| node.profile.slots.len()).max().unwrap_or(0);
        let length_ns = tree.nodes[0].profile.slot_ns * slots as u64;
        let end_ns = length_ns * u64::from(setting.longest);
        match setting.replay {
            Loop::Open => {
                while this.now_ns < length_ns {
                    this.step();
                }
                let counted = this.figures.clone();
                while this.flows.iter().any(|flow| flow.backlog_ns > 1.0) && this.now_ns < end_ns {
                    this.step();
                }
                this.figures = counted;
                this.figures.iter_mut().for_each(|figures| figures.duration_ns = length_ns as f64);
            }
            Loop::Closed => {
                while this.now_ns < end_ns && (0..count).any(|at| !this.is_finished(at)) {
                    this.step();
                }
            }
        }
        this.finish();
        this.figures
    }

    fn is_finished(&self, node: usize) -> bool {
        self.flows[node].step >= self.tree.nodes[node].profile.slots.len()
    }

    fn finish(&mut self) {
        for at in (0..self.flows.len()).rev() {
            let is_done = match self.setting.replay {
                Loop::Open => self.flows[at].backlog_ns <= 1.0,
                Loop::Closed => self.is_finished(at),
            };
            let own = is_done.then_some(self.flows[at].done_ns);
            let below: Vec<Option<f64>> = (at + 1..self.flows.len())
                .filter(|node| self.tree.nodes[*node].parent == Some(at))
                .map(|node| self.figures[node].done_ns)
                .collect();
            let mut all = below.into_iter().chain([own]);
            self.figures[at].done_ns = all.try_fold(0.0, |a: f64, b| Some(a.max(b?)));
            if let Some(parent) = self.tree.nodes[at].parent {
                self.figures[parent].backlog_ns += self.figures[at].backlog_ns;
                let duration_ns = self.figures[at].duration_ns;
                self.figures[parent].duration_ns = self.figures[parent].duration_ns.max(duration_ns);
            }
        }
    }

    /// Updates the demand of cgroup `at` for this step. Returns its firm demand, and its firm demand including late work, in
    /// CPUs.
    fn wanted(&mut self, at: usize) -> (f64, f64) {
        let (node, flow) = (&self.tree.nodes[at], &mut self.flows[at]);
        let most = node.threads.map_or(f64::INFINITY, f64::from);
        let capacity = self.tree.capacity;
        let slot_ns = node.profile.slot_ns as f64;
        if self.setting.replay == Loop::Closed {
            let Some(slot) = node.profile.slots.get(flow.step) else {
                flow.wanted = 0.0;
                return (0.0, 0.0);
            };
            flow.wanted = closed_rate(slot, node.profile.slot_ns).min(most);
            return (0.0, 0.0);
        }
        let slot_at = (self.now_ns / node.profile.slot_ns) as usize;
        if self.now_ns.is_multiple_of(node.profile.slot_ns) {
            flow.is_behind = flow.backlog_ns > NONE_NS;
        }
        let slot = node.profile.slots.get(slot_at).copied().unwrap_or_default();
        let (firm, presumed) = (slot.firm_ns as f64 / slot_ns, slot.presumed_ns as f64 / slot_ns);
        if self.now_ns.is_multiple_of(node.profile.slot_ns) {
            let recent = 1_000_000_000u64.div_ceil(node.profile.slot_ns) as usize;
            let slots =
                node.profile.slots.iter().take(slot_at + 1).skip((slot_at + 1).saturating_sub(recent));
            let cpus = slots.map(|slot| cpus_of(slot.firm_ns as f64 / slot_ns)).max().unwrap_or(0).max(1);
            let cpus = (cpus as f64).min(most).min(capacity);
            flow.parallel = if flow.is_behind { cpus.max(flow.parallel) } else { cpus };
        }
        let raised = if flow.is_behind { flow.parallel.max(firm) } else { firm };
        flow.wanted = raised.max(firm + presumed).min(most);
        (firm, raised)
    }

    fn step(&mut self) {
        for (pool, figures) in self.pools.iter_mut().zip(&mut self.figures) {
            if let Some(pool) = pool {
                pool.timers(self.now_ns, &self.setting, figures);
            }
        }
        let (count, capacity) = (self.flows.len(), self.tree.capacity);
        let firm: Vec<(f64, f64)> = (0..count).map(|at| self.wanted(at)).collect();
        let mut rates: Vec<f64> = self.flows.iter().map(|flow| flow.wanted.min(capacity)).collect();
        let (mut passes, mut roots) = (vec![1.0; count], 0.0);
        for at in (0..count).rev() {
            let rate = rates[at].min(capacity);
            let offered = match &mut self.pools[at] {
                Some(pool) => pool.demand(rate, self.now_ns, &self.setting),
                None => rate,
            };
            passes[at] = if rates[at] > 0.0 { offered / rates[at] } else { 1.0 };
            match self.tree.nodes[at].parent {
                Some(parent) => {
                    rates[parent] += offered;
                }
                None => roots += offered,
            }
        }
        let top = if roots > capacity { capacity / roots } else { 1.0 };
        let mut above = vec![top; count];
        for at in 0..count {
            if let Some(parent) = self.tree.nodes[at].parent {
                above[at] = above[parent] * passes[parent];
            }
        }
        self.consume(&firm, &passes, &above, capacity);
        self.now_ns += self.step_ns;
    }

    fn consume(&mut self, firm: &[(f64, f64)], passes: &[f64], above: &[f64], capacity: f64) {
        let step_ns = self.step_ns as f64;
        let mut served = vec![0.0; self.flows.len()];
        for at in (0..self.flows.len()).rev() {
            let own = self.flows[at].wanted.min(capacity) * passes[at] * above[at];
            served[at] += own;
            if let Some(parent) = self.tree.nodes[at].parent {
                served[parent] += served[at];
            }
            let is_running = self.setting.replay == Loop::Open || !self.is_finished(at);
            self.advance(at, firm[at], own);
            let figures = &mut self.figures[at];
            figures.ran_ns += served[at] * step_ns;
            if is_running {
                figures.duration_ns = self.now_ns as f64 + step_ns;
            }
            if let Some(pool) = &mut self.pools[at] {
                for cpu in pool.cpus.iter_mut().filter(|cpu| !cpu.is_throttled) {
                    cpu.left_ns -= cpu.demand * above[at] * step_ns;
                }
                figures.throttled_ns += pool.queue.len() as f64 * step_ns;
                figures.limited_ns += if pool.queue.is_empty() { 0.0 } else { step_ns };
            }
        }
    }

    /// Advances a cgroup's own demand by one step, in which the demand was served at `rate` CPUs.
    fn advance(&mut self, at: usize, (firm, raised): (f64, f64), rate: f64) {
        let (node, flow) = (&self.tree.nodes[at], &mut self.flows[at]);
        let step_ns = self.step_ns as f64;
        if self.setting.replay == Loop::Open {
            let served_ns = (rate.min(raised) * step_ns).min(flow.backlog_ns + firm * step_ns);
            flow.backlog_ns += firm * step_ns - served_ns;
            if flow.backlog_ns <= NONE_NS {
                flow.is_behind = false;
            } else if flow.backlog_ns > UNNOTICED_NS {
                flow.is_behind = true;
            }
            if served_ns > 0.0 {
                flow.done_ns = self.now_ns as f64 + step_ns;
            }
            self.figures[at].backlog_ns = flow.backlog_ns;
            return;
        }
        // Several slots may end in one step. The served fraction of the demand stays the same.
        let most = node.threads.map_or(f64::INFINITY, f64::from);
        let part = if flow.wanted > 0.0 { rate / flow.wanted } else { 1.0 };
        let mut time_ns = step_ns;
        while time_ns > 0.0 {
            let Some(slot) = node.profile.slots.get(flow.step) else { return };
            let wanted = closed_rate(slot, node.profile.slot_ns).min(most);
            let speed = if slot.ran_ns == 0 { 1.0 } else { part * wanted };
            let used_ns = if speed > 0.0 { flow.left_ns / speed } else { f64::INFINITY };
            if used_ns > time_ns {
                flow.left_ns -= time_ns * speed;
                return;
            }
            time_ns -= used_ns;
            if slot.ran_ns > 0 {
                flow.done_ns = self.now_ns as f64 + step_ns - time_ns;
            }
            flow.step = next_step(&node.profile, flow.step + 1);
            flow.left_ns = closed_left(node.profile.slots.get(flow.step), node.profile.slot_ns);
        }
    }
}

/// Returns the first slot, from `at` on, that takes time if no task waits.
fn next_step(profile: &Profile, mut at: usize) -> usize {
    while profile.slots.get(at).is_some_and(|slot| slot.ran_ns == 0 && slot.waited_ns >= profile.slot_ns) {
        at += 1;
    }
    at
}

/// Returns the number of CPUs that a slot demands in the closed loop. If several tasks can run, all of them run at once.
/// Otherwise one task runs, waits and sleeps in turn.
fn closed_rate(slot: &Slot, slot_ns: u64) -> f64 {
    let tasks = (slot.ran_ns + slot.waited_ns) as f64 / slot_ns as f64;
    if tasks < 1.0 { slot.ran_ns as f64 / (slot_ns - slot.waited_ns) as f64 } else { tasks }
}

/// Returns how much is left at the start of a slot in the closed loop, ns: work; or time, if no task runs in the slot.
fn closed_left(slot: Option<&Slot>, slot_ns: u64) -> f64 {
    let slot = slot.copied().unwrap_or_default();
    if slot.ran_ns == 0 { (slot_ns - slot.waited_ns.min(slot_ns)) as f64 } else { slot.ran_ns as f64 }
}
