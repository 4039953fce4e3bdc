//! Tests of the whole output, with made-up samples.

use std::sync::Arc;

use cgscope_model::{CgroupReading, DemandReading, Interval, Sample, demand::parts};

use super::{
    answer::{Answer, Question, Refusal, answer},
    history::{Assumption, History},
    limited, target, words,
};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const SHIFT: u32 = 24;
const SECONDS: u64 = 20;

/// A service at 0.5 CPUs, with a batch job in it that has no quota, below a slice at 1 CPU.
const PATHS: [&str; 3] = ["/shop.slice", "/shop.slice/web.service", "/shop.slice/web.service/batch"];

const QUESTION: Question =
    Question { quotas: Vec::new(), threads: None, burst_ns: None, period_ns: None, target: 0.01 };

/// In each period of 100 ms, a task needs `need_ms` and gets at most 50 ms. Slots do not fit into periods.
fn amounts(slot: u64, need_ms: u64) -> [u64; 5] {
    let (begin, end) = (slot << SHIFT, (slot + 1) << SHIFT);
    let within = |from_ms: u64, to_ms: u64| {
        (begin / (100 * MS)..=end / (100 * MS))
            .map(|period| {
                let at = period * 100 * MS;
                (at + to_ms * MS).min(end).saturating_sub((at + from_ms * MS).max(begin))
            })
            .sum::<u64>()
    };
    let got_ms = need_ms.min(50);
    let late_ms = if need_ms > 50 { 100 } else { got_ms };
    [within(0, got_ms), within(0, got_ms), within(got_ms, late_ms), 0, within(got_ms, need_ms.max(got_ms))]
        .map(|ns| parts(ns, SHIFT))
}

/// Samples once a second. The task is a loop that would use `need_ms` of each period.
fn samples(need_ms: u64) -> Vec<Sample> {
    let sample = |second: u64| {
        let slots: Vec<_> = (0..=(SECONDS * S) >> SHIFT)
            .filter(|slot| (slot << SHIFT) / S + 1 == second)
            .map(|slot| (slot, amounts(slot, need_ms)))
            .collect();
        let only: Vec<_> = slots.iter().map(|(_, amounts)| *amounts).collect();
        let first = slots.first().map_or(0, |(slot, _)| *slot);
        let limits = |id: u64, quota_us: Option<u64>| CgroupReading {
            id,
            quota_us,
            period_us: Some(100_000),
            usage_ns: Some(second * 10 * need_ms.min(50) * MS),
            nr_periods: Some(second * 10),
            nr_throttled: Some(if id == 2 && need_ms > 50 { second * 10 } else { 0 }),
            throttled_ns: Some(if id == 2 && need_ms > 50 { second * 500 * MS } else { 0 }),
            ..CgroupReading::default()
        };
        Sample {
            unix_ns: second * S,
            mono_ns: second * S,
            demand_until_ns: Some(second * S),
            demand: DemandReading::new(2, SHIFT, first, &only).into_iter().collect(),
            limits: vec![limits(1, Some(100_000)), limits(2, Some(50_000)), limits(3, None)],
            cgroups: (1..).zip(PATHS.map(Arc::from)).collect(),
            cpus: [0, 1].map(|cpu| cgscope_model::CpuReading { cpu, ..Default::default() }).to_vec(),
            ..Sample::default()
        }
    };
    (0..=SECONDS).map(sample).collect()
}

fn answered(samples: &[Sample], question: &Question) -> (Answer, Interval) {
    let whole = Interval::between(&samples[0], &samples[samples.len() - 1]);
    let target = target(PATHS[1], &limited(&whole));
    let mut history = History::default();
    samples.iter().for_each(|sample| history.add(sample));
    (answer(&history, &target, question).expect("an answer"), whole)
}

#[test]
fn a_loop_at_its_limit_is_answered_in_a_table_and_a_setting() {
    let (answer, whole) = answered(&samples(100), &QUESTION);
    insta::assert_snapshot!(words::text(&[answer], &whole, &QUESTION, 3));
}

#[test]
fn a_quota_that_never_ran_out_has_a_lower_one_that_is_enough() {
    let (answer, _) = answered(&samples(20), &QUESTION);
    let least = answer.least.expect("a quota").limit.cpus();
    assert!((0.2..=0.25).contains(&least) && !answer.is_least_demand, "{least}");
    assert!(answer.rows.iter().all(|row| row.limit.cpus() <= 2.0), "the host has two CPUs");
}

#[test]
fn what_the_samples_contradict_is_refused() {
    let refused = |change: fn(&mut Vec<Sample>)| {
        let mut samples = samples(100);
        change(&mut samples);
        answered(&samples, &QUESTION).0.refusal
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|samples| samples.truncate(4)), Some(Refusal::Short(10)));
    assert_eq!(refused(|samples| samples[5].limits[1].quota_us = Some(70_000)), Some(Refusal::Changed));
    let lost = refused(|samples| samples[5..9].iter_mut().for_each(|sample| sample.demand.clear()));
    assert!(matches!(lost, Some(Refusal::Incomplete(..))), "{lost:?}");
    let unfit = refused(|samples| {
        samples.iter_mut().for_each(|sample| sample.limits[1].nr_throttled = Some(3));
    });
    assert_eq!(unfit, Some(Refusal::Unfit));
}

#[test]
fn cgroups_that_share_a_quota_are_simulated_together() {
    let samples = samples(100);
    let whole = Interval::between(&samples[0], &samples[samples.len() - 1]);
    let target = target(PATHS[1], &limited(&whole));
    assert_eq!((target.family, target.at), (vec![(1, None), (2, Some(0))], 1));
}

#[test]
fn the_slots_of_a_tree_are_those_of_the_recording() {
    let samples = samples(20);
    let mut history = History::default();
    samples.iter().for_each(|sample| history.add(sample));
    for assumption in [Assumption::NeighboursYield, Assumption::NeighboursStay] {
        let tree = history.tree(&[(1, None), (2, Some(0))], assumption);
        assert_eq!(tree.nodes[1].profile.length_ns() >> SHIFT, ((SECONDS - 2) * S) >> SHIFT);
        let ran_ns: u64 = tree.nodes[1].profile.slots.iter().map(|slot| slot.ran_ns).sum();
        // 20 ms in each of 180 periods, less what rounding loses.
        assert!((3_200 * MS..=3_600 * MS).contains(&ran_ns), "{ran_ns}");
        assert_eq!((tree.nodes[0].parent, tree.nodes[1].parent), (None, Some(0)));
        assert_eq!(tree.capacity, [2.0]);
    }
}
