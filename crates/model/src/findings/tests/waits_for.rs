use cgscope_ledger::chains::Waker;

use super::*;
use crate::{BlockedKind, ChainReading};

/// The tasks of `sleeper` slept for those of `waker`, which ran, waited and slept.
fn row(
    scene: &Scene,
    sleeper: &str,
    waker: &str,
    ran_ns: u64,
    waits: &[(Cause, u64)],
    waker_slept_ns: u64,
) -> ChainReading {
    let by_cause = wait(waits).by_cause;
    ChainReading {
        sleeper: scene.id(sleeper),
        sleeper_tid: 0,
        kind: BlockedKind::Network,
        waker: Waker::Task,
        waker_cgroup: scene.id(waker),
        waker_tid: 0,
        comm: "w".into(),
        count: 10,
        slept_ns: ran_ns + by_cause.total() + waker_slept_ns,
        ran_ns,
        by_cause,
        waker_slept_ns,
        unknown_ns: 0,
        estimated_ns: 0,
    }
}

fn with(mut scene: Scene, rows: impl Fn(&Scene) -> Vec<ChainReading>) -> Scene {
    scene.interval.chains = Some(rows(&scene));
    scene
}

fn sidecar(throttled_ns: u64, ran_ns: u64) -> Scene {
    let scene = Scene::new(&["/app", "/proxy"])
        .task("/app", 10 * MS, &[])
        .task("/proxy", 200 * MS, &[(Cause::Throttled, throttled_ns)])
        .limited("/proxy", "/proxy", throttled_ns)
        .limits("/proxy", CgroupReading { nr_throttled: Some(10), nr_periods: Some(10), ..cores(0.2) });
    with(scene, |scene| vec![row(scene, "/app", "/proxy", ran_ns, &[(Cause::Throttled, throttled_ns)], 0)])
}

#[test]
fn a_sleep_for_a_throttled_cgroup_is_the_first_finding() {
    let all = sidecar(800 * MS, 180 * MS).all();
    assert_eq!(all.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [Rule::WaitsFor, Rule::Throttled]);
    assert_eq!(
        all[0].headline(),
        "app sleeps 980ms/s for proxy, which was throttled for 800ms/s of that by its limit of 0.2 CPUs"
    );
    assert_eq!(all[0].action, "raise the limit of proxy");
    assert_eq!(
        all[0].says,
        "/app: its tasks slept 980ms (100.0% of their sleep for other tasks) for /proxy, which was throttled for 800ms of that \
         (81.6%) by its limit of 0.2 CPUs"
    );
    assert_eq!(all[0].advice, "raise the limit of /proxy (cpu.max, in v1 cpu.cfs_quota_us)");
    assert_eq!((all[0].lost_ns, all[0].culprit.as_deref()), (800 * MS, Some("/proxy")));
}

#[test]
fn a_chain_counts_from_a_share_of_the_interval_and_of_the_sleep() {
    let at = |throttled_ns, ran_ns| sidecar(throttled_ns, ran_ns).at(Rule::WaitsFor);
    assert_eq!(at(100 * MS, 400 * MS), ["/app"]);
    assert!(at(100 * MS - 1, 300 * MS).is_empty());
    assert!(at(100 * MS, 401 * MS).is_empty());
    let mut scene = sidecar(800 * MS, 0);
    scene.interval.chains = None;
    assert!(scene.at(Rule::WaitsFor).is_empty());
}

#[test]
fn the_holder_of_a_file_lock_is_named_with_its_neighbour() {
    let scene = Scene::new(&["/fg", "/bg", "/hog"])
        .task("/fg", 10 * MS, &[])
        .task("/bg", 20 * MS, &[(Cause::OtherCgroup, 900 * MS)])
        .task("/hog", S, &[])
        .ran_before("/bg", "/hog", 900 * MS)
        .limits("/bg", CgroupReading { weight: Some(1), idle: Some(1), ..CgroupReading::default() });
    let scene = with(scene, |scene| {
        let row = row(scene, "/fg", "/bg", 50 * MS, &[(Cause::OtherCgroup, 560 * MS)], 0);
        vec![ChainReading { kind: BlockedKind::FileLock, ..row }]
    });
    let found = scene.only(Rule::WaitsFor);
    assert_eq!(
        found.headline(),
        "fg sleeps 610ms/s for a file lock of bg, which waited 560ms/s of that behind hog (its cpu.idle is 1)"
    );
    assert_eq!(found.action, "set cpu.idle of bg to 0, or take no lock in idle tasks");
    assert!(found.advice.starts_with("set cpu.idle of /bg (now 1) to 0"), "{}", found.advice);
    // A task that sleeps until there is work does not lack anything.
    let idle = |kind| {
        let mut scene = sidecar(800 * MS, 0);
        scene.interval.chains.iter_mut().flatten().for_each(|row| row.kind = kind);
        scene.at(Rule::WaitsFor).is_empty()
    };
    assert!(idle(BlockedKind::Accept) && idle(BlockedKind::Timer) && !idle(BlockedKind::Poll));
}

#[test]
fn a_longer_chain_is_an_estimate_and_names_its_end() {
    let scene = Scene::new(&["/app", "/proxy", "/db"])
        .task("/app", MS, &[])
        .task("/proxy", MS, &[])
        .task("/db", MS, &[(Cause::Throttled, 900 * MS)])
        .limited("/db", "/db", 900 * MS)
        .limits("/db", cores(0.5));
    let scene = with(scene, |scene| {
        vec![
            row(scene, "/app", "/proxy", 50 * MS, &[], 900 * MS),
            row(scene, "/proxy", "/app", 40 * MS, &[], 0),
            row(scene, "/proxy", "/db", 100 * MS, &[(Cause::Throttled, 800 * MS)], 0),
        ]
    });
    let all: Vec<_> = scene.all().into_iter().filter(|finding| finding.rule == Rule::WaitsFor).collect();
    assert_eq!(
        all.iter().map(Finding::headline).collect::<Vec<_>>(),
        [
            "app sleeps 950ms/s for others, and they for db, which was throttled for about 800ms/s of that by its limit of 0.5 CPUs",
            "proxy sleeps 900ms/s for db, which was throttled for 800ms/s of that by its limit of 0.5 CPUs",
        ]
    );
}

#[test]
fn a_waker_that_waits_behind_the_sleeper_is_no_reason() {
    let scene = Scene::new(&["/server", "/client"])
        .task("/server", 600 * MS, &[])
        .task("/client", 300 * MS, &[(Cause::OtherCgroup, 500 * MS)])
        .ran_before("/client", "/server", 500 * MS);
    let waited = [(Cause::OtherCgroup, 300 * MS)];
    let scene = with(scene, |scene| vec![row(scene, "/server", "/client", 100 * MS, &waited, 0)]);
    assert!(scene.at(Rule::WaitsFor).is_empty());
}

/// The threads of a pool sleep for each other most of the time.
#[test]
fn sleeps_for_the_own_cgroup_do_not_hide_those_for_another_one() {
    let mut scene = sidecar(800 * MS, 100 * MS);
    let mut own = row(&scene, "/app", "/app", 0, &[], 30 * S);
    own.kind = BlockedKind::Lock;
    scene.interval.chains.iter_mut().flatten().for_each(|row| row.kind = BlockedKind::Poll);
    scene.interval.chains.iter_mut().for_each(|rows| rows.insert(0, own.clone()));
    assert_eq!(
        scene.only(Rule::WaitsFor).headline(),
        "app sleeps 900ms/s for proxy, which was throttled for 800ms/s of that by its limit of 0.2 CPUs"
    );
}
