use super::*;

/// Returns a fully measured host with 2 CPUs and 3 tasks.
fn host(ran_ns: u64, waited_ns: u64) -> Scene {
    let mut scene = Scene::new(&["/a"])
        .task("/", ran_ns, &[(Cause::OwnCgroup, waited_ns)])
        .task("/", 0, &[(Cause::OwnCgroup, 0)])
        .task("/a", 0, &[(Cause::Throttled, S)]);
    scene.host.cpus = Some(2);
    scene
}

#[test]
fn a_host_is_oversubscribed_above_120_percent_of_busy_cpus() {
    let found = host(2 * S, 3 * S).only(Rule::CpuOversubscription);
    assert_eq!(
        found.says,
        "on average 5.0 tasks wanted to run on 2 CPUs; the CPUs were busy 100.0% of the time, and tasks waited 3.00s"
    );
    assert_eq!((found.lost_ns, found.cgroup), (3 * S, None));
    let speaks = |ran_ns, waited_ns| !host(ran_ns, waited_ns).at(Rule::CpuOversubscription).is_empty();
    assert!(speaks(1_800 * MS, 600 * MS + 1));
    assert!(!speaks(1_800 * MS, 600 * MS));
    assert!(!speaks(1_800 * MS - 1, S));
}

#[test]
fn only_a_whole_host_with_its_cpus_known_is_oversubscribed() {
    let mut scene = host(2 * S, 3 * S);
    scene.host.whole = false;
    assert!(scene.at(Rule::CpuOversubscription).is_empty());
    scene.host = Host { cpus: None, whole: true, kernel: None };
    assert!(scene.at(Rule::CpuOversubscription).is_empty());
}

#[test]
fn an_oversubscribed_host_explains_the_contention_in_its_root() {
    let mut scene = host(2 * S, 3 * S);
    assert!(scene.at(Rule::OwnContention).is_empty());
    scene = scene.task("/", S, &[(Cause::OwnCgroup, S)]);
    scene.host.whole = false;
    assert_eq!(scene.at(Rule::OwnContention), ["/"]);
}

/// Returns an interval with waits of the cause `wakeup`, and with 20 ms of waiting for kernel threads.
fn wakeups(waits: u64, ns: u64) -> Scene {
    let mut all = vec![(Cause::Kernel, 20 * MS)];
    all.extend((0..waits).map(|_| (Cause::Wakeup, ns)));
    Scene::new(&["/a"]).task("/a", S, &all)
}

#[test]
fn wakeups_are_slow_from_20_percent_of_all_waiting_50us_and_100_waits() {
    let found = wakeups(100, 50_000).only(Rule::WakeupLatency);
    assert_eq!(
        found.says,
        "tasks waited 5.00ms (20.0% of all waiting) until an idle CPU had woken up; 100 such waits took 50.0us on average; the \
         p99 of all waits is 52.0us"
    );
    assert_eq!(found.lost_ns, 5 * MS);
    let speaks = |waits, ns| !wakeups(waits, ns).at(Rule::WakeupLatency).is_empty();
    assert!(!speaks(99, 60_000));
    assert!(!speaks(101, 49_000));
    assert!(speaks(1_000, 50_000));
    assert!(!speaks(1_000, 49_999));
}

#[test]
fn unattributed_waiting_is_reported_from_5_percent_and_10ms() {
    let of = |ns, all_ns| {
        let waits = [(Cause::Unattributed, ns), (Cause::Kernel, all_ns - ns)];
        // The loss `CulpritMerged` does not explain a missing cause.
        [(Loss::MovedAsleep, 7), (Loss::OutOfRuntime, 1), (Loss::CulpritMerged, 5)]
            .into_iter()
            .fold(Scene::new(&["/a"]).task("/a", S, &waits), |scene, (loss, count)| scene.loses(loss, count))
    };
    assert_eq!(
        of(10 * MS, 200 * MS).only(Rule::Unattributed).says,
        "the cause of 10.0ms of waiting (5.0% of all) is not known: in 1 wait, a real-time or deadline task probably had \
         used up its runtime; 7 times, the kernel counted sleep as waiting"
    );
    let reason = |loss| {
        let scene = Scene::new(&["/a"]).task("/a", S, &[(Cause::Unattributed, S)]).loses(loss, 3);
        scene.only(Rule::Unattributed).says.split_once("is not known: ").map(|(_, reason)| reason.to_owned())
    };
    let reasons = [
        (Loss::LookBackCut, "3 waits began before the history of the CPU, or it lacks some cgroups"),
        (Loss::MovedThrottled, "3 times, a throttled task was moved to another CPU"),
        (Loss::MovedUnseen, "3 times, the kernel hid from cgscope that a task was moved to another CPU"),
    ];
    for (loss, expected) in reasons {
        assert_eq!(reason(loss).as_deref(), Some(expected));
    }
    assert!(of(10 * MS - 1, 200 * MS - 20).at(Rule::Unattributed).is_empty());
    assert!(of(10 * MS, 200 * MS + 1).at(Rule::Unattributed).is_empty());
}

#[test]
fn tasks_of_cgroups_without_a_name_count_for_the_host() {
    let mut scene = Scene::new(&["/a"]).task("/a", 0, &[(Cause::Unattributed, 20 * MS)]);
    scene.interval.tasks[0].reading.cgroup_id = 0;
    assert_eq!(scene.at(Rule::Unattributed), ["host"]);
}

#[test]
fn time_that_no_task_had_is_reported_from_5_percent_and_10ms() {
    for (cause, rule, said) in [
        (
            Cause::Irq,
            Rule::Interrupts,
            "tasks waited 10.0ms (5.0% of all waiting) while interrupts had their CPUs",
        ),
        (
            Cause::Stolen,
            Rule::StolenTime,
            "tasks waited 10.0ms (5.0% of all waiting) while the hypervisor had their CPUs for something else",
        ),
    ] {
        let of =
            |ns, all_ns| Scene::new(&["/a"]).task("/a", S, &[(cause, ns), (Cause::OtherCgroup, all_ns - ns)]);
        let found = of(10 * MS, 200 * MS).only(rule);
        assert_eq!((found.says.as_str(), found.lost_ns, found.cgroup), (said, 10 * MS, None));
        assert!(of(10 * MS - 1, 200 * MS - 20).at(rule).is_empty());
        assert!(of(10 * MS, 200 * MS + 1).at(rule).is_empty());
    }
}

#[test]
fn each_cgroup_whose_real_time_tasks_used_up_their_runtime_is_reported() {
    let of = |ns, ran_ns| {
        Scene::new(&["/rt", "/b"]).task("/rt", ran_ns, &[(Cause::RtThrottled, ns)]).task(
            "/b",
            S,
            &[(Cause::Kernel, MS)],
        )
    };
    let found = of(50 * MS, 950 * MS).only(Rule::RealTimeLimit);
    assert_eq!(
        found.says,
        "/rt: its real-time or deadline tasks waited 50.0ms (100.0% of the waiting of its tasks) because they had used up their \
         runtime"
    );
    assert_eq!(found.lost_ns, 50 * MS);
    assert!(of(50 * MS, 950 * MS + 1).at(Rule::RealTimeLimit).is_empty());
    assert!(of(10 * MS - 1, 0).at(Rule::RealTimeLimit).is_empty());
}

#[test]
fn tasks_at_their_limit_do_not_make_a_host_oversubscribed() {
    let at_limits = |cause| host(2 * S, 0).task("/a", 0, &[(cause, 3 * S)]).at(Rule::CpuOversubscription);
    assert!(at_limits(Cause::RtThrottled).is_empty() && at_limits(Cause::Throttled).is_empty());
    assert_eq!(at_limits(Cause::OwnCgroup), ["host"]);
}
