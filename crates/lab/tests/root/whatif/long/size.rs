//! Measures how many bytes the CPU demand takes in a recording.

use std::fs;

use super::{
    super::{Kind, Limit, Recorded, limited},
    print,
};
use crate::load::Cgroup;

const CGROUPS: u64 = 10;
const SECONDS: u64 = 20;
/// Requests of 2 ms arrive at random, every 20 ms on average, so that only few slots of the demand are equal.
const LOAD: Kind =
    Kind { name: "random", program: None, args: &["requests", "random", "2000", "20000", "60"] };
const LIMIT: Limit = Limit::of(150);

fn bytes(limit: Option<Limit>) -> u64 {
    let new = || limit.map_or_else(|| Cgroup::new("whatif-size"), limited);
    let cgroups: Vec<Cgroup> = (0..CGROUPS).map(|_| new()).collect();
    let _loads: Vec<_> = cgroups.iter().map(|cgroup| LOAD.start(cgroup)).collect();
    let recorded = Recorded::of(&cgroups[0], SECONDS);
    fs::metadata(recorded.file()).expect("a recording").len()
}

#[test]
#[ignore = "all CPUs: busy loops in hundreds of cgroups"]
fn a_recording_takes_at_most_200_bytes_a_second_more_for_each_cgroup_with_a_quota() {
    let without = bytes(None);
    let more = bytes(Some(LIMIT)).saturating_sub(without) as f64 / (CGROUPS * SECONDS) as f64;
    print(&format!("demand: {more:.0} bytes a second for each cgroup"));
    assert!(more > 0.0 && more < 200.0, "{more} bytes a second, beside {without} bytes without quotas");
}
