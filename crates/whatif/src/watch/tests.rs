//! Tests with generated samples, without a screen.

use cgscope_made_up::loads::{LOOP, PATHS, samples};

use super::*;
use crate::history::{BLOCK_SHIFT, WINDOW};

/// Follows the service over these samples. Also returns the latest interval.
fn watched(samples: &[Sample]) -> (Watch, Arc<Interval>) {
    let mut watch = Watch::new(PATHS[1].into());
    let mut latest = Arc::default();
    for pair in samples.windows(2) {
        latest = Arc::new(Interval::between(&pair[0], &pair[1]));
        watch.add(&pair[1], &latest);
    }
    (watch, latest)
}

fn answer_of(samples: &[Sample], cells: usize) -> Lines {
    let (watch, interval) = watched(samples);
    watch.lines(&interval, cells)
}

#[test]
fn the_answer_follows_when_there_are_enough_periods() {
    let samples = samples(&LOOP);
    assert_eq!(answer_of(&samples[..2], 200).lines, ["measuring ..."]);
    let soon = answer_of(&samples[..5], 200);
    assert_eq!(soon.lines, ["measuring: 10 of 20 periods so far, which count while something runs"]);
    let Lines { lines, is_short } = answer_of(&samples[..6], 200);
    assert!(soon.is_short && !is_short);
    assert_eq!(lines[0], "from the last 2.00s, renewed every few seconds");
    assert!(lines.iter().any(|line| line.ends_with("CPUQuota=100%")), "{lines:#?}");
}

#[test]
fn a_narrow_table_loses_its_last_columns() {
    let (wide, narrow) = (answer_of(&samples(&LOOP), 200).lines, answer_of(&samples(&LOOP), 60).lines);
    let row = |lines: &[String], mark: &str| {
        lines.iter().find(|line| line.contains(mark)).cloned().expect("a line")
    };
    assert!(row(&wide, "CPUs  periods").ends_with("unused"));
    assert!(row(&narrow, "CPUs  periods").ends_with("stall p50"), "{narrow:#?}");
    assert!(row(&narrow, "  now 0.5").chars().count() <= 60, "{narrow:#?}");
    assert_eq!(wide.len(), narrow.len());
}

#[test]
fn why_there_is_no_answer_is_said() {
    let changed = |change: fn(&mut Sample)| {
        let mut samples = samples(&LOOP);
        samples[3..].iter_mut().for_each(change);
        answer_of(&samples, 200).lines
    };
    assert_eq!(changed(|sample| sample.demand_until_ns = None), [GAPS]);
    assert!(GAPS.contains("`cgscope whatif FILE`"));
    let removed = changed(|sample| sample.limits.truncate(1));
    assert_eq!(removed, ["it has no quota any more, or was removed"]);
}

#[test]
fn collecting_begins_anew_if_another_cgroup_shares_the_limit() {
    let mut samples = samples(&LOOP);
    let (watch, _) = watched(&samples);
    assert_eq!(watch.history.span_ns(), 17_000_000_000);
    samples[..10].iter_mut().for_each(|sample| sample.limits[0].quota_us = None);
    let (watch, _) = watched(&samples);
    assert_eq!(watch.history.span_ns(), 8_000_000_000);
}

#[test]
fn no_more_than_ten_minutes_are_kept() {
    let first = samples(&LOOP).remove(0);
    let at = |second: u64| Sample {
        unix_ns: second * 1_000_000_000,
        mono_ns: second * 1_000_000_000,
        demand_until_ns: Some(second * 1_000_000_000),
        ..first.clone()
    };
    let mut watch = Watch::new(PATHS[1].into());
    let (mut spans, mut blocks) = (Vec::new(), 0);
    for second in (10..4_000).step_by(10) {
        let (before, now) = (at(second - 10), at(second));
        watch.add(&now, &Interval::between(&before, &now));
        let demand = watch.target.as_ref().and_then(|target| watch.history.latest(target));
        spans.push(demand.map_or(0, |demand| demand.span_ns));
        blocks =
            blocks.max(watch.history.cgroups.values().map(|cgroup| cgroup.blocks.len()).max().unwrap_or(0));
    }
    let most_ns = WINDOW << BLOCK_SHIFT;
    assert!(spans.iter().all(|span| *span <= most_ns), "{spans:?}");
    // The first spans are shorter.
    let least_ns = most_ns - (1 << BLOCK_SHIFT) - 20_000_000_000;
    assert!(spans[70..].iter().all(|span| *span >= least_ns), "{spans:?}");
    assert!(blocks <= 2 * WINDOW as usize + 2, "{blocks}");
}
