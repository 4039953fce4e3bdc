//! Tests with generated samples instead of a session.

use cgscope_made_up::loads::{LOOP, PATHS, SMALL, samples};
use cgscope_whatif::answer::Refusal;

use super::super::*;

fn selected(cgroup: Option<&str>) -> Selection {
    Selection { cgroup: cgroup.map(Into::into), ..Selection::default() }
}

/// Returns the measured data, or the sentence of the error that ends the measurement.
fn measured(samples: Vec<Sample>, selection: &Selection) -> std::result::Result<Measured, String> {
    let filter = SelectionFilter::new(selection).expect("a selection");
    let mut measured = Measured::default();
    let mut samples = samples.into_iter();
    let added = samples.try_for_each(|sample| measured.add(sample, selection, &filter));
    added.map(|()| measured).map_err(|error| error.sentence)
}

/// Returns the answers, or why there is no answer.
fn answered(samples: Vec<Sample>, cgroup: Option<&str>) -> std::result::Result<Vec<Answer>, String> {
    let selection = selected(cgroup);
    let measured = measured(samples, &selection)?;
    let filter = SelectionFilter::new(&selection).expect("a selection");
    let (targets, _) = targets(&measured.whole.into_interval(), &filter)?;
    Ok(answers(&measured.history, &targets, &Question::PLAIN))
}

#[test]
fn a_measurement_is_answered_as_a_recording_of_it() {
    let answers = answered(samples(&LOOP), None).expect("answers");
    let [answer] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((answer.path.as_str(), &answer.refusal), (PATHS[1], &None));
    let least = answer.least.as_ref().expect("a quota").limit.cpus();
    assert!((0.95..=1.05).contains(&least), "{least}");
}

#[test]
fn a_measurement_that_ends_early_is_too_short() {
    let mut few = samples(&LOOP);
    few.truncate(4);
    let answers = answered(few, Some(PATHS[1])).expect("answers");
    assert_eq!(answers[0].refusal, Some(Refusal::Short(10)));
}

#[test]
fn quotas_that_did_not_run_out_are_only_simulated_if_selected() {
    let said = answered(samples(&SMALL), None).expect_err("no quota ran out");
    assert!(said.starts_with("no quota ran out; select a cgroup"), "{said}");
    let answers = answered(samples(&SMALL), Some(PATHS[1])).expect("answers");
    assert_eq!((answers.len(), &answers[0].refusal), (1, &None));
}

#[test]
fn a_measurement_without_an_answer_ends_at_once() {
    let changed = |cgroup: Option<&str>, change: fn(&mut Sample)| {
        let mut samples = samples(&LOOP);
        samples.iter_mut().for_each(change);
        samples.truncate(2);
        measured(samples, &selected(cgroup)).err()
    };
    assert_eq!(changed(None, |_| {}), None);
    let none = changed(None, |sample| sample.limits.iter_mut().for_each(|limits| limits.quota_us = None));
    assert_eq!(none.as_deref(), Some("no cgroup had a quota when the measurement began"));
    let other = changed(Some("/other"), |_| {});
    assert_eq!(
        other.as_deref(),
        Some("the selected cgroups had no quota of their own when the measurement began")
    );
    let hidden = changed(None, |sample| sample.demand_until_ns = None);
    assert!(hidden.is_some_and(|said| said.contains("run it with privileges (sudo)")));
}

#[test]
fn minutes_of_a_measurement_keep_no_tasks() {
    let mut samples = samples(&LOOP);
    for (second, sample) in samples.iter_mut().enumerate() {
        let tasks = (0..=second as u32).map(|tid| cgscope_made_up::small::task(1 + tid, &[1_000]));
        sample.tasks = tasks.map(Arc::new).collect();
    }
    let measured = measured(samples, &selected(None)).expect("a measurement");
    let whole = interval(measured.whole, true);
    assert!(whole.tasks.is_empty() && whole.idle.is_empty() && whole.names.only_paths);
}
