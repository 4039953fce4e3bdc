//! The search for the least quota.

use std::collections::BTreeMap;

use cgscope_whatif::{Figures, Limit, Outcome};

use super::{Cell, Cells, Simulator};
use crate::whatif::answer::Row;

/// Steps of the search for the least quota, CPUs: the largest that is at most a tenth of the quota in force.
const STEPS: [f64; 8] = [5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02];
const LEAST_STEP: f64 = 0.01;

/// Number of cells that are simulated before it is looked whether a quota is enough.
const TOGETHER: usize = 4;

/// A quota of the search.
struct Tried {
    limit: Limit,
    outcomes: Vec<Outcome>,
    /// [`Cells::phases`] that were not simulated.
    phases: Vec<Cell>,
}

impl Simulator<'_> {
    /// The least quota that meets the target, whatever neighbours do. `rows`: what was simulated already.
    pub(super) fn least(&self, rows: &[Row]) -> Option<Row> {
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
    pub(super) fn grid(&self) -> Vec<u64> {
        let step = STEPS.into_iter().find(|step| step * 9.999 <= self.limit.cpus()).unwrap_or(LEAST_STEP);
        let steps = 1..=(self.cpus / step).ceil() as u64;
        let quotas = steps.map(|steps| self.limit(steps as f64 * step).quota_ns);
        quotas.filter(|quota_ns| *quota_ns >= Limit::LEAST_NS).collect()
    }
}
