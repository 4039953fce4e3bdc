//! Fair shares: the part of the waiting for a neighbour in which the neighbour exceeds its weight. While tasks of a cgroup can
//! run, weights divide the time of their CPUs level by level, from the root down. At each level, the cgroup or one of its
//! ancestors competes with its siblings. `docs/figures.md` explains the formula. `tests/schedules/shares.rs` compares it with a
//! simulated scheduler.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use cgscope_ledger::{Cause, history::KERNEL};

use super::Tree;
use crate::{Blame, Interval, REST, Wait, sum, table::interval::mostly_realtime};

/// Weight of a cgroup with `cpu.idle`, on the scale of `cpu.weight`. The kernel uses 3 where the default weight is 1024
/// (`WEIGHT_IDLEPRIO` in `kernel/sched/sched.h`).
const IDLE_WEIGHT: f64 = 100.0 * 3.0 / 1024.0;
/// The integral of [`fair_to_loop`]: its first u times the largest weight, its last u times the own weight, and the number of
/// steps. These values make shares exact to 0.1 % of the time.
const FIRST: f64 = 1e-4;
const LAST: f64 = 12.0;
const STEPS: u32 = 48;

type Loads = Vec<Option<Load>>;

/// The load of a cgroup with its descendants.
#[derive(Clone, Copy)]
struct Load {
    /// Number of CPUs on which the cgroup competes.
    cpus: f64,
    /// Share of time in which the cgroup could run on such a CPU, 0 to 1.
    wanted: f64,
}

impl Tree {
    /// Sets, for each pair, the part of the waiting that exceeds the culprit's share.
    pub(super) fn add_beyond(&mut self, interval: &Interval) {
        let mut beyond = vec![None; interval.pairs.len()];
        // A selection lacks tasks of other cgroups, so their demand is unknown. Pairs distinguish tasks only in a selection.
        let is_selection = interval.is_selection || interval.pairs.iter().any(|pair| pair.tid != 0);
        let pairs = if is_selection { &[][..] } else { &self.pairs };
        let mut loads = vec![None; self.nodes.len()];
        for pairs in pairs.chunk_by(|a, b| a.0 == b.0) {
            let victim = pairs[0].0;
            let pairs: Vec<usize> = pairs.iter().map(|(_, pair)| *pair).collect();
            self.judge(interval, victim, &pairs, &mut loads, &mut beyond);
        }
        self.beyond = beyond;
    }

    fn judge(
        &self,
        interval: &Interval,
        victim: usize,
        pairs: &[usize],
        loads: &mut Loads,
        beyond: &mut [Option<u64>],
    ) {
        let tasks = interval.tasks_at(self.tasks_of(victim));
        if mostly_realtime(tasks.map(|task| (task, task.wait.by_cause.get(Cause::OtherCgroup)))).is_some() {
            return;
        }
        let wanted = self.load(interval, victim, loads).wanted;
        let own = &self.nodes[victim].own;
        // Time to divide by weights, ns.
        let mut time = own.on_cpu_ns as f64 + own.by_cause.get(Cause::OwnCgroup) as f64;
        // By depth: the victim or its ancestor there, and its siblings with the pairs whose culprits are in them.
        let mut levels: BTreeMap<usize, (usize, BTreeMap<usize, Vec<usize>>)> = BTreeMap::new();
        for at in pairs {
            let pair = &interval.pairs[*at];
            // The culprit, if it is another cgroup with a known path.
            let is_other = pair.blame == Blame::Ran && ![KERNEL, REST, pair.victim].contains(&pair.culprit);
            let Some(culprit) = self.find_id(interval, pair.culprit).filter(|_| is_other) else { continue };
            let ran = interval.tasks_at(self.tasks_of(culprit)).map(|task| (task, task.totals.on_cpu_ns));
            if mostly_realtime(ran).is_some() {
                // No weight entitles a real-time task to its time.
                beyond[*at] = Some(pair.ns);
                continue;
            }
            let Some((ours, theirs)) = self.siblings(victim, culprit) else { continue };
            if [ours, theirs].iter().any(|node| self.weight(interval, *node, loads).is_none()) {
                continue;
            }
            let (_, rivals) = levels.entry(self.nodes[ours].depth).or_insert_with(|| (ours, BTreeMap::new()));
            rivals.entry(theirs).or_default().push(*at);
            time += pair.ns as f64;
        }
        let behind_ns = |pairs: &[usize]| sum::total(pairs.iter().map(|at| interval.pairs[*at].ns)) as f64;
        // Upper levels come first, and leave the rest of the time to lower levels.
        for (ours, rivals) in levels.into_values() {
            let Some(weight) = self.weight(interval, ours, loads) else { continue };
            let claim = |(node, pairs): (&usize, &Vec<usize>)| {
                let weight = self.weight(interval, *node, loads)?;
                // While a cgroup ran, it could run.
                let ran = behind_ns(pairs) / time;
                Some((weight, self.load(interval, *node, loads).wanted.max(ran).min(1.0)))
            };
            let claims: Vec<_> = rivals.iter().filter_map(claim).collect();
            let all_ns: f64 = rivals.values().map(|pairs| behind_ns(pairs)).sum();
            for (pairs, share) in rivals.values().zip(fair(weight, wanted, &claims)) {
                let excess = (1.0 - share * time / behind_ns(pairs).max(1.0)).max(0.0);
                for at in pairs {
                    beyond[*at] = Some((interval.pairs[*at].ns as f64 * excess).round() as u64);
                }
            }
            time -= all_ns;
        }
    }

    /// Returns the ancestors of `a` and `b` (or themselves) directly below the lowest common one; `None` if one is an ancestor.
    fn siblings(&self, a: usize, b: usize) -> Option<(usize, usize)> {
        let common = self.common(a.min(b), a.max(b));
        let below = |node| iter::once(node).chain(self.ancestors(node)).take_while(|at| *at != common).last();
        Some((below(a)?, below(b)?))
    }

    /// Returns the weight of a cgroup on each CPU that it uses; `None`: unknown, or no task of the cgroup is known.
    fn weight(&self, interval: &Interval, node: usize, loads: &mut Loads) -> Option<f64> {
        let weight = self.limits(interval, node).filter(|_| self.nodes[node].has_tasks)?.weight?;
        let weight = if weight == 0 { IDLE_WEIGHT } else { weight as f64 };
        // The kernel divides the weight among CPUs in proportion to the load on each.
        Some(weight / self.load(interval, node, loads).cpus)
    }

    fn load(&self, interval: &Interval, node: usize, known: &mut Loads) -> Load {
        *known[node].get_or_insert_with(|| {
            let could_run = |wait: &Wait, ran_ns: u64| {
                ran_ns.saturating_add(wait.contended_ns()) as f64 / interval.duration_ns.max(1) as f64
            };
            let tasks = || interval.tasks_at(self.tasks_below(node));
            let busy = tasks().filter(|task| task.is_busy(interval.duration_ns));
            let most = busy.map(|task| task.reading.cpu).collect::<BTreeSet<u32>>().len().max(1);
            let group = &self.nodes[node].group;
            let all = could_run(&group.wait, group.totals.on_cpu_ns);
            let cpus = all.clamp(1.0, most as f64);
            // Assumes that the tasks sleep independently of each other, and that the exited tasks are one task.
            let living = || tasks().map(|task| could_run(&task.wait, task.totals.on_cpu_ns));
            let exited = all - living().sum::<f64>();
            let asleep = living().chain([exited]).map(|share| 1.0 - share.clamp(0.0, 1.0));
            Load { cpus, wanted: 1.0 - asleep.product::<f64>().powf(1.0 / cpus) }
        })
    }
}

/// Returns the time to which weights entitle each rival of a cgroup, as a share of the time in which the cgroup could run.
/// `weight` is the cgroup's weight; `wanted` is the share of the interval in which it could run. `rivals`: (weight, share of the
/// time in which the rival could run). Assumes that all cgroups sleep independently of each other.
fn fair(weight: f64, wanted: f64, rivals: &[(f64, f64)]) -> Vec<f64> {
    let all: f64 = rivals.iter().map(|(weight, wanted)| weight * wanted).sum();
    let always = fair_to_loop(weight, rivals);
    // A cgroup that mostly sleeps takes longer if more rivals can run. So the times in which it could run are mostly such times.
    let seldom = rivals.iter().map(|(rival, wanted)| rival * wanted / (weight + all));
    seldom.zip(always).map(|(seldom, always)| seldom + (always - seldom) * wanted).collect()
}

/// Same as [`fair`], for a cgroup that could run all the time.
fn fair_to_loop(weight: f64, rivals: &[(f64, f64)]) -> Vec<f64> {
    // While a rival can run, its share is its weight / all weights, as a mean over all sets of rivals. This mean is an integral
    // over u: weight * exp(-u * (own weight + weight)) * the mean of exp(-u * w) over the sets, which is a product.
    let largest = rivals.iter().map(|(weight, _)| *weight).fold(weight, f64::max);
    let (first, last) = ((FIRST / largest).ln(), (LAST / weight).ln());
    let (mut shares, mut runs) = (vec![0.0; rivals.len()], Vec::with_capacity(rivals.len()));
    let mut all = 0.0;
    for step in 0..=STEPS {
        let u = (first + (last - first) * f64::from(step) / f64::from(STEPS)).exp();
        runs.clear();
        runs.extend(rivals.iter().map(|(weight, wanted)| wanted * (-u * weight).exp()));
        let mean = |at: usize| 1.0 - rivals[at].1 + runs[at];
        let product = u * (-u * weight).exp() * (0..rivals.len()).map(mean).product::<f64>();
        all += weight * product;
        for (at, share) in shares.iter_mut().enumerate().filter(|(at, _)| mean(*at) > 0.0) {
            let part = rivals[at].0 * runs[at] / mean(at) * product;
            *share += part;
            all += part;
        }
    }
    // The rivals' shares and the cgroup's own share sum to 1, so the width of the steps cancels out.
    shares.iter().map(|share| share / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes [`fair_to_loop`] by adding up all sets of rivals.
    fn of_all_sets(weight: f64, rivals: &[(f64, f64)]) -> Vec<f64> {
        let mut shares = vec![0.0; rivals.len()];
        for set in 0..1usize << rivals.len() {
            let runs = |at: usize| set >> at & 1 == 1;
            let chance = |at: usize| if runs(at) { rivals[at].1 } else { 1.0 - rivals[at].1 };
            let probability: f64 = (0..rivals.len()).map(chance).product();
            let running = || (0..rivals.len()).filter(|at| runs(*at));
            let all = weight + running().map(|at| rivals[at].0).sum::<f64>();
            running().for_each(|at| shares[at] += probability * rivals[at].0 / all);
        }
        shares
    }

    #[test]
    fn weights_divide_the_time_among_those_that_can_run() {
        let cases: [(f64, &[(f64, f64)]); 8] = [
            (100.0, &[]),
            (100.0, &[(300.0, 1.0)]),
            (300.0, &[(100.0, 1.0), (100.0, 1.0)]),
            (100.0, &[(200.0, 1.0), (100.0, 0.5)]),
            (32.0, &[(877.0, 0.47), (246.0, 0.99)]),
            (1.0, &[(10_000.0, 0.2), (100.0, 0.9), (1.0, 1.0)]),
            (10_000.0, &[(1.0, 1.0), (0.3, 0.5)]),
            (100.0, &[(50.0, 0.1), (60.0, 0.2), (70.0, 0.3), (80.0, 0.4), (90.0, 0.5), (5.0, 0.0)]),
        ];
        for (weight, rivals) in cases {
            let (shares, expected) = (fair_to_loop(weight, rivals), of_all_sets(weight, rivals));
            assert_eq!(shares.len(), expected.len());
            let is_near =
                shares.iter().zip(&expected).all(|(share, expected)| (share - expected).abs() < 0.001);
            assert!(is_near, "{weight} {rivals:?}: {shares:?}, expected {expected:?}");
        }
    }
}
