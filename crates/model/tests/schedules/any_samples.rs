//! Tests that no computation panics, whichever two Samples a recording holds.

use std::{collections::BTreeMap, sync::Arc};

use crate::any::{nothing_before, sample};
use cgscope_model::{
    Hist, Interval, Sample, Selection, TaskReading, Timeline, Totals,
    diff::{self, Side},
    findings::{Host, findings},
    json::IntervalObject,
    pairs::Culprit,
};
use proptest::{collection::vec, option, prelude::*};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_computation_accepts_any_two_samples(a in sample(), b in sample(), cpus in option::of(0..9u32)) {
        let host = Host { cpus, whole: true, kernel: None };
        let intervals =
            [Interval::between(&a, &b), Interval::between(&nothing_before(&a), &a), Interval::between(&b, &b)];
        let (mut timeline, mut whole) = (Timeline::new(2), Interval::default());
        for interval in intervals.iter().cycle().take(9) {
            timeline.add(interval);
            whole.append(interval.clone());
        }
        let named = |interval: &Interval| {
            let culprits: Vec<Culprit> = interval.culprits();
            culprits.iter().map(|culprit| culprit.words(&interval.names)).collect::<Vec<_>>()
        };
        for interval in intervals.iter().chain([&whole]) {
            findings(interval, &host);
            let object = IntervalObject::new(interval, &host);
            prop_assert!(serde_json::to_string(&object).is_ok());
            named(interval);
            interval.total().wait.hist.rows(1_000);
        }
        for slice in &timeline.slices {
            slice.average(slice.all.waited_ns());
            slice.wait.hist.count();
        }
        timeline.worst();
    }

    #[test]
    fn a_container_selected_by_name_has_the_figures_of_its_cgroup(a in sample(), b in sample()) {
        let apply = |selection: Selection| {
            let mut interval = Interval::between(&a, &b);
            interval.select(&selection).unwrap();
            interval
        };
        let by_name = apply(Selection { container: Some("c".into()), ..Selection::default() });
        let by_path = apply(Selection { cgroup: Some("/a".into()), ..Selection::default() });
        prop_assert_eq!(by_name, by_path);
    }

    #[test]
    fn diff_accepts_any_samples(samples in vec(sample(), 4)) {
        let side = |samples: &[Sample]| {
            let mut side = Side::default();
            let both = [
                Interval::between(&samples[0], &samples[1]),
                Interval::between(&nothing_before(&samples[1]), &samples[1]),
            ];
            for interval in both.iter().cycle().take(20) {
                side.add(interval, 1);
            }
            side
        };
        let diff = diff::compare(side(&samples[..2]), side(&samples[2..]));
        for object in diff::objects(&diff) {
            prop_assert!(serde_json::to_string(&object).is_ok());
        }
    }
}

#[test]
fn sums_that_overflow_stay_at_the_largest_number() {
    let task = |serial| TaskReading {
        serial,
        tid: 1,
        tgid: 1,
        comm: "t".into(),
        start_ns: 5,
        cgroup_id: 1,
        max_ns: u64::MAX,
        totals: Totals { waits: u64::MAX, wait_ns: u64::MAX, on_cpu_ns: u64::MAX, ..Totals::default() },
        hist: Arc::new(Hist::from_cells(BTreeMap::from([(7, u64::MAX)]), []).expect("a cell")),
        ..TaskReading::default()
    };
    let after =
        Sample { mono_ns: u64::MAX, tasks: [task(1), task(2)].map(Arc::new).to_vec(), ..Sample::default() };
    let interval = Interval::between(&Sample::default(), &after);
    let mut whole = interval.clone();
    whole.append(interval.clone());
    let total = whole.total();
    assert_eq!([whole.duration_ns, total.wait.count, total.wait.total_ns, total.totals.waits], [u64::MAX; 4]);
    assert_eq!(total.wait.hist.count(), u64::MAX);
    let mut timeline = Timeline::new(2);
    (0..5).for_each(|_| timeline.add(&interval));
    let slice = &timeline.slices[0];
    assert_eq!([slice.wait.count, slice.duration_ns, slice.wait.hist.count()], [u64::MAX; 3]);
}
