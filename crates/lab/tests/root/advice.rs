//! The advice in findings about a quota. The right advice for these loads is known.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    bench::{assert_measured, json_lines, run},
    files::Dir,
    load::{Cgroup, Cpu, Load},
};

fn rules(cgroup: &Cgroup, seconds: &str) -> BTreeSet<String> {
    let dir = Dir::new("advice");
    let file = dir.file("a.rec");
    assert_measured(&run(&["record", "-q", "-o", &file, "-d", seconds]));
    let mut rules = BTreeSet::new();
    for interval in json_lines(&run(&["report", "--json", &file])) {
        let findings = interval["findings"].as_array().expect("findings").iter();
        let about: Vec<&Value> =
            findings.filter(|finding| finding["cgroup"] == cgroup.name.as_str()).collect();
        rules.extend(about.iter().map(|finding| finding["rule"].as_str().expect("a rule").to_owned()));
    }
    rules
}

fn limited(name: &str, quota_us: u64) -> Cgroup {
    let cgroup = Cgroup::new(name);
    cgroup.limit(quota_us, 100_000);
    cgroup
}

#[test]
#[ignore = "one CPU: asserts which quota runs out"]
fn a_program_that_works_in_bursts_is_said_to_do_so() {
    let cgroup = limited("bursts", 40_000);
    cgroup.favour();
    let _load = Load::workload(&["requests", "regular", "50000", "250000", "60"], Some(&cgroup));
    let rules = rules(&cgroup, "5");
    assert!(rules.contains("throttled_below_limit"), "{rules:?}");
}

/// The average CPU use of the loop is below the quota, because a neighbour uses the CPU for half of the time.
#[test]
#[ignore = "one CPU: asserts which quota runs out"]
fn a_steady_loop_that_others_hold_back_is_not_said_to_work_in_bursts() {
    let (cgroup, neighbour) = (limited("held-back", 50_000), Cgroup::new("neighbour"));
    neighbour.weigh(10);
    let at_times = "while :; do timeout 0.3 sh -c 'while :; do :; done'; sleep 0.3; done";
    let _neighbour =
        Load::start("taskset", &["-c", &Cpu::one().to_string(), "sh", "-c", at_times], Some(&neighbour));
    let _load = Load::loop_on_a_cpu(Some(&cgroup));
    let rules = rules(&cgroup, "5");
    assert!(rules.contains("throttled") && !rules.contains("throttled_below_limit"), "{rules:?}");
}

/// The kernel still counts some periods after the load has ended.
#[test]
#[ignore = "one CPU: asserts which quota runs out"]
fn a_loop_that_ends_after_some_periods_is_not_said_to_work_in_bursts() {
    let cgroup = limited("ends", 50_000);
    cgroup.favour();
    let short = "sleep 1; exec timeout 0.25 sh -c 'while :; do :; done'";
    let _load = Load::start("sh", &["-c", short], Some(&cgroup));
    let rules = rules(&cgroup, "3");
    assert!(rules.contains("throttled") && !rules.contains("throttled_below_limit"), "{rules:?}");
}
