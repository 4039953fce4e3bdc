use std::{collections::BTreeSet, sync::Arc};

use cgscope_model::Sample;
use cgscope_record::{End, Ending, Reason, Writer};
use proptest::prelude::*;

use crate::support::{any_sample, demand, file, header, read, reader, samples};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_written_sample_is_read(samples in prop::collection::vec(any_sample(), 0..5)) {
        let (back, ending) = read(&file(&samples).0).unwrap();
        prop_assert_eq!(back.len(), samples.len());
        for (back, written) in back.iter().zip(&samples) {
            prop_assert_eq!(&back.tasks, &written.tasks);
            prop_assert_eq!(back, written);
        }
        prop_assert_eq!(ending, Ending::Clean(End { unix_ns: 99, reason: Reason::Finished, unwritten: 0 }));
    }
}

#[test]
fn the_header_comes_first() {
    let (file, _) = file(&[]);
    assert_eq!(reader(&file).unwrap().header, header());
}

#[test]
fn every_reason_for_the_end_is_read() {
    for reason in [
        Reason::Finished,
        Reason::Interrupted,
        Reason::CommandExited(3),
        Reason::CommandKilled(9),
        Reason::Continued,
        Reason::Triggered("p99>10ms: p99 of 120 waits was 14.2ms".into()),
        Reason::Failed,
        Reason::DiskFull,
        Reason::WriteFailed,
    ] {
        let file = Writer::create(Vec::new(), &header()).unwrap().end(1, reason.clone()).unwrap();
        let end = End { unix_ns: 1, reason, unwritten: 0 };
        assert_eq!(read(&file).unwrap().1, Ending::Clean(end));
    }
}

#[test]
fn the_ending_is_known_only_after_the_last_sample() {
    let (file, _) = file(&samples(2));
    let mut reader = reader(&file).unwrap();
    assert!(reader.next().is_some_and(|sample| sample.is_ok()));
    assert_eq!(reader.ending.as_ref(), None);
    assert_eq!(reader.by_ref().count(), 1);
    assert!(matches!(reader.ending, Some(Ending::Clean(_))));
    assert!(reader.next().is_none());
}

#[test]
fn a_part_of_each_sample_is_the_same_as_in_the_whole_sample() {
    let mut samples = samples(300);
    for (n, sample) in (0..).zip(&mut samples) {
        // The first cgroup appears and disappears.
        sample.demand = (40 + u64::from(n % 7 == 0)..44).map(|id| demand(id, n)).collect();
    }
    let (file, _) = file(&samples);
    let mut reader = reader(&file).unwrap();
    let ids = BTreeSet::from([40, 42]);
    reader.only(&["limits", "whole", "demand"], &[("demand", ids.clone())]);
    for written in &samples {
        let demand = written.demand.iter().filter(|demand| ids.contains(&demand.cgroup_id));
        let part = Sample {
            unix_ns: written.unix_ns,
            mono_ns: written.mono_ns,
            mode: written.mode,
            losses: written.losses.clone(),
            cost: written.cost,
            sched_ext: written.sched_ext.clone(),
            demand_until_ns: written.demand_until_ns,
            limits: written.limits.clone(),
            demand: demand.cloned().collect(),
            ..Sample::default()
        };
        assert_eq!(reader.next_without_tasks().unwrap(), Some(part));
    }
    assert_eq!(reader.next_without_tasks().unwrap(), None);
    assert!(matches!(reader.ending, Some(Ending::Clean(_))));
}

#[test]
fn unchanged_parts_are_shared_by_all_samples() {
    let (back, _) = read(&file(&samples(3)).0).unwrap();
    assert!(Arc::ptr_eq(&back[0].tasks[0].hist, &back[2].tasks[0].hist));
    assert!(Arc::ptr_eq(&back[0].tasks[1].comm, &back[2].tasks[1].comm));
    assert!(Arc::ptr_eq(&back[0].cgroups[1].1, &back[2].cgroups[1].1));
    assert_ne!(back[0].tasks[1].hist, back[2].tasks[1].hist);
}

#[test]
fn an_unchanged_task_is_shared_by_all_samples_even_across_key_frames() {
    let samples = samples(300);
    let (back, _) = read(&file(&samples).0).unwrap();
    for (pair, written) in back.windows(2).zip(samples.windows(2)) {
        for task in 0..2 {
            let is_same = written[0].tasks[task] == written[1].tasks[task];
            assert_eq!(Arc::ptr_eq(&pair[0].tasks[task], &pair[1].tasks[task]), is_same);
        }
    }
}
