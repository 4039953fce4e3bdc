//! The simulations for one cgroup.

use std::{
    iter,
    ops::Range,
    panic, slice,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use crate::{
    Bounds, Check, Figures, Limit, Loop, Outcome, PHASES, Replay, Setting, Tree,
    answer::{Answer, Question, Refusal, Row, throttled_share},
    demand::{Assumption, Demand},
    settings,
};

/// Quotas of the table, as multiples of the one in force.
const MULTIPLES: [f64; 8] = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0];

/// Number of phases if none of the usual ones reproduces the limit in force. A load on a clock may meet a few phases only, and throttled
/// times may differ by 10 % from one usual phase to the next.
const MANY_PHASES: u32 = 55;

/// In a longer time, requests that are not on a clock have met all phases of a period. So a few phases suffice if they hardly differ.
const LONG_NS: u64 = 120_000_000_000;
const FEW_PHASES: u32 = 3;
/// A difference that hardly matters: of shares of throttled periods, and of throttled time, CPUs.
const SMALL: f64 = 0.005;

/// Steps of the search for the least quota, CPUs: the largest that is at most a tenth of the quota in force.
const STEPS: [f64; 8] = [5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02];
const LEAST_STEP: f64 = 0.01;

/// Number of bursts that are tried: equal parts of the quota, which is the most that the kernel allows.
const BURSTS: u64 = 10;

/// Maximum number of threads: simulations take a few seconds at most, and others use the host, too.
const MOST_THREADS: usize = 4;

/// Adds to an answer what other limits would have done, unless the simulation of the limit in force does not fit. `may_sleep`: tasks may
/// have slept only because others of them were throttled. `do_tasks_sleep`: several tasks could run at once, and are no busy loops.
pub fn simulate(
    answer: &mut Answer,
    demand: &Demand<'_>,
    question: &Question,
    may_sleep: bool,
    do_tasks_sleep: bool,
) {
    let mut simulator = Simulator::new(demand, question, answer.limit, may_sleep);
    let recorded_share = throttled_share(&answer.counted);
    let recorded_ns_per_s =
        answer.counted.throttled_ns.unwrap_or(0) as f64 / answer.span_ns.max(1) as f64 * 1e9;
    answer.check = simulator.check(|figures| Check { figures, recorded_share, recorded_ns_per_s });
    answer.loops.clone_from(&simulator.loops);
    let Some(check) = answer.check.filter(Check::agrees) else {
        answer.refusal = Some(Refusal::Unfit);
        return;
    };
    (simulator.check, simulator.do_tasks_sleep) = (Some(check), do_tasks_sleep);
    let in_force = Row { limit: answer.limit, figures: simulator.corrected(check.figures) };
    let row =
        |limit: Limit| if limit == in_force.limit { Some(in_force.clone()) } else { simulator.row(limit) };
    answer.rows = simulator.quotas().into_iter().filter_map(|cpus| row(simulator.limit(cpus))).collect();
    if answer.is_demand_unknown() {
        return;
    }
    answer.least = simulator.least(&[&answer.rows[..], &[in_force]].concat());
    if recorded_share > question.target {
        answer.burst = simulator.burst();
        let most = (answer.limit.cpus() + 0.01).max(1.0) as u32;
        if question.threads.is_none() && answer.at_once.is_some_and(|tasks| tasks > most) {
            simulator.replays = simulator.replays(Some(most));
            answer.fewer = simulator.row(answer.limit).map(|row| (most, row));
        }
    }
}

/// What was asked about a cgroup, ready to be simulated under any limit.
struct Simulator<'d> {
    demand: &'d Demand<'d>,
    question: &'d Question,
    /// The limit in force.
    limit: Limit,
    /// Whether requests queue in the program, for each cgroup.
    has_queue: Vec<bool>,
    may_sleep: bool,
    /// One for each assumption. Equal ones are left out.
    replays: Vec<Replay>,
    loops: Vec<Loop>,
    phases: u32,
    /// How the limit in force came out, if known. Bounds are wider by as much as it is off.
    check: Option<Check>,
    do_tasks_sleep: bool,
}

impl<'d> Simulator<'d> {
    fn new(demand: &'d Demand<'d>, question: &'d Question, limit: Limit, may_sleep: bool) -> Self {
        let (mut loops, has_queue) = demand.arrivals(question.arrivals);
        if may_sleep && question.arrivals.is_none() {
            loops = Loop::BOTH.to_vec();
        }
        let mut this = Self {
            demand,
            question,
            limit,
            has_queue,
            may_sleep,
            replays: Vec::new(),
            loops,
            phases: PHASES,
            check: None,
            do_tasks_sleep: false,
        };
        this.replays = this.replays(question.threads);
        this
    }

    /// Prepares the demand, with at most this number of tasks at once.
    fn replays(&self, threads: Option<u32>) -> Vec<Replay> {
        let assumptions = [Assumption::NeighboursYield, Assumption::NeighboursStay, Assumption::AlwaysBusy];
        let count = if self.may_sleep { 3 } else { 2 };
        let mut trees: Vec<Tree> = Vec::new();
        for assumption in &assumptions[..count] {
            let mut tree = self.demand.tree(&self.has_queue, *assumption);
            tree.nodes[self.demand.target.at].threads = threads;
            if !trees.contains(&tree) {
                trees.push(tree);
            }
        }
        // Each tree is freed once it is ready.
        trees.into_iter().map(|tree| Replay::new(&tree)).collect()
    }

    /// Simulates the limit in force, and chooses the loops and phases for other limits. If one loop fits and the other does not, only that
    /// one, unless tasks may sleep because others are throttled: then neither is right.
    fn check(&mut self, compare: impl Fn(Figures) -> Check) -> Option<Check> {
        let fits = |outcomes: &[Outcome]| Figures::of(outcomes).is_some_and(|one| compare(one).agrees());
        let mut of_loops: Vec<(Loop, Vec<Outcome>)> = Vec::new();
        for one in self.loops.clone() {
            let mut outcomes = self.outcomes(self.limit, &[one], PHASES);
            if !self.may_sleep && !fits(&outcomes) {
                outcomes = self.outcomes(self.limit, &[one], MANY_PHASES);
                if fits(&outcomes) {
                    self.phases = MANY_PHASES;
                }
            }
            of_loops.push((one, outcomes));
        }
        if !self.may_sleep && of_loops.iter().any(|(_, outcomes)| fits(outcomes)) {
            of_loops.retain(|(_, outcomes)| fits(outcomes));
        }
        self.loops = of_loops.iter().map(|(one, _)| *one).collect();
        let outcomes: Vec<Outcome> = of_loops.into_iter().flat_map(|(_, outcomes)| outcomes).collect();
        Figures::of(&outcomes).map(compare)
    }

    fn run(&self, limit: Limit, (replay, setting): (&Replay, Setting)) -> Option<Outcome> {
        let (mut limits, at) = (self.demand.limits(), self.demand.target.at);
        limits[at] = Some(limit);
        replay.run(&limits, &setting).map(|mut outcomes| outcomes.swap_remove(at))
    }

    /// Each assumption in each setting.
    fn cells(&self, limit: Limit, loops: &[Loop], phases: u32) -> Vec<(&Replay, Setting)> {
        let settings = settings(loops, phases, self.demand.target.at, limit.period_ns);
        self.replays
            .iter()
            .flat_map(|replay| settings.iter().map(move |setting| (replay, *setting)))
            .collect()
    }

    fn outcomes(&self, limit: Limit, loops: &[Loop], phases: u32) -> Vec<Outcome> {
        let outcomes = parallel(&self.cells(limit, loops, phases), |cell| self.run(limit, *cell));
        outcomes.into_iter().flatten().collect()
    }

    /// What another limit would have done. A limit that is too short for the kernel has no outcomes.
    fn row(&self, limit: Limit) -> Option<Row> {
        let mut outcomes = Vec::new();
        if self.demand.span_ns > LONG_NS && self.phases == PHASES {
            outcomes = self.outcomes(limit, &self.loops, FEW_PHASES);
        }
        let is_close = |figure: &dyn Fn(&Outcome) -> f64, outcomes: &[Outcome]| {
            Bounds::of(outcomes.iter().map(figure)).is_some_and(|found| found.high - found.low <= SMALL)
        };
        let is_near = |outcomes: &[Outcome]| {
            is_close(&Outcome::throttled_share, outcomes)
                && is_close(&|outcome| outcome.throttled_ns_per_s() / 1e9, outcomes)
        };
        if outcomes.is_empty() || !outcomes.chunks(FEW_PHASES as usize).all(is_near) {
            outcomes = self.outcomes(limit, &self.loops, self.phases);
        }
        let figures = Figures::of(&outcomes)?;
        Some(Row { limit, figures: self.corrected(figures) })
    }

    /// The same if the limit meets the target.
    fn enough(&self, limit: Limit) -> Option<Row> {
        let meets = |outcomes: &[Outcome]| {
            let figures = self.corrected(Figures::of(outcomes)?);
            (figures.throttled_share.high <= self.question.target).then_some(Row { limit, figures })
        };
        // One cell above the target decides.
        let is_decided = AtomicBool::new(false);
        let run = |cell: &(&Replay, Setting)| {
            let outcome = if is_decided.load(Relaxed) { None } else { self.run(limit, *cell) };
            is_decided
                .fetch_or(outcome.as_ref().and_then(|one| meets(slice::from_ref(one))).is_none(), Relaxed);
            outcome
        };
        let cells = self.cells(limit, &self.loops, self.phases);
        let outcomes: Option<Vec<Outcome>> = parallel(&cells, run).into_iter().collect();
        meets(&outcomes?)
    }

    fn corrected(&self, figures: Figures) -> Figures {
        let mut figures = self.check.map_or(figures, |check| check.widened(figures));
        if self.do_tasks_sleep {
            // A CPU whose tasks all sleep does not count as throttled.
            let throttled = &mut figures.throttled_ns_per_s;
            throttled.low = throttled.low.min(figures.limited_ns_per_s.low);
        }
        figures
    }

    fn limit(&self, cpus: f64) -> Limit {
        let period_ns = self.question.period_ns.unwrap_or(self.limit.period_ns);
        self.with_quota((cpus * period_ns as f64).round().max(1.0) as u64)
    }

    /// The limit in question with this quota. The kernel allows no burst above it.
    fn with_quota(&self, quota_ns: u64) -> Limit {
        let period_ns = self.question.period_ns.unwrap_or(self.limit.period_ns);
        let burst_ns = self.question.burst_ns.unwrap_or(self.limit.burst_ns).min(quota_ns);
        Limit { quota_ns, period_ns, burst_ns }
    }

    /// The quotas of the table, CPUs.
    fn quotas(&self) -> Vec<f64> {
        if !self.question.quotas.is_empty() {
            return self.question.quotas.clone();
        }
        let most = self.demand.cpus().max(self.limit.cpus());
        MULTIPLES.iter().map(|times| times * self.limit.cpus()).filter(|cpus| *cpus <= most * 1.001).collect()
    }

    /// The quotas to search, in rising order, ns.
    fn grid(&self) -> Vec<u64> {
        let step = STEPS.into_iter().find(|step| step * 9.999 <= self.limit.cpus()).unwrap_or(LEAST_STEP);
        let steps = 1..=(self.demand.cpus() / step).ceil() as u64;
        let quotas = steps.map(|steps| self.limit(steps as f64 * step).quota_ns);
        quotas.filter(|quota_ns| *quota_ns >= Limit::LEAST_NS).collect()
    }

    /// The least quota that meets the target, whatever neighbours do. `rows`: what was simulated already.
    fn least(&self, rows: &[Row]) -> Option<Row> {
        let grid = self.grid();
        let rows = rows.iter().filter(|row| row.limit == self.with_quota(row.limit.quota_ns));
        let (enough, less): (Vec<&Row>, Vec<&Row>) =
            rows.partition(|row| row.figures.throttled_share.high <= self.question.target);
        let least = enough.iter().map(|row| row.limit.quota_ns).min();
        let less = less.iter().map(|row| row.limit.quota_ns);
        let below = less.filter(|quota_ns| least.is_none_or(|least| *quota_ns < least)).max();
        let low = grid.partition_point(|quota_ns| Some(*quota_ns) <= below);
        let high = grid.partition_point(|quota_ns| least.is_none_or(|least| *quota_ns < least));
        let enough = |at: usize| self.enough(self.with_quota(grid[at]));
        // If that of a row is not enough after all, the least one is higher.
        let until = (high + 1).min(grid.len());
        first(low..until, enough).or_else(|| first(until..grid.len(), enough))
    }

    /// The least burst that meets the target with the quota in force.
    fn burst(&self) -> Option<Row> {
        let Question { burst_ns: None, period_ns: None, .. } = self.question else { return None };
        let quota_ns = self.limit.quota_ns;
        let with = |parts: usize| Limit { burst_ns: quota_ns * parts as u64 / BURSTS, ..self.limit };
        let least = (self.limit.burst_ns * BURSTS / quota_ns + 1) as usize;
        if least > BURSTS as usize {
            return None;
        }
        let most = self.enough(with(BURSTS as usize))?;
        Some(first(least..BURSTS as usize, |parts| self.enough(with(parts))).unwrap_or(most))
    }
}

/// The value of the first place that has one, if all later places have one, too.
fn first<T>(mut places: Range<usize>, value: impl Fn(usize) -> Option<T>) -> Option<T> {
    let mut found = None;
    while !places.is_empty() {
        let middle = places.start.midpoint(places.end);
        match value(middle) {
            Some(value) => (found, places.end) = (Some(value), middle),
            None => places.start = middle + 1,
        }
    }
    found
}

/// Runs all jobs, on as many threads as there are CPUs, but at most four. The results are in the order of the jobs.
fn parallel<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let next = || {
            let at = next.fetch_add(1, Relaxed);
            Some((at, run(jobs.get(at)?)))
        };
        iter::from_fn(next).collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(jobs.len());
    let mut done = thread::scope(|scope| {
        let work = &work;
        // If there can be no more threads, this one does it all.
        let more = (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok());
        let others: Vec<_> = more.collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests;
