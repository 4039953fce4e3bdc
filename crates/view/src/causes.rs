//! Causes of waits as words and as bars.

use std::{borrow::Cow, cmp::Reverse, sync::Arc};

use cgscope_model::{
    ByCause, CAUSES, Cause, ChainReading, Doing, Interval, Names,
    pairs::Culprit,
    units::{duration, percent},
};
use itertools::Itertools;

pub use cgscope_model::{
    causes::{Blames, ORDER, TABLE, shown},
    cgroup_name::UNNAMED,
};

use crate::text::listed;

/// Maximum number of culprits named in a line.
const NAMED: usize = 3;

/// Returns the legend of a bar, with only the causes that occur.
pub fn legend(parts: &ByCause) -> String {
    let named = TABLE.iter().filter(|shown| parts.get(shown.cause) != 0);
    named.map(|shown| format!("{} {}", shown.letter, shown.words)).join("  ")
}

/// Returns the number of cells in a bar for each cause, in [`ORDER`]. See [`proportional`].
pub fn cells(parts: &[f64; CAUSES], width: usize) -> [usize; CAUSES] {
    proportional(ORDER.map(|cause| parts[cause as usize]), width)
}

/// Returns the number of cells for each part, proportional to the parts. The sum is `cells`, unless all parts are 0.
pub fn proportional<const N: usize>(parts: [f64; N], cells: usize) -> [usize; N] {
    let total: f64 = parts.iter().sum();
    let (mut sum, mut drawn) = (0.0, 0);
    parts.map(|part| {
        sum += part;
        let until = if total > 0.0 { (sum / total * cells as f64).round() as usize } else { 0 };
        until - std::mem::replace(&mut drawn, until)
    })
}

pub fn bar(parts: &[f64; CAUSES], width: usize) -> String {
    let letters = TABLE.iter().zip(cells(parts, width));
    letters.flat_map(|(shown, count)| std::iter::repeat_n(shown.letter, count)).collect()
}

pub fn parts(by_cause: &ByCause) -> [f64; CAUSES] {
    by_cause.0.map(|ns| ns as f64)
}

/// Returns the causes as text, largest first: `throttled 99.6% (2.00s), wakeup 0.4% (8.10ms)`. `None` if there are no causes.
pub fn line(by_cause: &ByCause) -> Option<String> {
    let total = by_cause.total();
    let parts = ORDER.map(|cause| (cause, by_cause.get(cause))).into_iter().filter(|(_, ns)| *ns != 0);
    let mut said = parts.sorted_by_key(|(_, ns)| Reverse(*ns)).filter_map(|(cause, ns)| {
        Some(format!("{} {:.1}% ({})", shown(cause).words, percent(ns, total)?, duration(ns)))
    });
    Some(said.join(", ")).filter(|said| !said.is_empty())
}

/// Minimum part that [`doings`] names, percent.
const LEAST: f64 = 0.5;

/// Returns what a waker did during a sleep, longest first: `throttled 78%`, `ran 20%`. `words` names a cause.
pub fn doings(row: &ChainReading, words: fn(Cause) -> &'static str) -> impl Iterator<Item = (Doing, String)> {
    let parts = row.doings().sorted_by_key(|(_, ns)| Reverse(*ns));
    parts.filter_map(move |(doing, ns)| {
        let share = percent(ns, row.slept_ns).filter(|share| *share >= LEAST)?;
        let word = match doing {
            Doing::Waited(cause) => words(cause),
            other => other.name(),
        };
        Some((doing, format!("{word} {share:.0}%")))
    })
}

/// Returns a line with the culprits that ran during the waits, worst first; `None` if there are no culprits.
pub fn culprits_line(names: &Names, culprits: &[Culprit]) -> Option<String> {
    let total: u64 = culprits.iter().map(|culprit| culprit.ns).sum();
    let named = culprits.iter().map(|one| {
        let share = percent(one.ns, total).map_or(String::new(), |share| format!(" ({share:.0}%)"));
        format!("{} {}{share}", one.words(names), duration(one.ns))
    });
    (!culprits.is_empty()).then(|| listed(named, NAMED))
}

pub fn name_of<'a>(names: &'a Names, path: Option<&'a Arc<str>>) -> Cow<'a, str> {
    path.map_or(UNNAMED.into(), |path| names.of(path))
}

/// Returns a line with the quotas that throttled a cgroup's tasks longest, each with the time; `None` if there are none.
pub fn limits_line(interval: &Interval, cgroup: &str) -> Option<String> {
    let limits = interval.limits_of(cgroup);
    let named = limits.iter().take(NAMED).map(|(path, ns)| (name_of(&interval.names, path.as_ref()), ns));
    (!limits.is_empty()).then(|| named.map(|(name, ns)| format!("{name} {}", duration(*ns))).join(", "))
}

/// Returns the lines below a histogram: causes, quotas and culprits.
pub fn lines(by_cause: &ByCause, interval: &Interval, cgroup: Option<&str>, culprits: &[Culprit]) -> String {
    let limits =
        limits_line(interval, cgroup.unwrap_or("/")).filter(|_| by_cause.blaming(Blames::Quotas) != 0);
    let lines =
        [("why", line(by_cause)), ("quota of", limits), ("behind", culprits_line(&interval.names, culprits))];
    lines.into_iter().filter_map(|(label, words)| Some(format!("{label}: {}\n", words?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(throttled: u64, own: u64, wakeup: u64) -> ByCause {
        let mut parts = ByCause::only(Cause::Throttled, throttled);
        parts.add(&ByCause::only(Cause::OwnCgroup, own));
        parts.add(&ByCause::only(Cause::Wakeup, wakeup));
        parts
    }

    #[test]
    fn a_bar_has_the_requested_width_for_any_parts() {
        for width in 0..50 {
            for parts in [split(1, 1, 1), split(1_000, 1, 0), split(0, 0, 5), split(7, 3, 2)] {
                assert_eq!(bar(&super::parts(&parts), width).len(), width);
            }
        }
        assert_eq!(bar(&parts(&split(3, 1, 0)), 8), "TTTTTToo");
        assert_eq!(bar(&parts(&ByCause::default()), 8), "");
    }

    #[test]
    fn causes_are_listed_with_their_figures_largest_first() {
        assert_eq!(
            line(&split(1_000_000, 3_000_000, 0)).as_deref(),
            Some("behind own cgroup 75.0% (3.00ms), throttled 25.0% (1.00ms)")
        );
        assert_eq!(line(&ByCause::default()), None);
        assert_eq!(legend(&split(1, 0, 1)), "T throttled  . wakeup");
    }

    #[test]
    fn the_first_culprits_are_named_and_the_others_counted() {
        let one = |path: &str, ns| Culprit { path: Some(path.into()), ns, ..Culprit::default() };
        let task = Culprit { task: Some((7, "hog".into())), ..one("/b", 2_000_000) };
        let kernel =
            Culprit { kernel: true, task: Some((9, "kswapd0".into())), ns: 1_000_000, ..Culprit::default() };
        assert_eq!(
            culprits_line(&Names::default(), &[task, kernel, one("/c", 1_000), one("/d", 1), one("/e", 1)])
                .as_deref(),
            Some(
                "hog [7] of /b 2.00ms (67%), kswapd0 [9], a kernel thread 1.00ms (33%), /c 1.00us (0%), 2 more"
            )
        );
        assert_eq!(culprits_line(&Names::default(), &[]), None);
    }
}
