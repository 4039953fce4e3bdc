//! The simulations for one cgroup.

mod search;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{
    Cells as Settings, Check, Figures, Limit, Loop, Outcome, Replay, Setting, Tree,
    answer::{Answer, Question, Row, Target},
    history::{Assumption, History},
    parallel::parallel,
    part,
};

/// Quotas of the table, as multiples of the one in force.
const MULTIPLES: [f64; 8] = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0];

/// Number of phases if none of the usual ones reproduces the limit in force. A load on a clock may meet a few phases only, and throttled
/// times may differ by 10 % from one usual phase to the next.
const MANY_PHASES: u32 = 55;

/// A setting under an assumption: the index of its replay.
type Cell = (usize, Setting);

/// What to simulate with a limit.
#[derive(Clone)]
struct Cells {
    limit: Limit,
    /// Those in which most periods of a part were throttled come first.
    cells: Vec<Cell>,
    /// All phases of the cell in which most periods of a part of the history were throttled. Empty if `cells` has all.
    phases: Vec<Cell>,
    /// The highest share of throttled periods in that part.
    share: f64,
    /// Nothing was throttled in that part.
    is_free: bool,
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
    in_force: Option<Figures>,
    /// What is known about how far bounds are off.
    pub correction: Correction,
    /// Simulations of the whole history so far, which take most of the time.
    simulated: AtomicUsize,
}

impl<'q> Simulator<'q> {
    pub fn new(
        history: &History,
        target: &Target,
        question: &'q Question,
        limit: Limit,
        may_sleep: bool,
    ) -> Option<Self> {
        let (loops, has_queue) = history.arrivals(&target.family, target.at, question.arrivals);
        let loops = match question.arrivals {
            None if may_sleep => Settings::default().loops,
            _ => loops,
        };
        let trees = trees(history, target, &has_queue, question.threads, may_sleep);
        let (limits, capacity) = (trees[0].limits(), trees[0].capacity.clone());
        let parts: Option<Vec<Tree>> = trees.iter().map(part::of).collect();
        // Each tree is freed once it is ready: those of an hour take many megabytes.
        let ready =
            |trees: Vec<Tree>| trees.into_iter().map(|tree| Replay::new(&tree).ok()).collect::<Option<_>>();
        Some(Self {
            limits,
            replays: ready(trees)?,
            parts: ready(parts.unwrap_or_default())?,
            cpus: capacity.into_iter().fold(0.0, f64::max),
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

    /// A copy with at most this number of tasks of the cgroup at once. The question has no number of threads.
    pub fn with_threads(&self, threads: u32) -> Self {
        let fewer = |replays: &[Replay]| parallel(replays, |replay| replay.with_threads(self.at, threads));
        Self {
            limits: self.limits.clone(),
            replays: fewer(&self.replays),
            parts: fewer(&self.parts),
            settings: self.settings.clone(),
            simulated: AtomicUsize::new(0),
            ..*self
        }
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
        let cells =
            self.cells(&[limit], self.settings.phases).pop().map(|cells| cells.cells).unwrap_or_default();
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

    /// The cells of each limit. For a long history, these are the cells at the bounds of a part of it, which is simulated at `phases_of_part`
    /// phases.
    fn cells(&self, limits: &[Limit], phases_of_part: u32) -> Vec<Cells> {
        if self.parts.is_empty() {
            let whole = |limit: &Limit| Cells {
                limit: *limit,
                cells: self.at_phases(limit, self.settings.phases),
                phases: Vec::new(),
                share: 0.0,
                is_free: false,
            };
            return limits.iter().map(whole).collect();
        }
        let few = |limit: &Limit| (*limit, self.at_phases(limit, phases_of_part));
        let few: Vec<(Limit, Vec<Cell>)> = limits.iter().map(few).collect();
        let outcomes = self.simulate(&self.parts, &few);
        few.into_iter()
            .zip(outcomes)
            .map(|((limit, few), outcomes)| self.chosen(limit, &few, &outcomes))
            .collect()
    }

    /// All cells at this number of phases.
    fn at_phases(&self, limit: &Limit, phases: u32) -> Vec<Cell> {
        let settings = Settings { phases, ..self.settings.clone() };
        let settings: Vec<Setting> = settings.settings(self.at, limit.period_ns).collect();
        let replays = 0..self.replays.len();
        replays.flat_map(|replay| settings.iter().map(move |setting| (replay, *setting))).collect()
    }

    /// The cells of a long history with a limit, from the outcomes of a few in a part of it.
    fn chosen(&self, limit: Limit, few: &[Cell], outcomes: &[Outcome]) -> Cells {
        let at_bounds = part::at_bounds(outcomes, |at| few[at].1.replay);
        let share = |at: &usize| outcomes[*at].throttled_share();
        // A limit that is too short for the kernel has no outcomes.
        let mut by_share: Vec<usize> = (0..outcomes.len()).collect();
        by_share.sort_by(|a, b| share(b).total_cmp(&share(a)));
        let mut cells: Vec<Cell> =
            by_share.iter().filter(|at| at_bounds.contains(at)).map(|at| few[*at]).collect();
        let all = self.at_phases(&limit, self.settings.phases);
        let is_throttled = outcomes.iter().any(|outcome| outcome.throttled_ns != 0);
        if is_throttled && outcomes.iter().any(part::is_nearly_used_up) {
            // Late work takes minutes to be done, and a part does not show in which phase it is most or least.
            let open = all.iter().filter(|(replay, setting)| *replay == 0 && setting.replay == Loop::Open);
            let more: Vec<Cell> = open.filter(|cell| !cells.contains(cell)).copied().collect();
            cells.extend(more);
        }
        let worst = by_share.first().map(|at| few[*at]);
        let is_worst =
            |cell: &Cell| worst.is_some_and(|worst| cell.0 == worst.0 && cell.1.replay == worst.1.replay);
        Cells {
            limit,
            cells,
            phases: all.into_iter().filter(is_worst).collect(),
            share: by_share.first().map_or(0.0, share),
            is_free: outcomes.iter().all(|outcome| outcome.is_free),
        }
    }

    /// Simulates the whole history.
    fn whole(&self, all: &[(Limit, Vec<Cell>)]) -> Vec<Vec<Outcome>> {
        self.simulated.fetch_add(all.iter().map(|(_, cells)| cells.len()).sum(), Relaxed);
        self.simulate(&self.replays, all)
    }

    /// The bounds with other limits, which differ in the quota alone and are in rising order. Where nothing is throttled, more quota
    /// changes nothing.
    fn bounds(&self, limits: &[Limit]) -> Vec<Option<Figures>> {
        let mut left = self.cells(limits, self.settings.phases).into_iter();
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
            let last =
                outcomes.last().filter(|last| !last.is_empty() && last.iter().all(|outcome| outcome.is_free));
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
}

/// What is simulated: a tree for each assumption. Equal ones are left out.
fn trees(
    history: &History,
    target: &Target,
    has_queue: &[bool],
    threads: Option<u32>,
    may_sleep: bool,
) -> Vec<Tree> {
    let assumptions = [Assumption::NeighboursYield, Assumption::NeighboursStay, Assumption::AlwaysBusy];
    let count = if may_sleep { 3 } else { 2 };
    let trees = parallel(&assumptions[..count], |assumption| {
        let mut tree = history.tree(&target.family, has_queue, *assumption);
        tree.nodes[target.at].threads = threads;
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
