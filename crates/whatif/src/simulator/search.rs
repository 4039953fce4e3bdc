//! The search for the least quota.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{Figures, Limit, Outcome};

use super::{Cell, Cells, Simulator};
use crate::{answer::Row, parallel::parallel};

/// Steps of the search for the least quota, CPUs: the largest that is at most a tenth of the quota in force.
const STEPS: [f64; 8] = [5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02];
const LEAST_STEP: f64 = 0.01;

/// Number of phases that are simulated in a part of a long history: it shows about where to search, and which loop and assumption are worst.
const PHASES_OF_PART: u32 = 2;

/// Places in the grid. Those below `low` are not enough. `high` is enough, or the length of the grid.
#[derive(Clone, Copy)]
struct Range {
    low: usize,
    high: usize,
    /// The next place to try, and the step after it.
    near: Option<(usize, usize)>,
}

impl Range {
    /// The next place to try: near the last one, or in the middle. `None`: there is none below `high`.
    fn next(&self) -> Option<usize> {
        let near = self.near.map(|(at, _)| at).filter(|at| (self.low..self.high).contains(at));
        (self.low < self.high).then(|| near.unwrap_or(self.low.midpoint(self.high)))
    }

    fn is_enough(&mut self, at: usize) {
        self.high = at;
        self.near = self.near.map(|(_, by)| (at.saturating_sub(by), 2 * by));
    }

    /// `most`: the length of the grid.
    fn is_not_enough(&mut self, at: usize, most: usize) {
        if at == self.high {
            // A row or an estimate was wrong.
            (self.high, self.near) = (most, Some((at + 1, 1)));
        }
        self.low = at + 1;
        self.near = self.near.map(|(_, by)| (at + by, 2 * by));
    }
}

impl Simulator<'_> {
    /// The least quota that meets the target, whatever neighbours do. `rows`: what was simulated already.
    pub(super) fn least(&self, rows: &[Row]) -> Option<Row> {
        let grid = self.grid();
        let (mut range, mut cells) = (self.range(&grid, rows), BTreeMap::new());
        let mut of = |at: usize| {
            let cells = cells
                .entry(at)
                .or_insert_with(|| self.cells(&[self.with_quota(grid[at])], PHASES_OF_PART).pop());
            cells.clone()
        };
        if !self.parts.is_empty() {
            // In a part of the history, where simulations take little time, it is found first.
            let mut part = range;
            while let Some(at) = part.next() {
                if of(at)?.share <= self.question.target {
                    part.is_enough(at)
                } else {
                    part.is_not_enough(at, grid.len())
                }
            }
            range.near = Some((part.high.min(range.high.saturating_sub(1)), 1));
        }
        let (mut worst, mut found) = (Vec::new(), None);
        loop {
            let at = range.next().unwrap_or(range.high);
            if let Some((_, row)) = found.take_if(|(found, _)| *found == at) {
                return Some(row);
            }
            grid.get(at)?;
            match self.tried(of(at)?, &mut worst) {
                Some(row) => {
                    range.is_enough(at);
                    found = Some((at, row));
                }
                None => range.is_not_enough(at, grid.len()),
            }
        }
    }

    /// Where the least quota is in the grid, by what was simulated already.
    fn range(&self, grid: &[u64], rows: &[Row]) -> Range {
        let rows = rows.iter().filter(|row| row.limit == self.with_quota(row.limit.quota_ns));
        let (enough, less): (Vec<&Row>, Vec<&Row>) = rows.partition(|row| self.is_enough(&row.figures));
        let least = enough.iter().map(|row| row.limit.quota_ns).min();
        let less = less.iter().map(|row| row.limit.quota_ns);
        let below = less.filter(|quota_ns| least.is_none_or(|least| *quota_ns < least)).max();
        Range {
            low: grid.partition_point(|quota_ns| Some(*quota_ns) <= below),
            high: least.map_or(grid.len(), |least| grid.partition_point(|quota_ns| *quota_ns < least)),
            near: None,
        }
    }

    fn is_enough(&self, figures: &Figures) -> bool {
        figures.throttled_share.high <= self.question.target
    }

    /// Simulates a quota: at all phases, because a part of a history does not show well enough which one is the worst. `worst`: cells to try
    /// first, to which the worst one is added. `None`: it is not enough.
    fn tried(&self, of: Cells, worst: &mut Vec<Cell>) -> Option<Row> {
        let mut cells = worst.clone();
        for cell in of.cells.into_iter().chain(of.phases) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        let (limits, target) = (self.with(of.limit), self.question.target);
        let first = AtomicUsize::new(usize::MAX);
        let run = |at: &usize| {
            // One above the target decides.
            if first.load(Relaxed) < *at {
                return None;
            }
            self.simulated.fetch_add(1, Relaxed);
            let (replay, setting) = &cells[*at];
            let outcome = self.replays[*replay].run_within(&limits, setting, self.at, target).ok().flatten();
            let figures = outcome.as_ref().and_then(|one| self.figures_of(std::slice::from_ref(one)));
            if !figures.is_some_and(|figures| self.is_enough(&figures)) {
                first.fetch_min(*at, Relaxed);
            }
            outcome
        };
        let places: Vec<usize> = (0..cells.len()).collect();
        let outcomes: Vec<Outcome> = parallel(&places, run).into_iter().flatten().collect();
        if let Some(cell) = cells.get(first.into_inner()) {
            worst.extend((!worst.contains(cell)).then_some(*cell));
            return None;
        }
        let shares = outcomes.iter().map(Outcome::throttled_share).zip(&cells);
        let most = shares.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, cell)| *cell);
        worst.extend(most.filter(|cell| !worst.contains(cell)));
        Some(Row { limit: of.limit, figures: self.figures_of(&outcomes)? })
    }

    /// The quotas to search, in rising order, ns.
    pub(super) fn grid(&self) -> Vec<u64> {
        let step = STEPS.into_iter().find(|step| step * 9.999 <= self.limit.cpus()).unwrap_or(LEAST_STEP);
        let steps = 1..=(self.cpus / step).ceil() as u64;
        let quotas = steps.map(|steps| self.limit(steps as f64 * step).quota_ns);
        quotas.filter(|quota_ns| *quota_ns >= Limit::LEAST_NS).collect()
    }
}
