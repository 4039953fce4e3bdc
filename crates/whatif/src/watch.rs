//! The question of the screen: what would have been enough for one cgroup, from now on.

use std::{collections::BTreeSet, sync::Arc};

use cgscope_model::{Interval, Sample, units::duration};

use crate::{
    answer::{Question, Refusal, Target, answer, limited, target},
    history::History,
    words,
};

/// When the demand covers this time, a second history begins, so that there is one when the first gets too long.
const HALF_NS: u64 = 300_000_000_000;
/// Maximum length of the demand in an answer.
const LONGEST_NS: u64 = 2 * HALF_NS;

/// The answer if samples have no demand.
const GAPS: &str = "you see only a part of this host, and not what the cgroup would need: use `cgscope whatif FILE` with a recording of \
                    the whole host";

/// The demand of a cgroup, and of all that share its limits, since the question or over the latest 5 to 10 minutes.
pub struct Watch {
    path: Arc<str>,
    /// `None`: it has no quota now.
    target: Option<Target>,
    history: History,
    /// The later half of a long history.
    next: Option<History>,
}

/// Everything for an answer.
pub struct Job {
    target: Option<Target>,
    history: History,
    interval: Arc<Interval>,
}

/// An answer for the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// The text.
    pub lines: Vec<String>,
    /// There will soon be a better one: the demand is still too short.
    pub is_short: bool,
}

impl Watch {
    /// Begins to watch a cgroup.
    pub fn new(path: Arc<str>) -> Self {
        Self { path, target: None, history: History::default(), next: None }
    }

    /// The path of the cgroup.
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
        if self.history.span_ns() >= HALF_NS {
            let next = self.next.get_or_insert_with(|| Self::history_of(self.target.as_ref()));
            next.add(sample);
        }
        if self.history.span_ns() >= LONGEST_NS
            && let Some(next) = self.next.take()
        {
            self.history = next;
        }
    }

    /// Drops what was collected, because the next sample must not be compared with it.
    pub fn restart(&mut self) {
        (self.history, self.next) = (Self::history_of(self.target.as_ref()), None);
    }

    fn history_of(target: Option<&Target>) -> History {
        let ids: BTreeSet<u64> =
            target.iter().flat_map(|target| target.family.iter().map(|(id, _)| *id)).collect();
        History::of(ids)
    }

    /// What is needed to answer now, in the latest interval.
    pub fn job(&self, interval: Arc<Interval>) -> Job {
        Job { target: self.target.clone(), history: self.history.clone(), interval }
    }
}

impl Job {
    /// Simulates; may take seconds. Tables are at most `cells` wide.
    pub fn lines(&self, cells: usize) -> Lines {
        let soon = |line: String| Lines { lines: vec![line], is_short: true };
        let Some(target) = &self.target else {
            return soon("it has no quota any more, or was removed".to_owned());
        };
        if self.history.has_gaps {
            return soon(GAPS.to_owned());
        }
        let Some(answer) = answer(&self.history, target, &Question::PLAIN) else {
            return soon("measuring ...".to_owned());
        };
        if let Some(Refusal::Short(periods)) = answer.refusal {
            return soon(format!(
                "measuring: {periods} of 20 periods so far, which count while something runs"
            ));
        }
        let from = format!("from the last {}, renewed every few seconds", duration(answer.span_ns));
        let text = words::within(&[answer], &self.interval, &Question::PLAIN, 0, cells);
        let lines = std::iter::once(from).chain(text.lines().map(str::to_owned)).collect();
        Lines { lines, is_short: false }
    }
}

#[cfg(test)]
mod tests;
