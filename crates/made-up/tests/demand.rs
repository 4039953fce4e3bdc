//! Checks that the generated demand matches the counters in the same samples.

use std::collections::BTreeMap;

use cgscope_made_up::demand::Limited;
use cgscope_model::{Sample, demand::ns_of};

#[test]
fn the_demand_fits_the_counters_of_the_cgroups() {
    let samples: Vec<Sample> = Limited::new(24).take(61).collect();
    let mut sums: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for reading in samples.iter().flat_map(|sample| &sample.demand) {
        let sum = sums.entry(reading.cgroup_id).or_default();
        for (sum, parts) in sum.iter_mut().zip([&reading.ran, &reading.wanted, &reading.throttled]) {
            *sum += ns_of(parts.iter().map(|(_, parts)| parts).sum(), reading.slot_shift);
        }
    }
    let mut throttled = 0;
    for limits in samples[60].limits.iter().filter(|limits| sums.contains_key(&limits.id)) {
        let [ran_ns, wanted_ns, throttled_ns] = sums[&limits.id];
        let used_ns = limits.usage_ns.unwrap();
        // Because of rounding, some time is added to a later sample. The tolerance covers this time.
        let is_near = |ns: u64, sum_ns: u64| sum_ns.abs_diff(ns) < 500_000_000;
        assert!(is_near(used_ns, ran_ns) && is_near(used_ns, wanted_ns), "{limits:?}: {ran_ns} {wanted_ns}");
        assert!(is_near(limits.throttled_ns.unwrap(), throttled_ns), "{limits:?}: {throttled_ns}");
        throttled += u64::from(limits.nr_throttled.unwrap() * 100 > limits.nr_periods.unwrap());
    }
    assert_eq!(sums.len(), 24);
    assert!((8..=16).contains(&throttled), "{throttled} of 24 are throttled");
}
