use super::*;
use crate::{CpuInterval, Cpuset, Placement};

/// Returns a second in which two threads of `/a` shared CPU 0: each thread ran for one half and waited for the other. CPUs 1 to 3
/// were idle.
fn pinned(allowed: Option<&str>, cpuset: Option<(&str, &str)>) -> Scene {
    let mut scene = Scene::new(&["/a"]);
    for _ in 0..2 {
        scene = scene.task("/a", 500 * MS, &[(Cause::OwnCgroup, 500 * MS)]);
    }
    let cpuset = cpuset.map(|(path, cpus)| Arc::new(Cpuset { path: path.into(), cpus: cpus.into() }));
    let placement = Placement { cpus_allowed: allowed.map(Arc::from), cpuset, ..Placement::default() };
    for task in &mut scene.interval.tasks {
        task.reading.placement = Some(Arc::new(placement.clone()));
    }
    scene.interval.cpus = (0..4).map(|cpu| used(cpu, if cpu == 0 { 100 } else { 2 })).collect();
    scene.host.cpus = Some(4);
    scene
}

fn used(cpu: u32, busy_percent: u64) -> CpuInterval {
    CpuInterval {
        cpu,
        busy_ns: Some(busy_percent * S / 100),
        idle_ns: Some((100 - busy_percent) * S / 100),
        ..CpuInterval::default()
    }
}

#[test]
fn a_mask_that_leaves_out_idle_cpus_is_named() {
    let found = pinned(Some("0"), None).only(Rule::IdleCpus);
    assert_eq!(
        found.says,
        "/a: its 2 busy threads may only run on CPU 0 (affinity mask), busy 100.0% of the time, while CPUs 1-3 were idle 98.0% of \
         the time; they waited 1.00s (50.0% of their run and wait time)"
    );
    assert_eq!(
        found.advice,
        "let all 2 processes use more CPUs (for pid in 1 2; do taskset -acp 0-3 $pid; done), unless CPUs 1-3 were kept free on purpose"
    );
    assert_eq!(found.headline(), "a waits for CPU 0 while CPUs 1-3 were idle: 2 threads, 1.00s/s");
    assert_eq!(found.lost_ns, S);
}

#[test]
fn a_cpuset_that_leaves_out_idle_cpus_is_named() {
    let found = pinned(Some("0"), Some(("/limited", "0"))).only(Rule::IdleCpus);
    assert!(found.says.contains("may only run on CPU 0 (cpuset.cpus 0 of /limited), busy"), "{}", found.says);
    assert_eq!(
        found.advice,
        "let /limited use more CPUs (cpuset.cpus 0-3), unless CPUs 1-3 were kept free on purpose"
    );
    // The cpuset has an idle CPU, but the affinity mask excludes this CPU.
    let found = pinned(Some("0"), Some(("/limited", "0-1"))).only(Rule::IdleCpus);
    assert!(found.says.contains("(affinity mask)"), "{}", found.says);
}

#[test]
fn tasks_that_wait_beside_idle_cpus_that_they_may_use_are_reported() {
    let found = pinned(Some("0-3"), None).only(Rule::IdleCpus);
    assert_eq!(
        found.says,
        "/a: its 2 busy threads waited 1.00s (50.0% of their run and wait time) on CPU 0, busy 100.0% of the time, although no \
         mask and no cpuset keeps them from CPUs 1-3, idle 98.0% of the time"
    );
    assert!(
        found.advice.starts_with("check whether a cpuset switches load balancing off for CPUs 1-3"),
        "{}",
        found.advice
    );
}

#[test]
fn the_finding_replaces_the_one_about_waiting_for_own_threads() {
    assert!(pinned(Some("0"), None).at(Rule::OwnContention).is_empty());
    let unknown = pinned(None, None);
    assert!(unknown.at(Rule::IdleCpus).is_empty());
    assert_eq!(unknown.at(Rule::OwnContention), ["/a"]);
    // The finding `IdleCpus` explains neither the waiting of another cgroup nor most of the waiting of `/a`.
    let mut both = pinned(Some("0"), None);
    both.interval.cgroups.push((9, "/b".into()));
    let waits = [(Cause::OwnCgroup, 500 * MS)];
    let both = both.task("/b", 500 * MS, &waits).task("/b", 500 * MS, &waits);
    assert_eq!(both.at(Rule::OwnContention), ["/b"]);
    let more = pinned(Some("0"), None).task("/a", 500 * MS, &waits).task("/a", 500 * MS, &waits);
    assert_eq!(more.at(Rule::OwnContention), ["/a"]);
}

#[test]
fn cpus_are_busy_from_90_and_idle_up_to_30_percent() {
    let with = |busy, other| {
        let mut scene = pinned(Some("0"), None);
        scene.interval.cpus = vec![used(0, busy), used(1, other), used(2, other), used(3, other)];
        !scene.at(Rule::IdleCpus).is_empty()
    };
    assert!(with(90, 30) && !with(89, 30) && !with(90, 31));
    let mut scene = pinned(Some("0"), None);
    scene.interval.cpus.iter_mut().for_each(|cpu| cpu.idle_ns = None);
    assert!(scene.at(Rule::IdleCpus).is_empty(), "the use of the CPUs is unknown");
}

#[test]
fn an_allowed_cpu_that_is_not_busy_clears_the_mask() {
    let mut scene = pinned(Some("0-1"), None);
    scene.interval.cpus[1] = used(1, 50);
    assert!(scene.at(Rule::IdleCpus).is_empty());
    scene.interval.cpus[1] = used(1, 95);
    assert!(scene.only(Rule::IdleCpus).says.contains("on CPUs 0-1 (affinity mask), busy 97.5%"));
}

#[test]
fn short_waits_bound_threads_and_quotas_are_not_reported() {
    let with = |change: fn(&mut TaskInterval)| {
        let mut scene = pinned(Some("0"), None);
        scene.interval.tasks.iter_mut().for_each(change);
        !scene.at(Rule::IdleCpus).is_empty()
    };
    assert!(with(|task| task.wait = wait(&[(Cause::OtherCgroup, 60 * MS)])));
    // If each of two threads waits for 50 ms, the sum is 10 % of the interval, and 10 % of the threads' time.
    assert!(with(
        |task| (task.wait, task.totals.on_cpu_ns) = (wait(&[(Cause::OtherCgroup, 50 * MS)]), 450 * MS)
    ));
    assert!(!with(
        |task| (task.wait, task.totals.on_cpu_ns) = (wait(&[(Cause::OtherCgroup, 50 * MS)]), 451 * MS)
    ));
    assert!(!with(
        |task| (task.wait, task.totals.on_cpu_ns) = (wait(&[(Cause::OtherCgroup, 49 * MS)]), 10 * MS)
    ));
    assert!(!with(|task| task.wait = wait(&[(Cause::Throttled, 500 * MS)])));
    assert!(!with(|task| task.reading.scheduling = Some(Scheduling { policy: 0, is_bound: true })));
    assert!(!with(|task| task.reading.cpu = 1), "it was last on an idle CPU");
}

#[test]
fn a_mask_of_several_processes_is_changed_for_all_of_them_and_their_parent() {
    let mut scene = pinned(Some("0"), None).task("/a", 0, &[]);
    for task in &mut scene.interval.tasks[..2] {
        let placement = Placement { cpus_allowed: Some("0".into()), parent: Some(3), ..Placement::default() };
        task.reading.placement = Some(Arc::new(placement));
    }
    let found = scene.only(Rule::IdleCpus);
    assert_eq!(
        found.advice,
        "let all 2 processes use more CPUs (for pid in 1 2; do taskset -acp 0-3 $pid; done), unless CPUs 1-3 were kept free on \
         purpose; a mask is inherited: check process 3 (worker), which started them, too (taskset -cp 3)"
    );
}

#[test]
fn a_quota_that_would_bind_next_is_named() {
    let scene = pinned(Some("0"), Some(("/a", "0"))).limits("/a", cores(1.0));
    let found = scene.only(Rule::IdleCpus);
    assert!(
        found.advice.starts_with("start at most 1 thread, or change two limits: let /a use"),
        "{}",
        found.advice
    );
    assert!(
        found.advice.ends_with("raise the quota of /a, because more CPUs alone gain nothing with 1 CPU"),
        "{}",
        found.advice
    );
    let mut scene = pinned(Some("0-1"), None).limits("/a", cores(0.5));
    scene.interval.cpus[1] = used(1, 95);
    let advice = scene.only(Rule::IdleCpus).advice;
    assert!(advice.starts_with("start at most 1 thread, or change two limits"), "{advice}");
    let scene = pinned(Some("0"), Some(("/a", "0"))).limits("/a", cores(2.0));
    assert!(!scene.only(Rule::IdleCpus).advice.contains("quota"));
}

#[test]
fn isolated_cpus_are_named() {
    let mut scene = pinned(Some("0-3"), None);
    scene.interval.cpus.iter_mut().for_each(|cpu| cpu.is_isolated = true);
    let advice = scene.only(Rule::IdleCpus).advice;
    assert!(
        advice.starts_with("CPUs 0-3 are isolated, so the kernel does not spread tasks over them"),
        "{advice}"
    );
    assert!(advice.contains("for 1, 2)"), "{advice}");
}
