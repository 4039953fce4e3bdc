use cgscope_export::Format;
use cgscope_model::{Cause, Mode};

use crate::{
    decode::{Traced, perfetto_trace},
    support::{START_NS, export, intervals, whole},
};

fn traced(count: u64, mode: Mode) -> Traced {
    perfetto_trace(&export(Format::Perfetto, &intervals(count, mode)))
}

fn sum_at(traced: &Traced, end: &[&str]) -> u64 {
    let ends = |track: &&Vec<String>| track.len() >= end.len() && track[track.len() - end.len()..] == *end;
    let tracks: Vec<_> = traced.counters.keys().filter(ends).collect();
    assert_eq!(tracks.len(), 1, "{end:?}: {tracks:?} of {:?}", traced.counters.keys());
    traced.counters[tracks[0]]
}

#[test]
fn the_counters_of_the_host_sum_to_the_total() {
    let traced = traced(3, Mode::Bpf);
    let total = whole(&intervals(3, Mode::Bpf)).total();
    for cause in Cause::ALL {
        let name = format!("waited: {}", cause.name());
        assert_eq!(traced.host(&name), total.wait.by_cause.get(cause), "{cause:?}");
    }
    assert_eq!(traced.host("waited"), total.wait.total_ns);
    assert_eq!(traced.host("waits"), total.wait.count);
    assert_eq!(traced.host("ran"), total.totals.on_cpu_ns);
    assert_eq!(sum_at(&traced, &["CPUs", "busy CPU   1"]), 3 * 600_000_000);
}

#[test]
fn cgroups_are_nested_and_have_the_counters_of_the_kernel() {
    let traced = traced(2, Mode::Bpf);
    let web = ["cgroups", "/", "/system.slice", "/system.slice/web app.service"];
    let of = |name| sum_at(&traced, &[&web[..], &[name]].concat());
    assert_eq!(of("cpu.stat throttled"), 2 * 400_000_000);
    assert_eq!(of("cpu.stat periods throttled"), 18);
    assert_eq!(of("waited: throttled"), 2 * 140 * 3_000_000);
    assert_eq!(of("waited: kernel"), 2 * 5 * 3_000_000, "exited tasks are included");
}

#[test]
fn processes_and_busy_threads_have_names() {
    let traced = traced(2, Mode::Bpf);
    assert_eq!(sum_at(&traced, &["web, \"main\"", "waits"]), 2 * 2 * 140 + 2 * 2 * 100);
    assert_eq!(sum_at(&traced, &["worker", "waits"]), 2 * 2 * 40);
}

#[test]
fn every_counter_ends_at_0() {
    let traced = traced(2, Mode::Bpf);
    assert!(!traced.last.is_empty() && traced.last.values().all(|value| *value == 0), "{:?}", traced.last);
}

#[test]
fn findings_are_shown_at_the_start_of_their_interval() {
    let traced = traced(2, Mode::Bpf);
    let throttled: Vec<_> = traced.instants.iter().filter(|(_, says)| says.contains("quota")).collect();
    let at: Vec<u64> = throttled.iter().map(|(at, _)| *at).collect();
    assert!(at.contains(&START_NS) && at.contains(&(START_NS + 1_000_000_000)), "{:?}", traced.instants);
}

#[test]
fn figures_unknown_in_the_coarse_mode_have_no_counter() {
    let traced = traced(2, Mode::Coarse);
    let named =
        |name: &str| traced.counters.keys().any(|track| track.last().is_some_and(|last| last == name));
    assert!(named("waited: throttled") && named("waited: unattributed"));
    assert!(!named("waited: own_cgroup") && !named("waited: wakeup") && !named("waiting at the end"));
}
