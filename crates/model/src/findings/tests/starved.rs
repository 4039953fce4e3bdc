use super::*;
use crate::Pending;

/// A task of `/a` has waited for `ns` on CPU 0, mostly because of `cause`. A task of `/b` ran there.
fn starved(ns: u64, cause: Cause) -> Scene {
    let mut scene = Scene::new(&["/a", "/b"]).task("/a", 0, &[]).task("/b", S, &[]);
    let mut by_cause = ByCause::only(cause, ns * 9 / 10);
    by_cause.add(&ByCause::only(Cause::Wakeup, ns - ns * 9 / 10));
    scene.interval.tasks[0].reading.pending = Some(Arc::new(Pending { ns, booked_ns: 0, by_cause }));
    scene
}

#[test]
fn a_task_is_starved_after_a_second_and_half_of_the_interval() {
    let is_starved = |ns, duration_ns| {
        let mut scene = starved(ns, Cause::OtherCgroup);
        scene.interval.duration_ns = duration_ns;
        !scene.at(Rule::Starved).is_empty()
    };
    assert!(is_starved(S + 1, S) && !is_starved(S, S));
    assert!(is_starved(5 * S + 1, 10 * S) && !is_starved(5 * S, 10 * S));
}

#[test]
fn the_finding_names_the_cause_and_who_runs() {
    let mut scene = starved(4 * S, Cause::OtherCgroup);
    let found = scene.only(Rule::Starved);
    assert_eq!(
        found.says,
        "/a: its thread 1 (worker) has waited 4.00s for CPU 0 and still waits, 90.0% of this behind other cgroups; worker \
         (thread 2) of /b ran most there"
    );
    assert_eq!(found.headline(), "a has a task that gets no CPU time: worker waits for 4.00s so far");
    assert_eq!(
        found.advice,
        "let the thread use other CPUs (taskset -cp LIST 1), or give its cgroup a higher cpu.weight (in v1 cpu.shares)"
    );
    // Only the part of the wait within this interval counts as lost time.
    assert_eq!(found.lost_ns, S);
    scene.interval.tasks[1].reading.scheduling = Some(Scheduling { policy: 1, is_bound: false });
    let advice = scene.only(Rule::Starved).advice;
    assert!(advice.contains("SCHED_FIFO") && advice.contains("chrt -o -p 0 2"), "{advice}");
    // A task on another CPU is not to blame.
    scene.interval.tasks[1].reading.cpu = 1;
    assert!(scene.only(Rule::Starved).says.ends_with("90.0% of this behind other cgroups"));
}

#[test]
fn each_cause_has_its_advice() {
    for (cause, advice) in [
        (Cause::Throttled, "raise its limit (cpu.max, in v1 cpu.cfs_quota_us)"),
        (Cause::RtThrottled, "raise the runtime"),
        (
            Cause::OwnCgroup,
            "let the thread use other CPUs (taskset -cp LIST 1), or give it a higher priority",
        ),
        (Cause::Kernel, "check the kernel log for stalls of CPU 0"),
    ] {
        let found = starved(4 * S, cause).only(Rule::Starved).advice;
        assert!(found.starts_with(advice), "{cause:?}: {found}");
    }
}

#[test]
fn starved_tasks_of_a_cgroup_are_one_finding() {
    let mut scene = starved(4 * S, Cause::OwnCgroup);
    let mut other = scene.interval.tasks[0].clone();
    other.reading.serial = 3;
    let by_cause = ByCause::only(Cause::OwnCgroup, 2 * S);
    other.reading.pending = Some(Arc::new(Pending { ns: 2 * S, booked_ns: 0, by_cause }));
    scene.interval.tasks.push(other);
    let found = scene.only(Rule::Starved);
    assert!(
        found.says.contains("has waited 4.00s")
            && found.says.ends_with("; 1 other thread of the cgroup also waited that long"),
        "{}",
        found.says
    );
    assert_eq!(found.lost_ns, 2 * S);
}

#[test]
fn a_finding_about_the_quota_explains_throttled_tasks() {
    let scene = starved(4 * S, Cause::Throttled).limits("/a", periods(0.1, 5, 10));
    assert!(scene.at(Rule::Starved).is_empty());
    assert_eq!(scene.at(Rule::Throttled), ["/a"]);
    let scene = starved(4 * S, Cause::OtherCgroup).limits("/a", periods(0.1, 5, 10));
    assert_eq!(scene.at(Rule::Starved), ["/a"]);
}

#[test]
fn a_task_that_starved_before_cgscope_started_has_a_cause_since_then() {
    let mut scene = starved(4 * S, Cause::Unattributed);
    let mut by_cause = ByCause::only(Cause::Unattributed, 3 * S);
    by_cause.add(&ByCause::only(Cause::OtherCgroup, S - S / 4));
    by_cause.add(&ByCause::only(Cause::Kernel, S / 4));
    scene.interval.tasks[0].reading.pending = Some(Arc::new(Pending { ns: 4 * S, booked_ns: 0, by_cause }));
    let found = scene.only(Rule::Starved);
    assert_eq!(
        found.says,
        "/a: its thread 1 (worker) has waited 4.00s for CPU 0 and still waits, 75.0% of the last 1.00s behind other cgroups \
         (before that nobody watched it, or the cause is unknown); worker (thread 2) of /b ran most there"
    );
    assert!(found.advice.starts_with("let the thread use other CPUs"), "{}", found.advice);
    let mut half = ByCause::only(Cause::Unattributed, 2 * S);
    half.add(&ByCause::only(Cause::OtherCgroup, 2 * S));
    scene.interval.tasks[0].reading.pending =
        Some(Arc::new(Pending { ns: 4 * S, booked_ns: 0, by_cause: half }));
    let says = scene.only(Rule::Starved).says;
    assert!(says.contains("still waits, 50.0% of this behind other cgroups"), "{says}");
}

#[test]
fn a_kernel_with_a_known_fault_is_named() {
    let mut scene = starved(4 * S, Cause::OtherCgroup);
    for (kernel, is_faulty) in [
        (None, false),
        (Some((6, 12, 99)), false),
        (Some((6, 13, 0)), true),
        (Some((6, 18, 44)), true),
        (Some((6, 18, 45)), false),
    ] {
        scene.host.kernel = kernel;
        assert_eq!(scene.only(Rule::Starved).says.contains("reweight_entity"), is_faulty, "{kernel:?}");
    }
    let mut scene = starved(4 * S, Cause::RtThrottled);
    scene.host.kernel = Some((6, 13, 0));
    assert!(!scene.only(Rule::Starved).says.contains("reweight_entity"));
}
