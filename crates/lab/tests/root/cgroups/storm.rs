//! The figures of long-lived cgroups do not depend on the number of short-lived cgroups.

use std::{fs, thread, time::Duration};

use cgscope_ledger::Loss;
use cgscope_model::{
    Blame, Cause, Group, Interval, Sample, Tree, Wait,
    findings::{self, Host, Rule},
};
use cgscope_record::open;

use crate::{
    background::Background,
    bench::{cgscope, is_emulated, scaled, slowness},
    files::Dir,
    load::{Cgroup, Load, result},
};

struct Lasting {
    limited: Cgroup,
    sharing: [Cgroup; 2],
}

impl Lasting {
    fn all(&self) -> impl Iterator<Item = &Cgroup> {
        self.sharing.iter().chain([&self.limited])
    }
}

fn group_of(interval: &Interval, cgroup: &Cgroup) -> Group {
    interval.by_cgroup().remove(&Some(cgroup.name.as_str().into())).expect("a row of this cgroup")
}

fn wait_of(interval: &Interval, cgroup: &Cgroup) -> Wait {
    group_of(interval, cgroup).wait
}

/// Returns the waiting time in the pairs of this victim, ns. If `culprit` is given, counts only the pair with this culprit.
fn named_ns(interval: &Interval, victim: &Cgroup, blame: Blame, culprit: Option<&Cgroup>) -> u64 {
    let is = |id, cgroup: &Cgroup| interval.cgroup_path(id).is_some_and(|path| **path == *cgroup.name);
    let pairs = interval.pairs.iter().filter(|pair| pair.blame == blame && is(pair.victim, victim));
    pairs.filter(|pair| culprit.is_none_or(|culprit| is(pair.culprit, culprit))).map(|pair| pair.ns).sum()
}

/// The parent of the short-lived cgroups. Drop removes short-lived cgroups that a killed load has left behind.
struct Around(Cgroup);

impl Drop for Around {
    fn drop(&mut self) {
        for below in fs::read_dir(&self.0.path).into_iter().flatten().flatten() {
            if below.path().is_dir() {
                super::remove(&below.path());
            }
        }
    }
}

/// Records the long-lived cgroups while a load creates short-lived cgroups and removes each after some milliseconds. Returns the
/// number of short-lived cgroups.
fn measured_in_a_storm(per_second: u64, seconds: u64) -> u64 {
    let lasting = Lasting { limited: Cgroup::new("limited"), sharing: ["one", "two"].map(Cgroup::new) };
    lasting.limited.limit(20_000, 100_000);
    let around = Around(Cgroup::new("storm"));
    around.0.weigh(20);
    let mut loads = vec![Load::pinned_loop(1, Some(&lasting.limited))];
    loads.extend(lasting.sharing.iter().map(|cgroup| Load::pinned_loop(0, Some(cgroup))));
    let dir = Dir::new("storm");
    let file = dir.file("storm.rec");
    let mut recorder = Background::start(cgscope().args(["record", "-v", "-o", &file]));
    recorder.wait_for("attached after");
    let path = around.0.path.display().to_string();
    let args = ["storm", &path, &per_second.to_string(), &seconds.to_string()];
    let (storm, mut out) = Load::workload(&args, Some(&around.0));
    let made = result(&mut out);
    storm.wait();
    // Stop the loads, so that all waits end. The culprits of a wait are counted only when the wait ends.
    loads.iter().for_each(|load| load.signal(libc::SIGSTOP));
    thread::sleep(Duration::from_millis(500));
    recorder.signal(libc::SIGINT);
    let (code, said) = recorder.wait();
    assert!(code.is_some_and(|code| code < 2), "{said}");
    let samples = open(&file).expect("a recording").map(|sample| sample.expect("a sample"));
    let samples: Vec<Sample> = samples.collect();
    for pair in samples.windows(2) {
        let second = Interval::between(&pair[0], &pair[1]);
        for cgroup in lasting.all() {
            let throttled_ns = wait_of(&second, cgroup).by_cause.get(Cause::Throttled);
            assert_eq!(named_ns(&second, cgroup, Blame::Limited, None), throttled_ns, "{}", cgroup.name);
        }
    }
    let interval = Interval::between(&samples[0], samples.last().expect("a sample"));
    println!("{made} cgroups in {seconds} s: {}", interval.losses);
    assert_right(&interval, &lasting);
    made
}

fn assert_right(interval: &Interval, lasting: &Lasting) {
    for loss in [Loss::CulpritForgotten, Loss::PressureForgotten] {
        assert_eq!(interval.losses.get(loss), 0, "{}: {}", loss.name(), interval.losses);
    }
    for cgroup in lasting.all() {
        let wait = wait_of(interval, cgroup);
        let throttled_ns = wait.by_cause.get(Cause::Throttled);
        println!("{}: {:?}", cgroup.name, wait.by_cause);
        assert_eq!(named_ns(interval, cgroup, Blame::Limited, None), throttled_ns, "{}", cgroup.name);
        let others_ns = wait.by_cause.get(Cause::OtherCgroup);
        let named_ns = named_ns(interval, cgroup, Blame::Ran, None);
        assert!(named_ns as f64 >= 0.98 * others_ns as f64, "{}: {named_ns} of {others_ns}", cgroup.name);
        let limits = interval.limits_at(&cgroup.name).expect("a cgroup of ours");
        let contention_ns = limits.contention_ns.expect("the exact mode");
        // The cgroup has one task, so its waits do not overlap.
        let waited_ns = wait.total_ns - throttled_ns;
        let uncertain_ns = limits.pressure_uncertain_ns.expect("the exact mode");
        println!("contention {contention_ns}, {uncertain_ns} uncertain, waited {waited_ns}");
        assert!(
            contention_ns.abs_diff(waited_ns) <= waited_ns / 10 + uncertain_ns,
            "{}: {contention_ns} of {waited_ns}, {uncertain_ns} uncertain",
            cgroup.name
        );
    }
    // Two long-lived cgroups share a CPU: while one of them runs, the other one waits. Short-lived cgroups do not change that.
    let [one, two] = &lasting.sharing;
    for (victim, culprit) in [(one, two), (two, one)] {
        let behind_ns = named_ns(interval, victim, Blame::Ran, Some(culprit)) as f64;
        let ran_ns = group_of(interval, culprit).totals.on_cpu_ns as f64;
        println!("{}: {behind_ns} behind the other one, which ran {ran_ns}", victim.name);
        assert!((0.9..1.02).contains(&(behind_ns / ran_ns)), "{}: {behind_ns} of {ran_ns}", victim.name);
    }
    let tree = Tree::new(interval);
    let host = Host { cpus: Some(2), whole: true, kernel: None };
    let all = findings::findings_in(interval, &tree, &host);
    let is_about = |finding: &&findings::Finding| finding.cgroup.as_deref() == Some(&*lasting.limited.name);
    let finding = all.iter().find(|finding| finding.rule == Rule::Throttled && is_about(finding));
    let finding = finding.unwrap_or_else(|| panic!("no finding about the quota: {all:?}"));
    assert_eq!(finding.lost_ns, wait_of(interval, &lasting.limited).by_cause.get(Cause::Throttled));
}

#[test]
#[ignore = "all CPUs: makes thousands of cgroups, whose names other tests would lose"]
fn the_figures_of_lasting_cgroups_are_right_in_a_storm_of_short_lived_ones() {
    let made = measured_in_a_storm(2_000, if is_emulated() { 3 } else { 6 });
    assert!(made > if is_emulated() { 200 } else { 5_000 }, "{made}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: makes thousands of cgroups, whose names other tests would lose"]
    fn the_figures_of_lasting_cgroups_are_right_beside_5000_new_ones_per_second_for_a_minute() {
        let made = measured_in_a_storm(5_000, 60);
        assert!(made as f64 > scaled(250_000) as f64 / slowness(), "{made}");
    }
}
