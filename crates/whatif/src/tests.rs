//! Tests of the whole output, with generated samples.

pub(crate) mod served;

use cgscope_made_up::loads::{
    BURSTS, LOOP, Load, MS, NONE, PATHS, S, SECONDS, SHIFT, SMALL, TWO_LOOPS, samples,
};
use cgscope_model::{CgroupReading, Interval, Sample};

use crate::{
    Loop,
    answer::{Answer, Caution, Question, Refusal, Target, answer, at_once, cautions, limited, target},
    demand::{Assumption, Runnable},
    history::History,
    json, words,
};

const QUESTION: Question = Question::PLAIN;

fn answered(samples: &[Sample], question: &Question) -> (Answer, Interval) {
    let whole = Interval::between(&samples[0], &samples[samples.len() - 1]);
    let target = target(PATHS[1], &limited(&whole));
    let mut history = History::default();
    samples.iter().for_each(|sample| history.add(sample));
    let demand = history.busiest(&target).expect("demand");
    (answer(&demand, question).expect("an answer"), whole)
}

#[test]
fn a_loop_at_its_limit_is_answered_in_a_table_and_a_setting() {
    let (answer, whole) = answered(&samples(&LOOP), &QUESTION);
    insta::assert_snapshot!(words::text(&[answer], &whole, &QUESTION, 3));
}

#[test]
fn bursts_need_a_burst_and_no_higher_quota() {
    let (answer, whole) = answered(&samples(&BURSTS), &QUESTION);
    let burst = answer
        .burst
        .as_ref()
        .unwrap_or_else(|| panic!("{}", words::text(std::slice::from_ref(&answer), &whole, &QUESTION, 0)))
        .limit;
    assert_eq!((burst.quota_ns, burst.period_ns), (50 * MS, 100 * MS));
    assert!((10 * MS..=20 * MS).contains(&burst.burst_ns), "{burst:?}");
    insta::assert_snapshot!(words::text(&[answer], &whole, &QUESTION, 0));
}

/// In the closed loop, each stall would delay the next burst, so that fewer bursts would use up the quota.
#[test]
fn a_loop_that_does_not_fit_is_left_out_and_refused_if_asked_for() {
    let samples = samples(&BURSTS);
    assert_eq!(answered(&samples, &QUESTION).0.loops, [Loop::Open]);
    let closed = Question { arrivals: Some(Loop::Closed), ..QUESTION };
    let (answer, _) = answered(&samples, &closed);
    assert_eq!((answer.loops, answer.refusal), (vec![Loop::Closed], Some(Refusal::Unfit)));
}

#[test]
fn two_loops_under_half_a_cpu_are_told_how_many_threads_it_feeds() {
    let (answer, whole) = answered(&samples(&TWO_LOOPS), &QUESTION);
    assert_eq!(answer.at_once, Some(2));
    let (most, fewer) = answer.fewer.as_ref().expect("fewer threads");
    let throttled = fewer.figures.throttled_ns_per_s;
    assert!(*most == 1 && throttled.low > 0.48e9 && throttled.high < 0.52e9, "{fewer:?}");
    assert!(answer.burst.is_none(), "a loop saves nothing up");
    let text = words::text(&[answer], &whole, &QUESTION, 0);
    assert!(text.contains("GOMAXPROCS=1"), "{text}");
    let question = Question { threads: Some(2), ..QUESTION };
    let (answer, whole) = answered(&samples(&TWO_LOOPS), &question);
    let text = words::text(&[answer], &whole, &question, 0);
    assert!(text.contains("--threads 2 changes nothing"), "{text}");
}

#[test]
fn tasks_that_sleep_while_others_are_throttled_lead_to_a_caution() {
    // Both tasks run until the quota of 1.2 CPUs is used up. Then one task is throttled, and the other sleeps until that task has
    // run.
    let both = Load { tasks: 2, ran: &[(0, 60)], wanted: &[(0, 60)], ..NONE };
    let one = Load { throttled: &[(60, 100)], presumed: &[(60, 100)], throttled_periods: 1, ..NONE };
    let (mut samples, other) = (samples(&both), samples(&one));
    for (sample, other) in samples.iter_mut().zip(other) {
        sample.limits[0].quota_us = None;
        sample.limits[1] = CgroupReading {
            quota_us: Some(120_000),
            usage_ns: sample.limits[1].usage_ns,
            ..other.limits[1].clone()
        };
        sample.demand.extend(other.demand);
    }
    let (answer, whole) = answered(&samples, &QUESTION);
    assert!(
        matches!(answer.cautions[..], [Caution::SleptWhileThrottled(share)] if share > 0.2),
        "{answer:?}"
    );
    let text = words::text(&[answer], &whole, &QUESTION, 0);
    assert!(text.contains("waited for a lock"), "{text}");
}

#[test]
fn there_is_no_least_quota_if_tasks_may_wait_for_throttled_ones() {
    // The tasks use up the quota in each period, and sleep at the end of the period.
    let convoy = Load { throttled: &[(25, 80)], presumed: &[], ..TWO_LOOPS };
    let (answer, whole) = answered(&samples(&convoy), &QUESTION);
    assert_eq!((&answer.refusal, answer.is_demand_unknown(), answer.least.is_none()), (&None, true, true));
    let text = words::text(&[answer], &whole, &QUESTION, 0);
    assert!(text.contains("The least quota is not known") && !text.contains("->"), "{text}");
    assert!(text.contains("unknown"), "{text}");
    // Busy loops do not sleep.
    let (answer, _) = answered(&samples(&TWO_LOOPS), &QUESTION);
    assert!(!answer.is_demand_unknown() && answer.least.is_some(), "{answer:?}");
}

#[test]
fn waits_for_cpus_lead_to_a_caution() {
    let slots_ns = vec![100, 50, 0];
    let runnable = |waited_ns| Runnable {
        slot_ns: 50,
        slots_ns: slots_ns.clone(),
        ran_ns: 90,
        waited_ns,
        ..Runnable::default()
    };
    assert_eq!(cautions(&runnable(10)), [Caution::WaitedForCpus(0.1)]);
    assert_eq!(cautions(&runnable(9)), []);
    assert_eq!((at_once(&runnable(0)), at_once(&Runnable::default())), (Some(2), None));
}

/// In each period, 20 ms of work wait for 30 ms: each task may have woken up only when another task had finished.
#[test]
fn waiting_for_cpus_that_hides_arrivals_is_refused_everywhere() {
    let contended = Load { waited: &[(20, 50)], ..SMALL };
    let (answer, whole) = answered(&samples(&contended), &QUESTION);
    assert!(
        matches!(answer.refusal, Some(Refusal::Contended(share)) if (0.55..0.65).contains(&share)),
        "{answer:?}"
    );
    assert!(answer.least.is_none() && answer.rows.is_empty());
    let text = words::text(std::slice::from_ref(&answer), &whole, &QUESTION, 0);
    assert!(text.contains("No advice: for 60.3% of the time") && !text.contains("->"), "{text}");
    assert_eq!(json::object(&answer, &whole, &QUESTION)["refused"], "contended");
    let line = words::line(&answer, &whole);
    assert!(line.ends_with("no advice, because its tasks waited for CPUs for 60.3% of their time"), "{line}");
    // A busy loop always has work.
    let (answer, _) = answered(&samples(&Load { waited: &[(50, 100)], ..LOOP }), &QUESTION);
    assert!(!matches!(answer.refusal, Some(Refusal::Contended(_))), "{answer:?}");
}

#[test]
fn a_quota_that_never_ran_out_has_a_lower_one_that_is_enough() {
    let (answer, _) = answered(&samples(&SMALL), &QUESTION);
    let least = answer.least.expect("a quota").limit.cpus();
    assert!((0.2..=0.25).contains(&least) && !answer.is_least_demand, "{least}");
    assert!(answer.rows.iter().all(|row| row.limit.cpus() <= 2.0), "the host has two CPUs");
}

#[test]
fn a_target_that_allows_no_period_is_pointed_out() {
    let says_so = |target: f64, room: usize| {
        let question = Question { target, ..QUESTION };
        let (answer, whole) = answered(&samples(&SMALL), &question);
        assert_eq!(answer.counted.nr_periods, Some(180));
        let text = words::within(&[answer], &whole, &question, 0, room);
        text.lines().find(|line| line.contains("% of 180 periods is less than one")).map(str::to_owned)
    };
    let is_named = |target: f64, name: &str| {
        says_so(target, usize::MAX).is_some_and(|line| line.trim().starts_with(name))
    };
    assert!(is_named(0.005, "0.5% of") && is_named(0.0004, "0.04% of"));
    assert_eq!(says_so(0.005, 80), None, "a screen has no options");
    assert_eq!([0.01, 0.0].map(|target| says_so(target, usize::MAX)), [None, None]);
}

#[test]
fn what_the_samples_contradict_is_refused() {
    let refused = |change: fn(&mut Vec<Sample>)| {
        let mut samples = samples(&LOOP);
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
    let samples = samples(&LOOP);
    let whole = Interval::between(&samples[0], &samples[samples.len() - 1]);
    let target = target(PATHS[1], &limited(&whole));
    assert_eq!((target.family, target.at), (vec![(1, None), (2, Some(0))], 1));
}

#[test]
fn the_slots_of_a_tree_are_those_of_the_recording() {
    let samples = samples(&SMALL);
    let mut history = History::default();
    samples.iter().for_each(|sample| history.add(sample));
    let target = Target { path: PATHS[1].to_owned(), family: vec![(1, None), (2, Some(0))], at: 1 };
    let demand = history.busiest(&target).expect("demand");
    for assumption in [Assumption::NeighboursYield, Assumption::NeighboursStay] {
        let tree = demand.tree(&[false; 2], assumption);
        assert_eq!(tree.nodes[1].profile.length_ns() >> SHIFT, ((SECONDS - 2) * S) >> SHIFT);
        let ran_ns: u64 = tree.nodes[1].profile.slots.iter().map(|slot| slot.ran_ns).sum();
        // The cgroup ran for 20 ms in each of 180 periods. Rounding loses a part of this time.
        assert!((3_200 * MS..=3_600 * MS).contains(&ran_ns), "{ran_ns}");
        assert_eq!((tree.nodes[0].parent, tree.nodes[1].parent), (None, Some(0)));
        assert_eq!(tree.capacity, 2.0);
    }
}
