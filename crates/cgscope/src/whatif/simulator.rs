//! The simulations for one cgroup.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use cgscope_whatif::{Cells as Settings, Check, Figures, Limit, Loop, Outcome, Replay, Setting, Tree};

use super::{
    answer::{Answer, Question, Row, Target},
    history::{Assumption, History},
    parallel::parallel,
    part,
};

/// Quotas of the table, as multiples of the one in force.
const MULTIPLES: [f64; 8] = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0];
/// Steps of the search for the least quota, CPUs: the largest that is at most a tenth of the quota in force.
const STEPS: [f64; 8] = [5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02];
const LEAST_STEP: f64 = 0.01;

/// Number of phases if none of the usual ones reproduces the limit in force. A load on a clock may meet a few phases only, and throttled
/// times may differ by 10 % from one usual phase to the next.
const MANY_PHASES: u32 = 55;

/// Number of cells that are simulated before it is looked whether a quota is enough.
const TOGETHER: usize = 4;

/// A setting under an assumption: the index of its replay.
type Cell = (usize, Setting);

/// What to simulate with a limit.
struct Cells {
    limit: Limit,
    /// Those in which most periods of a part were throttled come first.
    cells: Vec<Cell>,
    /// For each phase, the cell in which most periods of a part of the history were throttled. Empty if `cells` has all.
    phases: Vec<Cell>,
    /// Nothing was throttled in that part.
    is_free: bool,
}

/// A quota of the search.
struct Tried {
    limit: Limit,
    outcomes: Vec<Outcome>,
    /// [`Cells::phases`] that were not simulated.
    phases: Vec<Cell>,
}

/// What was asked about a cgroup, ready to be simulated under any limit.
pub struct Simulator<'q> {
    /// The limits in force.
    limits: Vec<Option<Limit>>,
    /// One for each assumption. Equal ones are left out.
    replays: Vec<Replay>,
    /// The same for a part of a long history.
    parts: Vec<Replay>,
    /// The most CPUs that the cgroup can use.
    cpus: f64,
    at: usize,
    pub question: &'q Question,
    /// The limit in force.
    pub limit: Limit,
    settings: Settings,
    /// The bounds with the limit in force.
    pub in_force: Option<Figures>,
    /// What is known about how far bounds are off.
    pub correction: Correction,
    /// Simulations of the whole history so far, which take most of the time.
    simulated: AtomicUsize,
}

/// What widens the bounds of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Correction {
    /// How the limit in force came out.
    pub check: Option<Check>,
    /// Several tasks could run at once, and are no busy loops: a CPU whose tasks all sleep does not count as throttled.
    pub do_tasks_sleep: bool,
}

impl Correction {
    pub fn apply(&self, figures: Figures) -> Figures {
        let mut figures = self.check.map_or(figures, |check| check.widened(figures));
        if self.do_tasks_sleep {
            let throttled = &mut figures.throttled_ns_per_s;
            throttled.low = throttled.low.min(figures.limited_ns_per_s.low);
        }
        figures
    }
}

impl<'q> Simulator<'q> {
    pub fn new(
        history: &History,
        target: &Target,
        question: &'q Question,
        limit: Limit,
        may_sleep: bool,
    ) -> Option<Self> {
        let trees = trees(history, target, question, may_sleep);
        let parts: Option<Vec<Tree>> = trees.iter().map(part::of).collect();
        let ready = |trees: &[Tree]| {
            parallel(trees, |tree| Replay::new(tree).ok()).into_iter().collect::<Option<_>>()
        };
        let loops = match may_sleep {
            true => Settings::default().loops,
            false => history.loops(target.family[target.at].0, question.arrivals),
        };
        Some(Self {
            limits: trees[0].limits(),
            replays: ready(&trees)?,
            parts: ready(&parts.unwrap_or_default())?,
            cpus: trees[0].capacity.iter().copied().fold(0.0, f64::max),
            at: target.at,
            question,
            limit,
            settings: Settings { loops, ..Settings::default() },
            in_force: None,
            correction: Correction::default(),
            simulated: AtomicUsize::new(0),
        })
    }

    pub fn loops(&self) -> &[Loop] {
        &self.settings.loops
    }

    /// Simulates only these loops from now on.
    pub fn only(&mut self, loops: &[Loop]) {
        self.settings.loops = loops.to_vec();
    }

    /// Simulates the limit in force, and compares it with what was recorded: the share of periods, and the throttled time, ns per s.
    pub fn check(&mut self, recorded_share: f64, recorded_ns_per_s: f64, may_sleep: bool) -> Option<Check> {
        let compare = |figures: Figures| Check {
            share: figures.throttled_share,
            recorded_share,
            throttled_ns_per_s: figures.throttled_ns_per_s,
            recorded_ns_per_s,
        };
        let agrees = |outcomes: &[Outcome]| Figures::of(outcomes).is_some_and(|one| compare(one).agrees());
        let of_loops = self.fitting_loops(may_sleep, agrees);
        self.settings.loops = of_loops.iter().map(|(one, _)| *one).collect();
        let outcomes: Vec<Outcome> = of_loops.into_iter().flat_map(|(_, outcomes)| outcomes).collect();
        self.in_force = Figures::of(&outcomes);
        self.in_force.map(compare)
    }

    /// The outcomes of each loop with the limit in force. If one fits and the other does not, only that one, unless tasks may sleep because
    /// others are throttled: then neither is right.
    fn fitting_loops(
        &mut self,
        may_sleep: bool,
        fits: impl Fn(&[Outcome]) -> bool,
    ) -> Vec<(Loop, Vec<Outcome>)> {
        let loops = self.settings.loops.clone();
        let mut of_loops: Vec<_> = loops.iter().map(|one| (*one, self.outcomes(*one, self.limit))).collect();
        // A long history is not even simulated at all usual phases.
        if may_sleep || !self.parts.is_empty() {
            return of_loops;
        }
        let usual = std::mem::replace(&mut self.settings.phases, MANY_PHASES);
        let mut needs_many = false;
        for (one, outcomes) in of_loops.iter_mut().filter(|(_, outcomes)| !fits(outcomes)) {
            *outcomes = self.outcomes(*one, self.limit);
            needs_many |= fits(outcomes);
        }
        if !needs_many {
            self.settings.phases = usual;
        }
        if of_loops.iter().any(|(_, outcomes)| fits(outcomes)) {
            of_loops.retain(|(_, outcomes)| fits(outcomes));
        }
        of_loops
    }

    /// The outcomes of one loop.
    fn outcomes(&mut self, of: Loop, limit: Limit) -> Vec<Outcome> {
        self.settings.loops = vec![of];
        let cells = self.cells(&[limit]).pop().map(|cells| cells.cells).unwrap_or_default();
        self.whole(&[(limit, cells)]).pop().unwrap_or_default()
    }

    fn with(&self, limit: Limit) -> Vec<Option<Limit>> {
        let mut limits = self.limits.clone();
        limits[self.at] = Some(limit);
        limits
    }

    /// Simulates cells of several limits at the same time. Returns the outcomes in the same order.
    fn simulate(&self, replays: &[Replay], all: &[(Limit, Vec<Cell>)]) -> Vec<Vec<Outcome>> {
        let jobs: Vec<(Limit, Cell)> =
            all.iter().flat_map(|(limit, cells)| cells.iter().map(|cell| (*limit, *cell))).collect();
        let run = |(limit, (replay, setting)): &(Limit, Cell)| {
            let outcomes = replays[*replay].run(&self.with(*limit), setting);
            outcomes.ok().map(|mut outcomes| outcomes.swap_remove(self.at))
        };
        let mut outcomes = parallel(&jobs, run).into_iter();
        all.iter().map(|(_, cells)| outcomes.by_ref().take(cells.len()).flatten().collect()).collect()
    }

    /// The cells of each limit. For a long history, these are the cells at the bounds of a part of it.
    fn cells(&self, limits: &[Limit]) -> Vec<Cells> {
        let all = |limit: &Limit| {
            let settings: Vec<Setting> = self.settings.settings(self.at, limit.period_ns).collect();
            let replays = 0..self.replays.len();
            replays.flat_map(|replay| settings.iter().map(move |setting| (replay, *setting))).collect()
        };
        let all: Vec<(Limit, Vec<Cell>)> = limits.iter().map(|limit| (*limit, all(limit))).collect();
        if self.parts.is_empty() {
            let whole = |(limit, cells)| Cells { limit, cells, phases: Vec::new(), is_free: false };
            return all.into_iter().map(whole).collect();
        }
        let parts = self.simulate(&self.parts, &all);
        all.into_iter()
            .zip(parts)
            .map(|((limit, cells), outcomes)| chosen(limit, &cells, &outcomes))
            .collect()
    }

    /// Simulates the whole history.
    fn whole(&self, all: &[(Limit, Vec<Cell>)]) -> Vec<Vec<Outcome>> {
        self.simulated.fetch_add(all.iter().map(|(_, cells)| cells.len()).sum(), Relaxed);
        self.simulate(&self.replays, all)
    }

    /// The bounds with other limits, which differ in the quota alone and are in rising order. Where nothing is throttled, more quota
    /// changes nothing.
    fn bounds(&self, limits: &[Limit]) -> Vec<Option<Figures>> {
        let mut left = self.cells(limits).into_iter();
        let mut found = Vec::new();
        while found.len() < limits.len() {
            // With these, more is throttled than with the last one.
            let mut now = Vec::new();
            for Cells { limit, cells, is_free, .. } in left.by_ref() {
                now.push((limit, cells));
                if is_free {
                    break;
                }
            }
            let outcomes = self.whole(&now);
            found.extend(outcomes.iter().map(|outcomes| self.figures_of(outcomes)));
            let last = outcomes.last().filter(|last| !last.is_empty() && last.iter().all(Outcome::is_free));
            if let Some(last) = last {
                found.extend(limits[found.len()..].iter().map(|limit| {
                    let higher: Vec<Outcome> =
                        last.iter().map(|outcome| outcome.under_higher(limit)).collect();
                    self.figures_of(&higher)
                }));
            }
        }
        found
    }

    fn figures_of(&self, outcomes: &[Outcome]) -> Option<Figures> {
        Figures::of(outcomes).map(|figures| self.correction.apply(figures))
    }

    /// The bounds with another limit.
    pub fn figures(&self, limit: Limit) -> Option<Figures> {
        self.bounds(&[limit]).pop().flatten()
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

    fn quotas(&self) -> Vec<f64> {
        if !self.question.quotas.is_empty() {
            return self.question.quotas.clone();
        }
        let most = self.cpus.max(self.limit.cpus());
        MULTIPLES.iter().map(|times| times * self.limit.cpus()).filter(|cpus| *cpus <= most * 1.001).collect()
    }

    /// Simulates other limits.
    pub fn fill(&self, answer: &mut Answer) {
        let asked: Vec<Limit> = self.quotas().into_iter().map(|cpus| self.limit(cpus)).collect();
        let mut rising: Vec<Limit> = asked.iter().copied().filter(|limit| *limit != self.limit).collect();
        rising.sort_by_key(|limit| limit.quota_ns);
        let bounds = self.bounds(&rising);
        let known = rising
            .into_iter()
            .zip(bounds)
            .chain([(self.limit, self.in_force.map(|figures| self.correction.apply(figures)))]);
        let known: Vec<Row> =
            known.filter_map(|(limit, figures)| Some(Row { limit, figures: figures? })).collect();
        let row = |limit: &Limit| known.iter().find(|row| row.limit == *limit).cloned();
        answer.rows = asked.iter().filter_map(row).collect();
        answer.least = self.least(&known);
    }

    /// The least quota that meets the target, whatever neighbours do. `rows`: what was simulated already.
    fn least(&self, rows: &[Row]) -> Option<Row> {
        let is_alike = |row: &&Row| row.limit == self.with_quota(row.limit.quota_ns);
        let mut known: BTreeMap<u64, bool> = rows
            .iter()
            .filter(is_alike)
            .map(|row| (row.limit.quota_ns, self.is_enough(&row.figures)))
            .collect();
        let (grid, mut worst) = (self.grid(), Vec::new());
        let mut least_tried: Option<Tried> = None;
        loop {
            let least = known.iter().find(|(_, is_enough)| **is_enough).map(|(quota_ns, _)| *quota_ns);
            let below = known.range(..least.unwrap_or(u64::MAX)).next_back().map(|(quota_ns, _)| *quota_ns);
            let low = grid.partition_point(|quota_ns| Some(*quota_ns) <= below);
            let high = least.map_or(grid.len(), |least| grid.partition_point(|quota_ns| *quota_ns < least));
            let quota_ns = *grid.get(if low < high { low.midpoint(high) } else { high })?;
            let limit = self.with_quota(quota_ns);
            let again = least_tried.take_if(|tried| tried.limit == limit);
            let mut tried = again.or_else(|| self.tried(limit, &worst))?;
            let mut is_enough = self.is_enough(&self.figures_of(&tried.outcomes)?);
            if is_enough && low >= high {
                worst.extend(self.try_phases(&mut tried));
                let row = Row { limit, figures: self.figures_of(&tried.outcomes)? };
                is_enough = self.is_enough(&row.figures);
                if is_enough {
                    return Some(row);
                }
            } else if is_enough {
                least_tried = Some(tried);
            }
            if !is_enough {
                // A row of the table may contradict it by a few periods. It may be between two quotas of the grid.
                known.range_mut(..quota_ns).for_each(|(_, is_enough)| *is_enough = false);
            }
            known.insert(quota_ns, is_enough);
        }
    }

    fn is_enough(&self, figures: &Figures) -> bool {
        figures.throttled_share.high <= self.question.target
    }

    /// Tries a quota. `more`: cells to simulate besides those that are chosen.
    fn tried(&self, limit: Limit, more: &[Cell]) -> Option<Tried> {
        let Cells { mut cells, mut phases, .. } = self.cells(&[limit]).pop()?;
        cells.extend(more.iter().filter(|_| !phases.is_empty()));
        phases.retain(|phase| !cells.contains(phase));
        let mut outcomes = Vec::new();
        for cells in cells.chunks(TOGETHER) {
            outcomes.extend(self.whole(&[(limit, cells.to_vec())]).pop()?);
            if !self.is_enough(&self.figures_of(&outcomes)?) {
                // More cells would not change that.
                break;
            }
        }
        Some(Tried { limit, outcomes, phases })
    }

    /// Simulates the other phases: a part of a history does not show well enough which one is the worst. Returns that one.
    fn try_phases(&self, tried: &mut Tried) -> Option<Cell> {
        let outcomes = self.whole(&[(tried.limit, tried.phases.clone())]).pop()?;
        let shares = outcomes.iter().map(Outcome::throttled_share).zip(&tried.phases);
        let worst = shares.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, cell)| *cell);
        tried.outcomes.extend(outcomes);
        worst
    }

    /// The quotas to search, in rising order, ns.
    fn grid(&self) -> Vec<u64> {
        let step = STEPS.into_iter().find(|step| step * 9.999 <= self.limit.cpus()).unwrap_or(LEAST_STEP);
        let steps = 1..=(self.cpus / step).ceil() as u64;
        let quotas = steps.map(|steps| self.limit(steps as f64 * step).quota_ns);
        quotas.filter(|quota_ns| *quota_ns >= Limit::LEAST_NS).collect()
    }
}

/// The cells of a long history with a limit, from their outcomes in a part of it.
fn chosen(limit: Limit, cells: &[Cell], outcomes: &[Outcome]) -> Cells {
    let mut at_bounds = part::at_bounds(outcomes, |at| cells[at].1.replay);
    if outcomes.iter().any(part::is_nearly_used_up) {
        // Late work takes minutes to be done, and a part does not show in which phase it is most or least.
        let open = (0..cells.len()).filter(|at| cells[*at].0 == 0 && cells[*at].1.replay == Loop::Open);
        at_bounds.extend(open);
        at_bounds.sort_unstable();
        at_bounds.dedup();
    }
    let share = |at: &usize| outcomes[*at].throttled_share();
    at_bounds.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let of = |places: Vec<usize>| places.into_iter().map(|at| cells[at]).collect();
    Cells {
        limit,
        phases: of(part::worst_by(outcomes, |at| (cells[at].1.phase_ns, cells[at].1.spread_ns))),
        is_free: outcomes.iter().all(Outcome::is_free),
        cells: of(at_bounds),
    }
}

/// What is simulated: a tree for each assumption. Equal ones are left out.
fn trees(history: &History, target: &Target, question: &Question, may_sleep: bool) -> Vec<Tree> {
    let assumptions = [Assumption::NeighboursYield, Assumption::NeighboursStay, Assumption::AlwaysBusy];
    let has_queue =
        history.queues(&target.family, |at| at == target.at && question.arrivals == Some(Loop::Open));
    let count = if may_sleep { 3 } else { 2 };
    let trees = parallel(&assumptions[..count], |assumption| {
        let mut tree = history.tree(&target.family, &has_queue, *assumption);
        tree.nodes[target.at].threads = question.threads;
        tree
    });
    distinct(trees)
}

/// Leaves out trees that are equal to an earlier one.
fn distinct(trees: Vec<Tree>) -> Vec<Tree> {
    let mut distinct: Vec<Tree> = Vec::new();
    for tree in trees {
        if !distinct.contains(&tree) {
            distinct.push(tree);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use cgscope_made_up::demand::Limited;
    use cgscope_whatif::Bounds;

    use super::*;

    static QUESTION: Question = Question::PLAIN;

    /// 11 minutes of cgroups with different loads, with each one as a target.
    fn recorded() -> (History, Vec<Target>) {
        let mut history = History::default();
        Limited::new(11).take(660).for_each(|sample| history.add(&sample));
        let target = |id: &u64| Target { path: String::new(), family: vec![(*id, None)], at: 0 };
        let targets = history.cgroups.keys().filter(|id| **id < 1_011).map(target).collect();
        (history, targets)
    }

    /// The rows of the table, and the number of simulations of the whole history.
    fn rows(simulator: &Simulator<'_>) -> (Vec<Row>, usize) {
        let limits: Vec<Limit> = simulator.quotas().into_iter().map(|cpus| simulator.limit(cpus)).collect();
        let before = simulator.simulated.load(Relaxed);
        let figures = simulator.bounds(&limits);
        let rows = limits.into_iter().zip(figures);
        let rows = rows.map(|(limit, figures)| Row { limit, figures: figures.expect("cells") });
        (rows.collect(), simulator.simulated.load(Relaxed) - before)
    }

    /// By how much bounds differ.
    fn off(a: Bounds<f64>, b: Bounds<f64>) -> f64 {
        (a.low - b.low).abs().max((a.high - b.high).abs())
    }

    #[test]
    fn a_few_cells_of_a_long_history_have_the_bounds_of_all() {
        let (history, targets) = recorded();
        let (mut few, mut all, mut points) = (0, 0, [0.0f64; 3]);
        for target in &targets {
            let limit = history.cgroups[&target.family[0].0].limit().expect("a limit");
            let mut simulator =
                Simulator::new(&history, target, &QUESTION, limit, false).expect("a simulation");
            let (quick, simulated) = rows(&simulator);
            few += simulated;
            simulator.parts.clear();
            let (whole, simulated) = rows(&simulator);
            all += simulated;
            for (quick, whole) in quick.iter().zip(&whole) {
                let (a, b) = (&quick.figures, &whole.figures);
                let unused = |figures: &Figures| figures.unused_share.expect("a limit");
                let off = [
                    off(a.throttled_share, b.throttled_share),
                    off(a.throttled_ns_per_s, b.throttled_ns_per_s) / 1e9,
                    off(unused(a), unused(b)),
                ];
                assert!(
                    off.iter().all(|off| *off <= 0.02),
                    "{target:?} {limit:?}: {a:?}, of all cells {b:?}"
                );
                points.iter_mut().zip(off).for_each(|(most, off)| *most = most.max(off));
            }
        }
        println!("{few} simulations instead of {all}; off by at most {points:?}");
        assert!(few * 4 <= all, "{few} simulations instead of {all}");
    }

    #[test]
    fn a_row_between_two_quotas_of_the_grid_that_contradicts_them_does_not_mislead_the_search() {
        let mut history = History::default();
        Limited::new(11).take(20).for_each(|sample| history.add(&sample));
        for id in history.cgroups.keys().filter(|id| **id < 1_011) {
            let target = Target { path: String::new(), family: vec![(*id, None)], at: 0 };
            let limit = history.cgroups[id].limit().expect("a limit");
            let simulator = Simulator::new(&history, &target, &QUESTION, limit, false).expect("a simulation");
            let Some(least) = simulator.least(&[]) else { continue };
            let grid = simulator.grid();
            let free = simulator.figures(simulator.limit(simulator.cpus)).expect("cells");
            for quota_ns in grid.iter().take_while(|quota_ns| **quota_ns < least.limit.quota_ns) {
                let row = Row { limit: simulator.with_quota(quota_ns - 1), figures: free };
                assert_eq!(
                    simulator.least(&[row]).map(|row| row.limit),
                    Some(least.limit),
                    "{id}: {quota_ns}"
                );
            }
        }
    }

    #[test]
    fn the_least_quota_takes_few_simulations() {
        let (history, targets) = recorded();
        for target in &targets {
            let limit = history.cgroups[&target.family[0].0].limit().expect("a limit");
            let simulator = Simulator::new(&history, target, &QUESTION, limit, false).expect("a simulation");
            let (known, before) = rows(&simulator);
            let least = simulator.least(&known).expect("a quota");
            let share = |quota_ns: u64| {
                let figures = simulator.bounds(&[Limit { quota_ns, ..limit }]).pop().flatten();
                figures.expect("cells").throttled_share.high
            };
            let simulated = simulator.simulated.load(Relaxed) - before;
            assert!(simulated <= 60, "{target:?}: {simulated}");
            let grid = simulator.grid();
            let at = grid.iter().position(|quota_ns| *quota_ns == least.limit.quota_ns).expect("in the grid");
            assert!(share(grid[at]) <= 0.01, "{target:?} {least:?}");
            assert!(at == 0 || share(grid[at - 1]) > 0.01, "{target:?} {least:?}");
        }
    }
}
