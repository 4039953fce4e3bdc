//! The question of the screen: what would have been enough for one cgroup, from now on.

use std::sync::Arc;

use cgscope_model::{Interval, Sample, units::duration};

use crate::{
    answer::{Question, Refusal, Target, answer, limited, target},
    history::History,
    words,
};

/// The answer if samples have no demand.
const GAPS: &str = "you see only a part of this host, and not what the cgroup would need: use `cgscope whatif FILE` with a recording of \
                    the whole host";

/// The demand of a cgroup, and of all that share its limits, since the question or over the latest 10 minutes.
#[derive(Clone)]
pub struct Watch {
    path: Arc<str>,
    /// `None`: it has no quota now.
    target: Option<Target>,
    history: History,
}

/// An answer for the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    pub lines: Vec<String>,
    /// There will soon be a better one: the demand is still too short.
    pub is_short: bool,
}

impl Watch {
    pub fn new(path: Arc<str>) -> Self {
        Self { path, target: None, history: History::default() }
    }

    pub fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Adds the next sample, and the interval before it.
    pub fn add(&mut self, sample: &Sample, interval: &Interval) {
        let limited = limited(interval);
        let has_quota = limited.iter().any(|(path, _)| **path == *self.path);
        let now = has_quota.then(|| target(&self.path, &limited));
        if now != self.target {
            // The rest of the tree has no demand so far.
            self.target = now;
            self.restart();
        }
        self.history.add(sample);
    }

    /// Drops what was collected, because the next sample must not be compared with it.
    pub fn restart(&mut self) {
        let family = self.target.iter().flat_map(|target| &target.family);
        self.history = History::latest_of(family.map(|(id, _)| *id).collect());
    }

    /// Simulates; may take seconds. `interval`: the latest one. Tables are at most `cells` wide.
    pub fn lines(&self, interval: &Interval, cells: usize) -> Lines {
        let soon = |line: String| Lines { lines: vec![line], is_short: true };
        let Some(target) = &self.target else {
            return soon("it has no quota any more, or was removed".to_owned());
        };
        if self.history.has_gaps {
            return soon(GAPS.to_owned());
        }
        let demand = self.history.latest(target);
        let Some(answer) = demand.and_then(|demand| answer(&demand, &Question::PLAIN)) else {
            return soon("measuring ...".to_owned());
        };
        if let Some(Refusal::Short(periods)) = answer.refusal {
            return soon(format!(
                "measuring: {periods} of 20 periods so far, which count while something runs"
            ));
        }
        let from = format!("from the last {}, renewed every few seconds", duration(answer.span_ns));
        let text = words::within(&[answer], interval, &Question::PLAIN, 0, cells);
        let lines = std::iter::once(from).chain(text.lines().map(str::to_owned)).collect();
        Lines { lines, is_short: false }
    }
}

#[cfg(test)]
mod tests;
