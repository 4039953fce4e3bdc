use super::super::contention::STARTED_WITHIN_NS;
use super::*;
use crate::{Autogroup, CpuInterval, Placement, TaskState};
use cgscope_ledger::history::KERNEL;

fn weight(weight: u64) -> CgroupReading {
    CgroupReading { weight: Some(weight), ..Default::default() }
}

#[test]
fn a_neighbour_is_noisy_from_10_percent_50ms_and_a_fiftieth_of_the_time() {
    let of = |ran_ns, ns| {
        Scene::new(&["/a"]).task("/a", ran_ns, &[(Cause::OtherCgroup, ns)]).at(Rule::NoisyNeighbour)
    };
    assert_eq!(of(900 * MS, 100 * MS), ["/a"]);
    assert!(of(900 * MS, 100 * MS - 1).is_empty());
    assert_eq!(of(0, 50 * MS), ["/a"]);
    assert!(of(0, 50 * MS - 1).is_empty());
    let in_ten_seconds = |ns| {
        let mut scene = Scene::new(&["/a"]).task("/a", 0, &[(Cause::OtherCgroup, ns)]);
        scene.interval.duration_ns = 10 * S;
        scene.at(Rule::NoisyNeighbour)
    };
    assert_eq!(in_ten_seconds(200 * MS), ["/a"]);
    assert!(in_ten_seconds(200 * MS - 1).is_empty());
}

#[test]
fn a_cgroup_that_gets_what_others_leave_must_first_have_a_weight() {
    let idle = CgroupReading { idle: Some(1), ..CgroupReading::default() };
    let found = weighted(100, [100, 100]).limits("/a", idle).only(Rule::NoisyNeighbour);
    assert_eq!(found.action, "none, unless a matters more: then set cpu.idle of a to 0");
    assert!(
        found.advice.starts_with(
            "set cpu.idle of /a to 0 (with 1, it gets what others leave), and give it a higher cpu.weight"
        ),
        "{}",
        found.advice
    );
}

#[test]
fn neighbours_are_named_with_their_share_and_the_weights_that_count() {
    let scene = Scene::new(&["/web", "/web/a", "/batch", "/batch/b", "/c", "/d"])
        .task("/web/a", 900 * MS, &[(Cause::OtherCgroup, 100 * MS), (Cause::Kernel, 500 * MS)])
        .task("/batch/b", S, &[])
        .ran_before("/web/a", "/batch/b", 60 * MS)
        .ran_before("/web/a", "/c", 30 * MS)
        .ran_before("/web/a", "/d", 5 * MS)
        .pair("/web/a", KERNEL, Blame::Ran, 500 * MS)
        .pair("/web/a", 3, Blame::Ran, 700 * MS)
        .limits("/web", weight(100))
        .limits("/web/a", weight(1))
        .limits("/batch", weight(200))
        .limits("/batch/b", weight(1));
    let mut scene = scene;
    scene.interval.pairs[1].tid = 42;
    scene.interval.pairs[1].comm = "stress".into();
    scene.interval.tasks[0].totals.on_cpu_ns = 400 * MS;
    let found = scene.only(Rule::NoisyNeighbour);
    assert_eq!(
        found.says,
        "/web/a: its tasks waited 100ms (10.0% of their run and wait time) behind other cgroups: 60.0% behind /batch/b and \
         30.0% behind /c (stress, thread 42)"
    );
    assert_eq!(
        found.advice,
        "give /web (now 100) a higher cpu.weight (in v1 cpu.shares), or give /batch (now 200) a lower one; or give /batch/b \
         a quota (cpu.max); or give each its own cpuset"
    );
    assert_eq!(found.lost_ns, 100 * MS);
    assert_eq!(found.amount, "60.0ms/s (10% of its waiting)");
    scene.interval.duration_ns = 2 * S;
    assert_eq!(scene.only(Rule::NoisyNeighbour).amount, "30.0ms/s (10% of its waiting)");
}

/// Returns a second in which a task of `/a` ran for `ran_ms`, and waited for a task of `/b` for the rest. The two cgroups have
/// these weights.
fn weighted(ran_ms: u64, weights: [u64; 2]) -> Scene {
    let waited_ms = 1000 - ran_ms;
    Scene::new(&["/a", "/b"])
        .task("/a", ran_ms * MS, &[(Cause::OtherCgroup, waited_ms * MS)])
        .task("/b", waited_ms * MS, &[(Cause::Kernel, ran_ms * MS)])
        .ran_before("/a", "/b", waited_ms * MS)
        .limits("/a", weight(weights[0]))
        .limits("/b", weight(weights[1]))
}

#[test]
fn a_neighbour_within_its_weight_should_not_get_a_limit() {
    let found = weighted(250, [100, 300]).only(Rule::NoisyNeighbour);
    assert!(
        found
            .says
            .ends_with("behind other cgroups: 100.0% behind /b; the time behind /b is within its weight"),
        "{}",
        found.says
    );
    assert_eq!(found.action, "raise its cpu.weight (b is within its weight), or move it");
    assert_eq!(
        found.advice,
        "give /a (now 100) a higher cpu.weight (in v1 cpu.shares, in Kubernetes the CPU request; /b (now 300) uses what its own \
         gives it); or give each its own cpuset, or move one of them to another host"
    );
}

#[test]
fn a_neighbour_beyond_its_weight_should_get_a_limit() {
    // By weight, the neighbour's share is 500 of the 1000 ms.
    let found = weighted(250, [300, 300]).only(Rule::NoisyNeighbour);
    assert!(found.says.ends_with("; 33.3% of the time behind /b is beyond its weight"), "{}", found.says);
    assert_eq!(found.action, "give b a quota (cpu.max) or a lower cpu.weight");
    assert_eq!(
        found.advice,
        "limit /b: give it a quota (cpu.max), or give /b (now 300) a lower cpu.weight (in v1 cpu.shares); or give each its own \
         cpuset"
    );
    // The advice changes if 20 % of the waiting is beyond the neighbour's share. With weight 360 for `/a`, the share of `/b` is
    // 640 ms, but `/b` ran for 800 ms.
    let is_limited =
        |ours| weighted(200, [ours, 640]).only(Rule::NoisyNeighbour).advice.starts_with("limit /b");
    assert!(is_limited(361) && !is_limited(359));
}

#[test]
fn a_lighter_neighbour_beyond_its_weight_should_get_a_limit() {
    let lighter = |weights| {
        let finding = weighted(600, weights).only(Rule::NoisyNeighbour);
        (finding.is_heavier, finding.action)
    };
    let (is_heavier, action) = lighter([100, 100]);
    assert!(is_heavier && action.starts_with("none, unless a matters more"), "{action}");
    assert!(!weighted(500, [100, 100]).only(Rule::NoisyNeighbour).is_heavier, "both ran as long");
    let (is_heavier, action) = lighter([300, 100]);
    assert!(!is_heavier && action.starts_with("give b a quota"), "{action}");
}

#[test]
fn a_neighbour_without_a_name_is_reported() {
    let scene = Scene::new(&["/a"]).task("/a", 0, &[(Cause::OtherCgroup, 100 * MS)]);
    let says = scene.only(Rule::NoisyNeighbour).says;
    assert!(says.ends_with("100ms (100.0% of their run and wait time) behind other cgroups"), "{says}");
    let says = scene.pair("/a", 99, Blame::Ran, 100 * MS).only(Rule::NoisyNeighbour).says;
    assert!(says.ends_with(": 100.0% behind a removed cgroup"), "{says}");
}

#[test]
fn weights_are_no_advice_against_an_ancestor() {
    let scene = Scene::new(&["/a"])
        .task("/a", 0, &[(Cause::OtherCgroup, 100 * MS)])
        .ran_before("/a", "/", 100 * MS)
        .limits("/a", weight(100));
    let found = scene.only(Rule::NoisyNeighbour);
    assert!(
        found.advice.starts_with(
            "move the tasks in / itself (not those in cgroups below it) to a cgroup of their own"
        )
    );
    assert_eq!(found.what, "a waits behind the root cgroup");
    assert_eq!(found.action, "move tasks of the root cgroup to a cgroup with a quota (cpu.max)");
}

/// A task of `/a` waited for a task of `/b`. `victim` and `culprit` are the scheduling policies of these tasks.
fn policies(victim: u8, culprit: u8) -> Scene {
    let mut scene = Scene::new(&["/a", "/b"])
        .task("/a", 400 * MS, &[(Cause::OtherCgroup, 500 * MS)])
        .task("/b", 500 * MS, &[])
        .ran_before("/a", "/b", 500 * MS);
    for (task, policy) in scene.interval.tasks.iter_mut().zip([victim, culprit]) {
        task.reading.scheduling = Some(Scheduling { policy, is_bound: false });
    }
    scene
}

#[test]
fn weights_and_quotas_are_no_advice_for_real_time_tasks() {
    for (culprit, name) in [(1, "SCHED_FIFO"), (2, "SCHED_RR"), (6, "SCHED_DEADLINE")] {
        assert_eq!(
            policies(0, culprit).only(Rule::NoisyNeighbour).advice,
            format!(
                "the neighbour's tasks are real-time tasks ({name}), to which cpu.weight and cpu.max do not apply: give them an \
                 ordinary policy (chrt -o -p 0 2), or give each of the two cgroups its own cpuset"
            )
        );
    }
    assert_eq!(
        policies(1, 0).only(Rule::NoisyNeighbour).advice,
        "the waiting tasks are real-time tasks (SCHED_FIFO), to which cpu.weight and cpu.max do not apply: give them a higher \
         priority (chrt -p), or give each of the two cgroups its own cpuset"
    );
    let action = |victim, culprit| policies(victim, culprit).only(Rule::NoisyNeighbour).action;
    assert_eq!(action(0, 1), "give real-time tasks of b an ordinary policy (chrt -o), or another cpuset");
    assert_eq!(action(1, 0), "give its real-time tasks a higher priority (chrt -p), or another cpuset");
    let ordinary = policies(3, 5).only(Rule::NoisyNeighbour).advice;
    assert!(ordinary.starts_with("give /a a higher cpu.weight"), "{ordinary}");
    // Less than half of the run time of `/b` is from real-time tasks.
    let mixed = policies(0, 1).task("/b", 501 * MS, &[]).only(Rule::NoisyNeighbour).advice;
    assert!(mixed.starts_with("give /a a higher cpu.weight"), "{mixed}");
    // Real-time tasks of a third cgroup do not matter.
    let mut other = policies(0, 0);
    other.interval.cgroups.push((9, "/rt".into()));
    let mut other = other.task("/rt", 5 * S, &[]);
    other.interval.tasks[2].reading.scheduling = Some(Scheduling { policy: 1, is_bound: false });
    let other = other.only(Rule::NoisyNeighbour).advice;
    assert!(other.starts_with("give /a a higher cpu.weight"), "{other}");
}

#[test]
fn real_time_tasks_are_not_compared_with_a_weight() {
    let mut scene = weighted(250, [300, 300]);
    scene.interval.tasks[1].reading.scheduling = Some(Scheduling { policy: 1, is_bound: false });
    let says = scene.only(Rule::NoisyNeighbour).says;
    assert!(says.ends_with("behind other cgroups: 100.0% behind /b"), "{says}");
}

#[test]
fn a_real_time_task_among_other_tasks_of_its_cgroup_is_named() {
    let mut scene = policies(0, 1).task("/b", 5 * S, &[]);
    (scene.interval.pairs[0].tid, scene.interval.pairs[0].comm) = (2, "irq".into());
    let advice = scene.only(Rule::NoisyNeighbour).advice;
    assert!(advice.contains("SCHED_FIFO") && advice.contains("chrt -o -p 0 2"), "{advice}");
}

#[test]
fn kernel_threads_that_are_bound_to_a_cpu_are_not_counted() {
    let mut scene = own(3, 250 * MS);
    assert!(scene.only(Rule::OwnContention).advice.contains("taskset"));
    for task in &mut scene.interval.tasks {
        task.reading.scheduling = Some(Scheduling { policy: 0, is_bound: true });
    }
    assert_eq!(scene.all(), []);
    let mut scene = own(9, 250 * MS);
    for task in &mut scene.interval.tasks[..2] {
        task.reading.scheduling = Some(Scheduling { policy: 0, is_bound: true });
    }
    assert!(scene.all().iter().all(|finding| !finding.says.contains("9 threads")), "{:#?}", scene.all());
}

#[test]
fn neighbours_are_reported_for_the_lowest_cgroups_with_most_of_the_waiting() {
    let behind = |ms: u64| [(Cause::OtherCgroup, ms * MS)];
    let scene = Scene::new(&["/p", "/p/a", "/p/b", "/p/c"])
        .task("/p/a", 0, &behind(60))
        .task("/p/b", 0, &behind(60))
        .task("/p/c", 0, &behind(30));
    // `/p/a` and `/p/b` together have 80 % of the waiting.
    assert_eq!(scene.at(Rule::NoisyNeighbour), ["/p/a", "/p/b"]);
    let scene = scene.task("/p/c", 0, &behind(1));
    assert_eq!(scene.at(Rule::NoisyNeighbour), ["/p", "/p/a", "/p/b"]);
}

#[test]
fn many_small_cgroups_are_reported_together() {
    let paths: Vec<String> = (0..10).map(|i| format!("/p/{i}")).chain(["/p".into()]).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let scene = paths
        .iter()
        .fold(Scene::new(&paths), |scene, path| scene.task(path, 0, &[(Cause::OtherCgroup, 20 * MS)]));
    assert_eq!(scene.at(Rule::NoisyNeighbour), ["/p"]);
}

#[test]
fn the_root_is_reported_only_for_its_own_tasks() {
    let scene = Scene::new(&["/a"]).task("/", 0, &[(Cause::OtherCgroup, 400 * MS)]);
    assert_eq!(scene.at(Rule::NoisyNeighbour), ["/"]);
    let scene = scene.task("/a", 0, &[(Cause::OtherCgroup, 50 * MS)]);
    assert_eq!(scene.at(Rule::NoisyNeighbour), ["/a"]);
}

/// Each of `threads` threads in `/a` ran for 750 ms and waited `ns` for the other threads.
fn own(threads: u64, ns: u64) -> Scene {
    let scene = Scene::new(&["/a"]);
    (0..threads).fold(scene, |scene, _| scene.task("/a", 750 * MS, &[(Cause::OwnCgroup, ns)]))
}

#[test]
fn own_contention_is_reported_from_25_percent() {
    let mut scene = own(9, 250 * MS);
    let found = scene.only(Rule::OwnContention);
    assert_eq!(
        found.says,
        "/a: its tasks waited 2.25s (25.0% of their run and wait time) for each other: 9 threads were busy, but the cgroup \
         may use only 8 CPUs; process 1 (worker) ran for 750ms, process 2 (worker) ran for 750ms and process 3 (worker) ran for \
         750ms"
    );
    assert_eq!(
        found.advice,
        "start at most 8 threads (the number of CPUs that the cgroup may use), or allow more CPUs (cpuset.cpus)"
    );
    assert!(own(9, 250 * MS - 1).at(Rule::OwnContention).is_empty());
    scene.host.cpus = None;
    assert!(scene.at(Rule::OwnContention).is_empty(), "the number of CPUs is unknown");
    let cpuset = CgroupReading { cpus: Some(4), ..Default::default() };
    assert!(scene.limits("/a", cpuset).only(Rule::OwnContention).says.contains("may use only 4 CPUs;"));
}

#[test]
fn who_ran_in_the_cgroup_is_named() {
    let mut scene = own(9, 250 * MS);
    for (at, task) in scene.interval.tasks.iter_mut().enumerate() {
        task.reading.tgid = 20 + at as u32 / 6;
        task.reading.comm = if at < 6 { "cc1".into() } else { "make".into() };
    }
    let ran = "; process 20 (cc1) ran for 4.50s and process 21 (make) ran for 2.25s";
    assert!(scene.only(Rule::OwnContention).says.ends_with(ran), "{}", scene.only(Rule::OwnContention).says);
    // Threads are distinguished if the target is selected by process.
    let mut scene = scene.pair("/a", 1, Blame::Ran, 800 * MS).pair("/a", 1, Blame::Ran, 900 * MS);
    for (pair, tid) in scene.interval.pairs.iter_mut().zip([31, 32]) {
        (pair.culprit, pair.tid, pair.comm) = (pair.victim, tid, "ld".into());
    }
    let ran = "; 900ms behind thread 32 (ld) and 800ms behind thread 31 (ld)";
    assert!(scene.only(Rule::OwnContention).says.ends_with(ran), "{}", scene.only(Rule::OwnContention).says);
}

#[test]
fn who_ran_in_the_root_is_named() {
    let mut scene = Scene::new(&["/a"])
        .task("/a", 0, &[(Cause::OtherCgroup, S)])
        .task("/", 700 * MS, &[])
        .ran_before("/a", "/", S);
    scene.interval.tasks[1].reading.comm = "rustc".into();
    // Without an autogroup, it may be a kernel thread.
    assert!(scene.only(Rule::NoisyNeighbour).says.ends_with("100.0% behind /"));
    let autogroup = Some(Autogroup { number: 7, nice: 0 });
    scene.interval.tasks[1].reading.placement =
        Some(Arc::new(Placement { autogroup, ..Placement::default() }));
    let found = scene.only(Rule::NoisyNeighbour);
    assert!(found.says.ends_with("100.0% behind / (process 2 (rustc) ran for 700ms)"), "{}", found.says);
}

#[test]
fn as_many_threads_as_cpus_are_not_too_many() {
    for (threads, advice, action) in [
        (
            8,
            "check whether an affinity mask (taskset -acp 1)",
            "check whether an affinity mask pins its threads (taskset -acp)",
        ),
        (9, "start at most 8 threads", "start fewer threads, or let it use more CPUs (cpuset.cpus)"),
    ] {
        let found = own(threads, 250 * MS).only(Rule::OwnContention);
        assert!(found.advice.starts_with(advice), "{}", found.advice);
        assert_eq!(found.action, action);
    }
}

#[test]
fn short_contention_is_not_reported() {
    let of = |ns| {
        let scene = Scene::new(&["/a"]).task("/a", 15 * MS, &[(Cause::OwnCgroup, ns)]);
        scene.task("/a", 15 * MS, &[]).at(Rule::OwnContention)
    };
    assert_eq!(of(10 * MS), ["/a"]);
    assert!(of(10 * MS - 1).is_empty());
}

#[test]
fn few_threads_on_even_fewer_cpus_are_badly_spread() {
    let mut scene = own(3, 250 * MS);
    let found = scene.only(Rule::OwnContention);
    assert!(
        found.says.contains("the cgroup may use 8 CPUs, but its 3 busy threads were last seen on only 1 CPU"),
        "{}",
        found.says
    );
    assert!(found.advice.contains("taskset -acp 1"), "{}", found.advice);
    for (task, cpu) in scene.interval.tasks.iter_mut().zip(0..) {
        task.reading.cpu = cpu;
    }
    assert_eq!(scene.all(), []);
}

#[test]
fn threads_on_separate_cpus_are_reported_only_if_they_outnumber_the_cpus() {
    let spread = |threads| {
        let mut scene = own(threads, 250 * MS);
        scene.interval.tasks.iter_mut().zip(0..).for_each(|(task, cpu)| task.reading.cpu = cpu);
        scene.at(Rule::OwnContention)
    };
    assert!(spread(8).is_empty());
    assert_eq!(spread(9), ["/a"]);
    assert_eq!(spread(10), ["/a"]);
}

#[test]
fn contention_of_exited_threads_is_not_attributed_to_living_threads() {
    let scene = own(2, 250 * MS).exited("/a", 0, &[(Cause::OwnCgroup, S)]);
    assert!(scene.at(Rule::OwnContention).is_empty());
}

#[test]
fn a_quota_that_runs_out_explains_contention_below_it() {
    let mut scene = Scene::new(&["/a", "/a/b"]).limits("/a", periods(1.0, 5, 10));
    for _ in 0..9 {
        scene = scene.task("/a/b", 750 * MS, &[(Cause::OwnCgroup, 250 * MS)]);
    }
    assert!(scene.at(Rule::OwnContention).is_empty());
    scene.interval.limits[0].nr_throttled = Some(0);
    assert_eq!(scene.at(Rule::OwnContention), ["/a/b"]);
}

#[test]
fn a_quota_that_explains_little_does_not_hide_what_explains_more() {
    let scene = Scene::new(&["/a"])
        .task("/a", S, &[(Cause::OwnCgroup, 950 * MS), (Cause::Throttled, 50 * MS)])
        .task("/a", S, &[(Cause::OwnCgroup, 950 * MS)])
        .limits("/a", periods(8.0, 6, 100))
        .limited("/a", "/a", 50 * MS);
    let rules: Vec<Rule> = scene.all().iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [Rule::OwnContention]);
}

#[test]
fn cpus_that_are_isolated_from_a_cgroup_are_not_its_own() {
    let mut scene = own(6, 250 * MS);
    scene.interval.cpus =
        (0..8).map(|cpu| CpuInterval { cpu, is_isolated: cpu > 3, ..CpuInterval::default() }).collect();
    let placement = Placement { cpus_allowed: Some("0-3".into()), ..Placement::default() };
    for task in &mut scene.interval.tasks {
        task.reading.placement = Some(Arc::new(placement.clone()));
    }
    let says = scene.only(Rule::OwnContention).says;
    assert!(says.contains("6 threads were busy, but the cgroup may use only 4 CPUs"), "{says}");
    // Masks that were not read say nothing.
    scene.interval.tasks.iter_mut().for_each(|task| task.reading.placement = None);
    assert!(!scene.only(Rule::OwnContention).says.contains("4 CPUs"));
}

#[test]
fn advice_against_a_lighter_neighbour_comes_last_and_is_to_do_nothing() {
    let scene = Scene::new(&["/system.slice/web.service", "/system.slice/backup.service/main"])
        .task("/system.slice/web.service", 200 * MS, &[(Cause::OtherCgroup, 300 * MS)])
        .task("/system.slice/backup.service/main", S, &[(Cause::OtherCgroup, 400 * MS)])
        .ran_before("/system.slice/web.service", "/system.slice/backup.service/main", 300 * MS)
        .ran_before("/system.slice/backup.service/main", "/system.slice/web.service", 400 * MS);
    let found = scene.all();
    let short: Vec<_> =
        found.iter().map(|finding| (finding.what.as_str(), finding.action.as_str())).collect();
    assert_eq!(
        short,
        [
            (
                "web.service waits behind backup.service/main",
                "give backup.service/main a quota (cpu.max) or a lower cpu.weight"
            ),
            (
                "backup.service/main waits behind web.service",
                "none, unless backup.service/main matters more: then raise its cpu.weight"
            ),
        ]
    );
    assert_eq!(found.iter().map(|finding| finding.is_heavier).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn the_own_contention_of_a_culprit_comes_after_its_victims() {
    let mut scene =
        Scene::new(&["/audio", "/batch"]).task("/audio", 160 * MS, &[(Cause::OtherCgroup, 170 * MS)]);
    for _ in 0..4 {
        scene = scene.task("/batch", 450 * MS, &[(Cause::OwnCgroup, 480 * MS)]);
    }
    scene.host.cpus = Some(2);
    let rules = |scene: &Scene| scene.all().iter().map(|finding| finding.rule).collect::<Vec<_>>();
    let behind_another = scene.ran_before("/audio", "/", 170 * MS);
    let host = Rule::CpuOversubscription;
    assert_eq!(rules(&behind_another), [Rule::OwnContention, Rule::NoisyNeighbour, host]);
    let scene =
        Scene { interval: Interval { pairs: Vec::new(), ..behind_another.interval }, ..behind_another };
    let scene = scene.ran_before("/audio", "/batch", 170 * MS);
    assert_eq!(rules(&scene), [Rule::NoisyNeighbour, Rule::OwnContention, host]);
}

/// Returns a second on two CPUs in which two loops of autogroup 7 ran for half of the time, as did four loops of autogroup 8.
fn two_sessions(nice: [i32; 2]) -> Scene {
    let mut scene = Scene::new(&[]);
    for (at, number) in [7, 7, 8, 8, 8, 8].into_iter().enumerate() {
        let ran_ns = if number == 7 { 500 * MS } else { 250 * MS };
        scene = scene.task("/", ran_ns, &[(Cause::OwnCgroup, S - ran_ns)]);
        let autogroup = Some(Autogroup { number, nice: nice[usize::from(number == 8)] });
        let reading = &mut scene.interval.tasks[at].reading;
        reading.comm = if number == 7 { "web" } else { "batch" }.into();
        reading.placement = Some(Arc::new(Placement { autogroup, ..Placement::default() }));
    }
    scene.host.cpus = Some(2);
    scene
}

#[test]
fn a_session_that_waits_for_another_one_comes_before_the_host() {
    let scene = two_sessions([0, 19]);
    let found = &scene.all()[0];
    assert_eq!((found.rule, found.lost_ns), (Rule::Sessions, S));
    assert_eq!(found.headline(), "web waits behind session batch: 1.00s/s (50% of its time)");
    assert_eq!(
        found.says,
        "2 processes (web, among them 2) waited 1.00s (50.0% of their run and wait time) behind other tasks of the root cgroup, of \
         which 4 processes (batch, among them 6) of another session ran 1.00s; sessions (autogroups) share the CPUs equally, \
         whatever nice values their tasks have (0 and 19)"
    );
    assert!(found.advice.contains("echo 19 > /proc/6/autogroup"), "{}", found.advice);
    assert!(scene.at(Rule::OwnContention).is_empty());
    // With equal nice values, only the one that has no more threads than there are CPUs is a victim.
    assert!(two_sessions([0, 0]).only(Rule::Sessions).what.ends_with("session batch"));
}

#[test]
fn a_session_that_waits_little_does_not_hide_how_much_another_one_waits_for_itself() {
    let mut scene = two_sessions([0, 19]);
    let waits = [(Cause::OwnCgroup, S)];
    for _ in 0..8 {
        scene = scene.task("/", 100 * MS, &waits);
    }
    scene.host = Host { whole: false, ..scene.host };
    assert_eq!((scene.at(Rule::Sessions).len(), scene.at(Rule::OwnContention).len()), (1, 1));
    scene.interval.tasks.truncate(2 + 4);
    scene.interval.tasks.iter_mut().skip(2).for_each(|task| task.wait = Wait::default());
    assert_eq!((scene.at(Rule::Sessions).len(), scene.at(Rule::OwnContention).len()), (1, 0));
}

#[test]
fn one_session_is_not_reported() {
    let mut scene = two_sessions([0, 19]);
    for task in &mut scene.interval.tasks {
        let autogroup = Some(Autogroup { number: 7, nice: 0 });
        task.reading.placement = Some(Arc::new(Placement { autogroup, ..Placement::default() }));
    }
    assert!(scene.at(Rule::Sessions).is_empty());
    assert_eq!(scene.all()[0].rule, Rule::CpuOversubscription);
    scene.interval.tasks.iter_mut().for_each(|task| task.reading.placement = None);
    assert!(scene.at(Rule::Sessions).is_empty());
}

/// Ten jobs of 50 ms started at once on 8 CPUs, or on 2.
fn jobs(ran_ms: u64, cpus: u32) -> Scene {
    let mut scene = Scene::new(&["/cron", "/svc"]);
    for _ in 0..10 {
        scene = scene.exited("/cron", ran_ms * MS, &[(Cause::OwnCgroup, 180 * MS)]);
    }
    let joined = std::mem::take(&mut scene.interval.exited).into_iter().reduce(|mut sum, next| {
        sum.tasks += next.tasks;
        sum.totals.add(&next.totals);
        sum.wait.add(&next.wait);
        sum
    });
    scene.interval.exited.extend(joined);
    scene.host.cpus = Some(cpus);
    scene
}

#[test]
fn many_short_tasks_at_once_are_reported_as_such() {
    let found = jobs(50, 2).only(Rule::JobBursts);
    assert_eq!(
        found.says,
        "/cron: its tasks waited 1.80s (78.3% of their run and wait time) for each other, most of it in 10 tasks that started or \
         ended meanwhile, although the cgroup used 0.5 of 2 CPUs on average: they start at once"
    );
    assert_eq!(found.headline(), "cron starts short tasks at once: 10 tasks, waiting 1.80s/s");
    // Some of the tasks may not have ended yet.
    let mut scene = Scene::new(&["/cron"]);
    for _ in 0..10 {
        scene = scene.task("/cron", 50 * MS, &[(Cause::OwnCgroup, 180 * MS)]);
    }
    scene.host.cpus = Some(2);
    assert!(scene.at(Rule::JobBursts).is_empty());
    scene
        .interval
        .tasks
        .iter_mut()
        .skip(5)
        .for_each(|task| (task.reading.start_ns, task.reading.state) = (1, Some(TaskState::Running)));
    assert_eq!(scene.at(Rule::JobBursts), ["/cron"]);
    // In an appended interval, `exited` has the tasks that ended, too.
    scene.interval.tasks.iter_mut().for_each(|task| task.reading.state = None);
    assert!(scene.at(Rule::JobBursts).is_empty());
    let mut long = jobs(50, 2);
    long.interval.tasks = std::mem::take(&mut scene.interval.tasks);
    long.interval.tasks.iter_mut().for_each(|task| task.reading.state = Some(TaskState::Running));
    assert!(long.only(Rule::JobBursts).says.contains("in 15 tasks"), "{}", long.only(Rule::JobBursts).says);
    long.interval.duration_ns = STARTED_WITHIN_NS + 1;
    assert!(long.only(Rule::JobBursts).says.contains("in 10 tasks"), "{}", long.only(Rule::JobBursts).says);
    // A cgroup whose CPUs others take is no burst.
    let beside = jobs(50, 2).task("/cron", 0, &[(Cause::OtherCgroup, 700 * MS)]);
    assert!(beside.at(Rule::JobBursts).is_empty());
    // A build that keeps the CPUs busy has too few of them.
    assert!(jobs(150, 2).at(Rule::JobBursts).is_empty());
}

#[test]
fn what_explains_little_of_the_waiting_is_not_shown_beside_what_explains_more() {
    // 8 % of the waiting, but more than a tenth of the run and wait time.
    let scene = jobs(5, 2).exited("/svc", 500 * MS, &[]);
    let mut scene =
        scene.task("/cron", 0, &[(Cause::OtherCgroup, 160 * MS)]).ran_before("/cron", "/svc", 160 * MS);
    assert_eq!(scene.at(Rule::JobBursts), ["/cron"]);
    assert!(scene.at(Rule::NoisyNeighbour).is_empty(), "{:#?}", scene.all());
    scene.interval.exited.clear();
    assert_eq!(scene.at(Rule::NoisyNeighbour), ["/cron"]);
}

#[test]
fn a_poller_of_an_io_uring_is_named() {
    let scene = Scene::new(&["/ring"]).task("/ring", 500 * MS, &[(Cause::OwnCgroup, 500 * MS)]);
    let mut scene = scene.task("/ring", 500 * MS, &[(Cause::OwnCgroup, 500 * MS)]);
    scene.interval.tasks[1].reading.comm = "iou-sqp-1".into();
    let found = scene.only(Rule::OwnContention);
    assert!(found.says.ends_with("; iou-sqp-1 (thread 2) polls an io_uring on CPU 0"), "{}", found.says);
    assert!(found.advice.contains("sq_thread_idle"), "{}", found.advice);
}
