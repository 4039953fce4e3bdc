use std::collections::BTreeMap;

use cgscope_export::Format;
use cgscope_model::{Blame, Cause, Mode, table::exited::ENDED};

use crate::{
    decode::{Stack, pprof_profile, pprof_stacks},
    support::{START_NS, export, intervals, whole},
};

fn stacks(count: u64, mode: Mode) -> Vec<Stack> {
    pprof_stacks(&pprof_profile(&export(Format::Pprof, &intervals(count, mode))))
}

fn by_leaf(stacks: &[Stack], value: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.values[value] != 0) {
        *sums.entry(stack.frames.last().expect("a leaf").clone()).or_default() += stack.values[value];
    }
    sums
}

#[test]
fn the_leaves_sum_to_the_causes_and_the_waits_to_their_number() {
    for mode in [Mode::Bpf, Mode::Coarse] {
        let stacks = stacks(3, mode);
        let total = whole(&intervals(3, mode)).total();
        let wait = by_leaf(&stacks, "wait");
        for cause in Cause::ALL {
            let ns = total.wait.by_cause.get(cause);
            assert_eq!(wait.get(cause.name()).copied().unwrap_or(0), ns, "{mode:?} {cause:?}");
        }
        assert_eq!(by_leaf(&stacks, "waits").values().sum::<u64>(), total.wait.count, "{mode:?}");
    }
}

#[test]
fn a_wait_is_counted_with_its_cause() {
    let waits = by_leaf(&stacks(1, Mode::Bpf), "waits");
    assert_eq!(waits["throttled"], 140);
    assert_eq!(waits["other_cgroup"], 7);
    assert_eq!(waits["kernel"], 5);
    assert_eq!(waits["wakeup"], 140 + 7 + 5);
}

#[test]
fn a_stack_goes_from_the_root_cgroup_down_to_the_cause() {
    let stacks = stacks(2, Mode::Bpf);
    let frames: Vec<String> = stacks.iter().map(|stack| stack.frames.join(" > ")).collect();
    let web = "/ > /system.slice > /system.slice/web app.service";
    for stack in [
        format!("{web} > web, \"main\" [10] > worker [10/11] > throttled"),
        format!("{web} > {ENDED} > kernel"),
        "/ >  [12] >  [12/12] > other_cgroup".to_owned(),
        "/ > behind /system.slice/web app.service".to_owned(),
        format!("{web} > quota of /system.slice/web app.service"),
    ] {
        assert_eq!(frames.iter().filter(|frames| **frames == stack).count(), 1, "{stack} in {frames:#?}");
    }
}

#[test]
fn the_time_behind_culprits_is_a_separate_value() {
    let behind = by_leaf(&stacks(2, Mode::Bpf), "behind");
    let whole = whole(&intervals(2, Mode::Bpf));
    let of = |blame| whole.pairs.iter().filter(|pair| pair.blame == blame).map(|pair| pair.ns).sum::<u64>();
    assert_eq!(behind["behind /system.slice/web app.service"], of(Blame::Ran));
    assert_eq!(behind["quota of /system.slice/web app.service"], of(Blame::Limited));
    assert_eq!(behind.len(), 2);
}

#[test]
fn the_profile_has_its_time_and_the_value_to_show() {
    let profile = pprof_profile(&export(Format::Pprof, &intervals(2, Mode::Bpf)));
    assert_eq!(profile.time_nanos as u64, START_NS);
    assert_eq!(profile.duration_nanos, 2_000_000_000);
    assert_eq!(profile.string_table[0], "");
    assert_eq!(profile.string_table[profile.default_sample_type as usize], "wait");
}

#[test]
fn folded_stacks_equal_those_of_the_profile() {
    for mode in [Mode::Bpf, Mode::Coarse] {
        let text = String::from_utf8(export(Format::Folded, &intervals(3, mode))).expect("text");
        let mut lines: Vec<(String, u64)> = text
            .lines()
            .map(|line| line.rsplit_once(' ').expect("a stack and its ns"))
            .map(|(stack, ns)| (stack.to_owned(), ns.parse().expect("a number")))
            .collect();
        let waited = stacks(3, mode).into_iter().filter(|stack| stack.values["wait"] != 0);
        let mut expected: Vec<(String, u64)> = waited
            .map(|stack| {
                let frames: Vec<String> =
                    stack.frames.iter().map(|frame| frame.replace([';', '\n'], "_")).collect();
                (frames.join(";"), stack.values["wait"])
            })
            .collect();
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected);
    }
}
