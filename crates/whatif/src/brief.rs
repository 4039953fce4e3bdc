//! The answers in one line each, for `cgscope report`.

use std::collections::BTreeSet;

use cgscope_model::{Interval, Mode, Selection, selection::SelectionFilter};

use crate::{
    answer::{Question, Target, answers, ids, targets},
    history::History,
    words::line,
};

/// Maximum work: cgroups that are simulated, times seconds. Measured: 0.3 ms for each in a recording of 10 minutes, and 0.1 ms in one of an
/// hour.
const MOST_WORK: u64 = 30_000;

/// A line for each of the cgroups that were throttled longest. Empty if no quota ran out, or if the recording has no demand. `history`: has
/// the demand of cgroups with these ids.
pub fn lines(whole: &Interval, history: impl FnOnce(BTreeSet<u64>) -> Option<History>) -> Vec<String> {
    if whole.mode == Mode::Coarse {
        return Vec::new();
    }
    let everything = SelectionFilter::new(&Selection::default());
    let chosen = everything.ok().and_then(|filter| targets(whole, &filter).ok());
    let Some((mut targets, _)) = chosen else { return Vec::new() };
    let left_out = split_off_costly(&mut targets, whole.duration_ns / 1_000_000_000);
    let Some(history) = history(ids(&targets)).filter(|history| !history.has_gaps) else { return Vec::new() };
    // Only the least quota is printed. A table with one quota takes less time than one with eight.
    let question = Question { quotas: vec![1.0], ..Question::PLAIN };
    let answers = answers(&history, &targets, &question);
    let left_out = left_out.iter().map(|target| {
        format!(
            "{} would take long to simulate: use `cgscope whatif FILE --cgroup {}`",
            whole.names.of(&target.path),
            target.path
        )
    });
    answers.iter().map(|answer| line(answer, whole)).chain(left_out).collect()
}

/// Removes the cgroups that would make the report slow, and returns them.
fn split_off_costly(targets: &mut Vec<Target>, seconds: u64) -> Vec<Target> {
    let mut left = MOST_WORK;
    let mut is_affordable = |target: &Target| {
        let work = target.family.len() as u64 * seconds.min(3_600);
        let is_affordable = work <= left;
        left -= if is_affordable { work } else { 0 };
        is_affordable
    };
    let (kept, costly) = std::mem::take(targets).into_iter().partition(|target| is_affordable(target));
    *targets = kept;
    costly
}

#[cfg(test)]
mod tests;
