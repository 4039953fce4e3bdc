//! Tests the lines of a report, with generated samples.

use cgscope_model::Sample;

use cgscope_made_up::loads::{LOOP, Load, SMALL, samples};

use super::*;

fn changed(load: &Load, change: fn(&mut Sample)) -> Vec<String> {
    let mut samples = samples(load);
    samples.iter_mut().for_each(change);
    let mut history = History::default();
    samples.iter().for_each(|sample| history.add(sample));
    lines(&Interval::between(&samples[0], &samples[samples.len() - 1]), &history)
}

#[test]
fn a_quota_that_ran_out_has_a_line_with_a_setting() {
    assert_eq!(
        changed(&LOOP, |_| {}),
        [
            "web.service has 0.5 CPUs; 1 CPU or more would have been enough: systemctl set-property web.service CPUQuota=100%"
        ]
    );
}

#[test]
fn a_refusal_is_given_in_its_short_form() {
    let refused = changed(&LOOP, |sample| {
        sample.limits[1].quota_us = Some(if sample.mono_ns < 5_000_000_000 { 50_000 } else { 60_000 });
    });
    assert_eq!(refused, ["web.service has 0.6 CPUs; no advice, because the limit was changed"]);
}

#[test]
fn a_recording_without_throttling_or_demand_has_no_line() {
    assert!(changed(&SMALL, |_| {}).is_empty());
    assert!(changed(&LOOP, |sample| sample.demand_until_ns = None).is_empty());
    assert!(changed(&LOOP, |sample| sample.mode = Mode::Coarse).is_empty());
}

#[test]
fn at_most_five_cgroups_have_a_line() {
    let many = |sample: &mut Sample| {
        let (limits, demand) = (sample.limits[1].clone(), sample.demand.first().cloned());
        sample.limits.truncate(1);
        for id in 2..10 {
            sample.limits.push(cgscope_model::CgroupReading { id, ..limits.clone() });
            sample.cgroups.push((id, format!("/shop.slice/{id}.service").into()));
        }
        sample.demand = (2..10)
            .filter_map(|cgroup_id| Some(cgscope_model::DemandReading { cgroup_id, ..demand.clone()? }))
            .collect();
        sample.cgroups.retain(|(id, path)| *id == 1 || path.ends_with(&format!("/{id}.service")));
        sample.limits[0].quota_us = Some(800_000);
    };
    let said = changed(&LOOP, many);
    assert_eq!(said.len(), 5, "{said:#?}");
}
