use super::*;
use crate::{
    Pending, SchedExt,
    findings::quota::{IDLE_PERIODS, LEAST_PERIODS},
};

/// Field case 2: 20 threads under a quota of 1 CPU, for 139.3 s.
fn field_case_2() -> Scene {
    let limits = CgroupReading {
        usage_ns: Some(120_338_230_000),
        user_ns: Some(115_792_691_000),
        system_ns: Some(4_545_540_000),
        throttled_ns: Some(263_624_194_000),
        ..periods(1.0, 1194, 1393)
    };
    let mut scene = Scene::new(&["/pods", "/pods/a"]).limits("/pods/a", limits);
    scene.interval.duration_ns = 139_300 * MS;
    for _ in 0..20 {
        // This time is from the kernel's counter for the whole cgroup. The test divides it among the tasks.
        let waits = [(Cause::Throttled, 13_181_209_700), (Cause::OwnCgroup, 60 * S)];
        scene = scene.task("/pods/a", 6_016_911_500, &waits);
        scene.interval.tasks.last_mut().unwrap().reading.tgid = 1;
    }
    scene
}

#[test]
fn field_case_2_is_reported_with_its_figures() {
    let found = field_case_2().only(Rule::Throttled);
    assert_eq!(found.cgroup.as_deref(), Some("/pods/a"));
    assert_eq!(
        found.says,
        "/pods/a: its quota (1 CPU: 100ms of every 100ms) ran out in 85.7% of 1393 periods; its tasks were throttled for \
         4m23s, 2.2 times their run time (2m00s); cpu.stat reports 4m23s of throttled time (a sum over CPUs, so it may \
         exceed the 2m19s that passed), 2.2 times the CPU time that the cgroup used"
    );
    assert_eq!(
        found.advice,
        "let fewer threads run at once, or raise its limit (cpu.max, in v1 cpu.cfs_quota_us); the cgroup is CPU-bound \
         (96.2% of its CPU time is in user mode)"
    );
    assert_eq!(found.lost_ns, 263_624_194_000);
}

#[test]
fn throttled_time_is_called_a_sum_and_beyond_the_interval_it_is_explained() {
    let says = |throttled_ns| {
        let limits = CgroupReading { throttled_ns: Some(throttled_ns), ..periods(0.5, 10, 10) };
        Scene::new(&["/a"])
            .limits("/a", limits)
            .task("/a", S, &[(Cause::Throttled, S)])
            .only(Rule::Throttled)
            .says
    };
    assert!(says(S).contains("cpu.stat reports 1.00s of throttled time (a sum over CPUs)"), "{}", says(S));
    assert!(
        says(S + 1).contains("(a sum over CPUs, so it may exceed the 1.00s that passed)"),
        "{}",
        says(S + 1)
    );
}

/// If it is unknown whose quota throttled a task, the time counts for the tightest quota. If the quota is outside the recording,
/// the time does not count.
#[test]
fn the_finding_has_all_throttled_time_and_says_what_is_not_named() {
    let scene = || {
        let scene = Scene::new(&["/a", "/a/b", "/gone"]).limits("/a", periods(0.5, 10, 10));
        scene.task("/a/b", S, &[(Cause::Throttled, S)])
    };
    let unnamed = "for 600ms of these it is not recorded whose quota had run out";
    for (named_ns, says_so) in [(400 * MS, true), (801 * MS, false), (2 * S, false)] {
        let found = scene().limited("/a/b", "/a", named_ns).only(Rule::Throttled);
        assert_eq!((found.lost_ns, found.cgroup.as_deref()), (S, Some("/a")));
        assert_eq!(found.says.contains(unnamed), says_so, "{}", found.says);
    }
    let found = scene().limited("/a/b", "/a", 300 * MS).pair("/a/b", 77, Blame::Limited, 700 * MS);
    assert_eq!(found.only(Rule::Throttled).lost_ns, 300 * MS);
    assert_eq!(scene().only(Rule::Throttled).lost_ns, S);
}

#[test]
fn the_quota_of_a_unit_is_doubled_with_systemctl() {
    for (cores, percent) in [(0.5, "100"), (0.333, "66.6"), (4.0, "800")] {
        let path = "/shop.slice/render.service";
        let limits = CgroupReading { throttled_ns: Some(S), ..periods(cores, 10, 10) };
        let scene = Scene::new(&["/shop.slice", path]).limits(path, limits);
        let found = scene.task(path, (4.0 * S as f64) as u64, &[(Cause::Throttled, S)]).only(Rule::Throttled);
        let expected = format!("raise its limit: systemctl set-property render.service CPUQuota={percent}%");
        assert_eq!((found.advice, &*found.action), (expected, "raise its limit (CPUQuota=)"));
    }
}

#[test]
fn field_case_2_has_too_many_threads_but_no_bursts_or_own_contention() {
    let scene = field_case_2();
    let found = scene.only(Rule::ThreadsOverQuota);
    assert_eq!(
        found.says,
        "/pods/a: 20 threads of 1 process share a quota of 1 CPU, and together use it up before the period ends; they waited 20m00s for each other and 4m23s for the quota"
    );
    assert_eq!(
        found.advice,
        "start at most 1 thread (one for each CPU of the limit); with a higher limit alone, they still wait for each other, and if \
         they spin meanwhile, their CPU time is not work; programs that count the host's CPUs (8) start too many"
    );
    let rules: Vec<_> = scene.all().iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, [Rule::ThreadsOverQuota, Rule::Throttled]);
}

#[test]
fn field_case_2_is_reported_from_its_files_alone() {
    let mut scene = field_case_2();
    scene.interval.tasks.clear();
    scene.interval.limits[0].usage_ns = None;
    let found = scene.all();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].says,
        "/pods/a: its quota (1 CPU: 100ms of every 100ms) ran out in 85.7% of 1393 periods; cpu.stat reports 4m23s of \
         throttled time (a sum over CPUs, so it may exceed the 2m19s that passed)"
    );
}

#[test]
fn a_quota_is_reported_from_5_percent_of_its_periods() {
    let of =
        |nr_throttled| Scene::new(&["/a"]).limits("/a", periods(1.0, nr_throttled, 1000)).at(Rule::Throttled);
    assert_eq!(of(50), ["/a"]);
    assert!(of(49).is_empty());
}

#[test]
fn a_quota_is_reported_from_5_percent_and_10ms_of_the_time_of_tasks() {
    let of = |ran_ns, ns| {
        let scene = Scene::new(&["/a"]).task("/a", ran_ns, &[(Cause::Throttled, ns)]);
        scene.limits("/a", cores(4.0)).at(Rule::Throttled)
    };
    assert_eq!(of(190 * MS, 10 * MS), ["/a"]);
    assert!(of(190 * MS, 10 * MS - 1).is_empty());
    assert_eq!(of(950 * MS, 50 * MS), ["/a"]);
    assert!(of(950 * MS, 50 * MS - 1).is_empty());
}

#[test]
fn without_a_reading_of_the_quota_its_figures_are_omitted() {
    let scene = Scene::new(&["/a"]).task("/a", S, &[(Cause::Throttled, S)]);
    assert_eq!(scene.all(), []);
    // The quota ran out. It may have been removed afterwards.
    let scene = scene.limited("/a", "/a", S);
    let found = scene.only(Rule::Throttled);
    assert_eq!(
        found.says,
        "/a: its quota ran out; its tasks were throttled for 1.00s, 1.0 times their run time (1.00s)"
    );
    assert_eq!(scene.all().len(), 1);
}

#[test]
fn throttling_is_reported_only_for_the_cgroup_with_the_quota() {
    let scene = Scene::new(&["/pods", "/pods/a", "/pods/a/c", "/pods/b"])
        .task("/pods/a/c", S, &[(Cause::Throttled, S)])
        .task("/pods/b", S, &[(Cause::Throttled, S / 2)])
        .limits("/pods", cores(4.0))
        .limits("/pods/a", periods(1.0, 5, 10))
        .limits("/pods/a/c", cores(2.0))
        .limited("/pods/a/c", "/pods/a", S)
        .limited("/pods/b", "/pods/a", S / 2);
    assert_eq!(scene.at(Rule::Throttled), ["/pods/a"]);
    assert_eq!(scene.only(Rule::Throttled).lost_ns, 3 * S / 2);
}

#[test]
fn each_of_two_quotas_that_ran_out_has_its_own_waiting() {
    let scene = Scene::new(&["/pods", "/pods/a"])
        .task("/pods/a", S, &[(Cause::Throttled, S)])
        .limits("/pods", cores(4.0))
        .limits("/pods/a", cores(1.0))
        .limited("/pods/a", "/pods", 300 * MS)
        // If tasks are selected by name, the pairs have more waiting time than these tasks.
        .limited("/pods/a", "/pods/a", 900 * MS);
    let lost: Vec<_> = scene
        .all()
        .into_iter()
        .filter(|finding| finding.rule == Rule::Throttled)
        .map(|finding| (finding.cgroup.unwrap().to_string(), finding.lost_ns))
        .collect();
    assert_eq!(lost, [("/pods/a".to_owned(), 900 * MS), ("/pods".to_owned(), 100 * MS)]);
}

#[test]
fn exited_tasks_were_throttled_too() {
    let scene = Scene::new(&["/a"]).exited("/a", S, &[(Cause::Throttled, S)]).limits("/a", cores(1.0));
    assert_eq!(scene.only(Rule::Throttled).lost_ns, S);
}

/// Returns `n` threads in a throttled cgroup with a quota of 1.5 CPUs. Each thread ran for `ran_ns`.
fn threads(n: u64, ran_ns: u64) -> Scene {
    let scene = Scene::new(&["/a"]).limits("/a", periods(1.5, 5, 10));
    (0..n).fold(scene, |scene, _| scene.task("/a", ran_ns, &[]))
}

#[test]
fn threads_are_too_many_above_the_quota_rounded_up() {
    assert_eq!(threads(3, 10 * MS).at(Rule::ThreadsOverQuota), ["/a"]);
    assert!(threads(2, 10 * MS).at(Rule::ThreadsOverQuota).is_empty());
    assert!(threads(3, 10 * MS - 1).at(Rule::ThreadsOverQuota).is_empty());
}

#[test]
fn an_unfinished_wait_counts_for_at_most_the_interval() {
    let mut scene = threads(3, 0);
    for task in &mut scene.interval.tasks {
        task.reading.pending = Some(Pending { ns: 10 * MS, ..Default::default() }.into());
    }
    assert_eq!(scene.at(Rule::ThreadsOverQuota), ["/a"]);
    scene.interval.tasks[0].reading.pending = Some(Pending { ns: u64::MAX, ..Default::default() }.into());
    assert_eq!(scene.at(Rule::ThreadsOverQuota), ["/a"]);
}

#[test]
fn threads_are_not_too_many_if_no_quota_runs_out() {
    let mut scene = threads(20, 10 * MS);
    scene.interval.limits[0].nr_throttled = Some(0);
    assert_eq!(scene.all(), []);
}

#[test]
fn the_cpus_of_the_host_are_named_only_if_they_exceed_the_quota() {
    let mut scene = threads(3, 10 * MS);
    scene.host.cpus = Some(2);
    assert_eq!(
        scene.only(Rule::ThreadsOverQuota).advice,
        "start at most 2 threads (one for each CPU of the limit), or raise the limit"
    );
}

fn bursts(used_ns: Option<u64>, limits: CgroupReading) -> Scene {
    Scene::new(&["/a"]).limits("/a", CgroupReading { usage_ns: used_ns, ..limits })
}

#[test]
fn bursts_are_reported_below_80_percent_of_the_quota() {
    let found = bursts(Some(400 * MS), periods(1.0, 3, 10)).only(Rule::ThrottledBelowLimit);
    assert_eq!(
        found.says,
        "/a: it used 0.4 of 1 CPU on average, yet its quota ran out in 30.0% of the 10 periods in which it ran: it works in bursts"
    );
    assert_eq!(
        found.advice,
        "allow a burst of up to its quota, 100ms (cpu.max.burst, in v1 cpu.cfs_burst_us; Linux 5.14), or make the period \
         longer"
    );
    let speaks = |ns, throttled| {
        !bursts(Some(ns), periods(1.0, throttled, 100)).at(Rule::ThrottledBelowLimit).is_empty()
    };
    // The kernel may count two more periods, in which nothing ran.
    assert!(speaks(7_840 * MS - 1, 5));
    assert!(!speaks(7_840 * MS, 5));
    assert!(!speaks(4 * S, 4));
}

#[test]
fn a_load_that_ended_has_no_bursts() {
    // The load used up two periods, and 30 ms of the third. It did not run in the fourth, and then the kernel's timer stopped.
    assert!(bursts(Some(230 * MS), periods(1.0, 2, 4)).at(Rule::ThrottledBelowLimit).is_empty());
}

#[test]
fn a_few_periods_show_no_bursts() {
    let at = |all| bursts(Some(50 * MS), periods(1.0, 1, all)).at(Rule::ThrottledBelowLimit);
    assert!(at(IDLE_PERIODS + LEAST_PERIODS - 1).is_empty() && !at(IDLE_PERIODS + LEAST_PERIODS).is_empty());
}

#[test]
fn a_steady_load_that_others_hold_back_has_no_bursts() {
    let held_back = |cause| {
        let scene = bursts(Some(400 * MS), periods(1.0, 3, 10)).task("/a", 400 * MS, &[(cause, 500 * MS)]);
        scene.at(Rule::ThrottledBelowLimit)
    };
    assert!(held_back(Cause::OtherCgroup).is_empty() && held_back(Cause::Kernel).is_empty());
    assert_eq!(held_back(Cause::OwnCgroup), ["/a"], "its own threads work in bursts");
}

#[test]
fn a_steady_load_that_does_not_fill_the_interval_has_no_bursts() {
    // The load ran for 0.6 s of the second, so only 6 of 10 possible periods began. It used 97 % of the quota in these 6 periods.
    assert!(bursts(Some(291 * MS), periods(0.5, 6, 6)).at(Rule::ThrottledBelowLimit).is_empty());
    let says = bursts(Some(200 * MS), periods(0.5, 1, 10)).only(Rule::ThrottledBelowLimit).says;
    assert!(says.starts_with("/a: it used 0.2 of 0.5 CPUs on average"), "{says}");
}

#[test]
fn the_advice_names_a_burst_that_is_already_allowed() {
    let advice = |burst_us, nr_bursts| {
        let limits = CgroupReading { burst_us: Some(burst_us), nr_bursts, ..periods(1.0, 3, 10) };
        bursts(Some(400 * MS), limits).only(Rule::ThrottledBelowLimit).advice
    };
    assert!(advice(0, Some(0)).starts_with("allow a burst"));
    assert_eq!(
        advice(20_000, Some(1)),
        "its burst is 20.0ms (used in 1 period): raise the burst (cpu.max.burst, in v1 cpu.cfs_burst_us) to at most its \
         quota (100ms), or make the period longer"
    );
    assert_eq!(
        advice(100_000, None),
        "its burst is 100ms, the maximum for its quota: make the period longer, or raise the limit"
    );
}

#[test]
fn the_measured_use_counts_only_if_the_whole_host_was_measured() {
    let mut scene = bursts(None, periods(1.0, 3, 10)).task("/a", 400 * MS, &[]);
    assert_eq!(scene.at(Rule::ThrottledBelowLimit), ["/a"]);
    scene.host.whole = false;
    assert!(scene.at(Rule::ThrottledBelowLimit).is_empty());
}

#[test]
fn under_a_bpf_scheduler_of_all_tasks_no_finding_relies_on_a_quota() {
    let with = |takes_all, mut scene: Scene| {
        scene.interval.sched_ext = Some(SchedExt { scheduler: Some("simple".into()), takes_all });
        scene.all()
    };
    assert_eq!(
        with(true, field_case_2()).iter().map(|finding| finding.rule).collect::<Vec<_>>(),
        [Rule::OwnContention]
    );
    assert_eq!(with(false, field_case_2()), field_case_2().all(), "the other tasks have their quotas");
    let behind = || {
        Scene::new(&["/a", "/b"])
            .task("/a", 100 * MS, &[(Cause::OtherCgroup, 300 * MS)])
            .task("/b", S, &[])
            .ran_before("/a", "/b", 300 * MS)
    };
    assert!(behind().all()[0].action.contains("cpu.max"), "{:?}", behind().all());
    let found = with(true, behind());
    assert_eq!(found[0].action, "see the options of the BPF scheduler simple");
    assert_eq!(
        found[0].advice,
        "see the options of the BPF scheduler simple, which may ignore cpu.weight and cpu.max; or give the cgroups separate \
         CPUs (cpuset.cpus)"
    );
}

/// 30 runs of 30 ms in 30 s, under 10 ms of every 100 ms. Each run takes three periods.
#[test]
fn a_run_that_no_burst_covers_needs_a_higher_limit_or_a_longer_period() {
    let limits = CgroupReading {
        nr_periods: Some(130),
        nr_throttled: Some(60),
        usage_ns: Some(900 * MS),
        ..cores(0.1)
    };
    let mut scene =
        Scene::new(&["/a"]).task("/a", 900 * MS, &[(Cause::Throttled, 5_400 * MS)]).limits("/a", limits);
    scene.interval.duration_ns = 30 * S;
    scene.interval.tasks[0].totals.voluntary = 30;
    let found = scene.only(Rule::ThrottledBelowLimit);
    assert_eq!(
        found.says,
        "/a: it used 0.03 of 0.1 CPUs on average, yet its quota ran out in 46.2% of the 130 periods in which it ran (throttled for 5.40s): it \
         works in bursts of 30.0ms on average, and the longest burst adds only 10.0ms"
    );
    assert_eq!(
        found.advice,
        "raise its limit to 0.31 CPUs (write \"31000 100000\" to cpu.max of /a (v1: cpu.cfs_quota_us)), or keep it and make the \
         period longer (31.0ms of every 310ms)"
    );
    assert_eq!(scene.all()[0].rule, Rule::ThrottledBelowLimit);
    // Each of these runs fills all of its periods.
    let of_limits = |scene: &mut Scene, periods| {
        let id = scene.id("/a");
        let limits = scene.interval.limits.iter_mut().find(|limits| limits.id == id).expect("its limits");
        limits.nr_periods = Some(periods);
    };
    of_limits(&mut scene, 92);
    assert_eq!(scene.all()[0].rule, Rule::ThrottledBelowLimit);
    of_limits(&mut scene, 130);
    // Threads that run at the same time need more.
    let (mut several, three) = (Vec::new(), scene.interval.tasks[0].clone());
    std::mem::swap(&mut several, &mut scene.interval.tasks);
    for serial in 1..=3 {
        let mut task = three.clone();
        (task.reading.serial, task.reading.tid) = (serial, serial as u32);
        (task.totals.on_cpu_ns, task.totals.voluntary) = (300 * MS, 10);
        scene.interval.tasks.push(task);
    }
    assert!(!scene.all()[0].advice.contains("0.31 CPUs"), "{:?}", scene.all());
    scene.interval.tasks = several;
    // Shorter runs may fit into a burst.
    scene.interval.tasks[0].totals.voluntary = 60;
    assert!(scene.only(Rule::ThrottledBelowLimit).advice.starts_with("allow a burst"));
}

#[test]
fn without_its_tasks_the_periods_are_the_figure() {
    let found = Scene::new(&["/a"]).limits("/a", periods(1.0, 5, 10)).only(Rule::Throttled);
    assert_eq!(found.headline(), "a is at its CPU limit of 1 CPU: in 50.0% of its periods");
}
