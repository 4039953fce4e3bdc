use super::*;

fn fine() -> Facts {
    let every =
        ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYSLOG"];
    Facts {
        kernel_release: Some("6.12.9-amd64".into()),
        architecture: Some("x86_64".into()),
        program: Some("/usr/bin/cgscope".into()),
        uid: Some(0),
        capabilities: Some(every.map(String::from).into()),
        initial_user_namespace: Some(true),
        initial_pid_namespace: Some(true),
        named_containers: None,
        container: None,
        btf: Some(Btf::Present(6_400_000)),
        features_off: Some(Vec::new()),
        sched_info: Some(true),
        lockdown: Some(Lockdown::None),
        cgroups: Some(CgroupFacts {
            layout: CgroupLayout::V2,
            cpu_mount: Some("/sys/fs/cgroup".into()),
            cpu_is_v2: true,
        }),
        cpus_online: Some(vec![0, 1, 2, 3]),
        cpus_possible: Some((0..8).collect()),
        numa_nodes: Some(vec![0, 1]),
        realtime: None,
        sched_ext: Some("disabled".into()),
        bpf_scheduler: None,
        proxy_exec: Some(false),
        autogroup: Some(false),
        hides_processes: Some(false),
        bpf_stats: Some(false),
        trial: Some(Ok(Trial { attach_ms: 120, read_us: 620, tasks: 250, refused: Vec::new() })),
    }
}

fn unprivileged() -> Facts {
    Facts { uid: Some(1000), capabilities: Some(BTreeSet::new()), trial: None, ..fine() }
}

fn without(capability: &str) -> Facts {
    let mut facts = Facts { uid: Some(1000), ..fine() };
    let held = facts.capabilities.as_mut().unwrap();
    held.remove("CAP_SYS_ADMIN");
    held.remove(capability);
    facts
}

/// Formats all verdicts except `ok`, like the output of `cgscope doctor`.
fn said(facts: &Facts) -> String {
    judge(facts).iter().filter(|verdict| verdict.level != Level::Ok).map(line).collect()
}

fn line(verdict: &Verdict) -> String {
    let Verdict { topic, level, finding, .. } = verdict;
    let effect = verdict.effect.iter().map(|effect| format!("    effect: {effect}\n"));
    let remedy = verdict.remedy.iter().map(|remedy| format!("    remedy: {remedy}\n"));
    std::iter::once(format!("{:<9} {topic}: {finding}\n", level.name())).chain(effect).chain(remedy).collect()
}

#[test]
fn a_host_without_problems() {
    let verdicts = judge(&fine());
    assert_eq!(worst(&verdicts), Level::Ok);
    insta::assert_snapshot!(verdicts.iter().map(line).collect::<String>());
}

#[test]
fn an_unknown_host_is_not_called_ok() {
    let verdicts = judge(&Facts::default());
    assert_eq!(worst(&verdicts), Level::Note);
    insta::assert_snapshot!(said(&Facts::default()));
}

#[test]
fn an_unprivileged_user() {
    assert_eq!(worst(&judge(&unprivileged())), Level::Missing);
    insta::assert_snapshot!(said(&unprivileged()));
}

#[test]
fn without_the_exact_mode_the_coarse_mode_works_if_the_kernel_keeps_sums() {
    let mode_of = |facts: &Facts| mode(facts, &judge(facts));
    assert_eq!(mode_of(&fine()), Some(Mode::Bpf));
    assert_eq!(mode_of(&unprivileged()), Some(Mode::Coarse));
    assert_eq!(mode_of(&Facts { sched_info: Some(false), ..unprivileged() }), None);
    assert_eq!(
        mode_of(&Facts { sched_info: Some(false), ..fine() }),
        None,
        "the hook reads the same timestamps"
    );
    let hidden = Facts { hides_processes: Some(true), ..unprivileged() };
    let about = |facts: &Facts| {
        let verdicts = judge(facts).into_iter();
        verdicts
            .filter(|verdict| ["mode", "processes"].contains(&verdict.topic))
            .map(|v| line(&v))
            .collect::<String>()
    };
    let neither = Facts { sched_info: Some(false), ..unprivileged() };
    insta::assert_snapshot!([fine(), hidden, neither].map(|facts| about(&facts)).join("--\n"));
}

#[test]
fn each_single_capability_is_named() {
    let of = |capability| said(&without(capability));
    insta::assert_snapshot!(
        ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"].map(of).join("--\n")
    );
}

#[test]
fn two_capabilities_are_enough() {
    let two = ["CAP_BPF", "CAP_PERFMON"].map(String::from).into();
    let facts = Facts { uid: Some(1000), capabilities: Some(two), ..fine() };
    assert_eq!(worst(&judge(&facts)), Level::Degraded);
}

#[test]
fn root_in_a_container_gets_a_remedy_for_the_container() {
    let facts = Facts {
        uid: Some(0),
        initial_pid_namespace: Some(false),
        container: Some("/.dockerenv".into()),
        trial: None,
        ..unprivileged()
    };
    insta::assert_snapshot!(said(&facts));
}

#[test]
fn a_rootless_container() {
    let facts = Facts { initial_user_namespace: Some(false), trial: None, ..fine() };
    insta::assert_snapshot!(said(&facts));
}

#[test]
fn a_kernel_without_btf() {
    let unreadable = Facts { btf: Some(Btf::Unreadable("Permission denied".into())), ..fine() };
    insta::assert_snapshot!(said(&Facts { btf: Some(Btf::Absent), ..fine() }) + &said(&unreadable));
}

#[test]
fn kernels_by_age() {
    let of = |release: &str| said(&Facts { kernel_release: Some(release.into()), ..fine() });
    insta::assert_snapshot!(["5.10.0-32-amd64", "5.15.0-119-generic", "6.1.0", "next"].map(of).join("--\n"));
}

fn off(feature: Feature, missing: &[&str]) -> FeatureOff {
    FeatureOff { feature, missing: missing.iter().map(|name| name.to_string()).collect() }
}

#[test]
fn a_kernel_without_required_features() {
    let features = vec![
        off(Feature::RunQueues, &["task_struct.se.cfs_rq"]),
        off(Feature::SchedInfo, &["task_struct.sched_info.run_delay", "task_struct.sched_info.last_queued"]),
        off(Feature::NumaPreference, &["task_struct.numa_preferred_nid"]),
    ];
    let facts = Facts { features_off: Some(features), sched_info: Some(false), trial: None, ..fine() };
    insta::assert_snapshot!(said(&facts));
}

/// Debian's kernels 5.10, 6.1 and 6.12 each lack some features.
#[test]
fn features_that_older_kernels_lack_are_named() {
    let interrupts = || off(Feature::InterruptTime, &["rq.prev_irq_time"]);
    let tasks = || off(Feature::TaskThrottling, &["task_struct.throttled"]);
    let clock = || off(Feature::ThrottleClock, &["cfs_rq.throttled_clock_self"]);
    let v5_10 = vec![
        off(Feature::TaskStorage, &["BPF_FUNC_task_storage_get"]),
        off(Feature::LoopHelper, &["BPF_FUNC_loop"]),
        off(Feature::PrevStateArgument, &["argument 5 of the tracepoint sched_switch"]),
        clock(),
        tasks(),
        off(Feature::IdleClock, &["rq.clock_idle"]),
        interrupts(),
    ];
    let v6_1 = vec![clock(), tasks(), interrupts()];
    let v6_12 = vec![tasks(), interrupts()];
    let of = |features| said(&Facts { features_off: Some(features), ..fine() });
    insta::assert_snapshot!([v5_10, v6_1, v6_12].map(of).join("--\n"));
}

/// cgscope needs the kernel's clock of throttled time, or kernel functions at which cgscope can maintain such a clock.
#[test]
fn throttled_time_is_unknown_only_without_any_clock() {
    let level = |features: Vec<FeatureOff>| worst(&judge(&Facts { features_off: Some(features), ..fine() }));
    let clock = || off(Feature::ThrottleClock, &["cfs_rq.throttled_clock_self"]);
    let functions = || off(Feature::ThrottleFunctions, &["tg_throttle_down"]);
    assert_eq!(level(vec![clock()]), Level::Note);
    assert_eq!(level(vec![functions()]), Level::Ok);
    assert_eq!(level(vec![clock(), functions()]), Level::Degraded);
    let quotas = off(Feature::Quotas, &["cfs_rq.runtime_enabled"]);
    assert_eq!(level(vec![quotas, clock(), functions()]), Level::Note, "nothing is ever throttled");
}

#[test]
fn settings_that_change_who_is_charged_are_reported() {
    let facts = Facts {
        realtime: Some(true),
        sched_ext: Some("enabled".into()),
        bpf_scheduler: Some("simple".into()),
        proxy_exec: Some(true),
        autogroup: Some(true),
        bpf_stats: Some(true),
        ..fine()
    };
    insta::assert_snapshot!(said(&facts));
}

#[test]
fn cgroups_in_every_shape() {
    let shape = |layout, cpu_mount: Option<&str>| {
        let cgroups = CgroupFacts { layout, cpu_mount: cpu_mount.map(Into::into), cpu_is_v2: false };
        let verdicts = judge(&Facts { cgroups: Some(cgroups), autogroup: Some(true), ..fine() });
        verdicts.iter().filter(|v| ["cgroups", "autogroup"].contains(&v.topic)).map(line).collect::<String>()
    };
    let shapes = [
        shape(CgroupLayout::Hybrid, Some("/sys/fs/cgroup/cpu")),
        shape(CgroupLayout::V1, None),
        shape(CgroupLayout::None, None),
    ];
    insta::assert_snapshot!(shapes.join("--\n"));
}

#[test]
fn lockdown_is_the_cause_only_if_the_trial_failed() {
    let locked = |trial| Facts { lockdown: Some(Lockdown::Confidentiality), trial, ..fine() };
    let level = |facts: &Facts| worst(&judge(facts));
    assert_eq!(level(&locked(Some(Ok(Trial::default())))), Level::Note);
    assert_eq!(level(&locked(None)), Level::Degraded);
    assert_eq!(level(&locked(Some(Err("EPERM".into())))), Level::Missing);
}

#[test]
fn a_failed_start_is_explained_by_its_main_cause() {
    let error = "loading on_switch: Operation not permitted (os error 1)";
    let old = Facts { kernel_release: Some("5.10.0".into()), btf: Some(Btf::Absent), ..unprivileged() };
    let locked = Facts { lockdown: Some(Lockdown::Confidentiality), ..fine() };
    let explained = [
        explain_failure(&unprivileged(), error),
        explain_failure(&old, error),
        explain_failure(&Facts { btf: Some(Btf::Absent), ..fine() }, "no such file"),
        explain_failure(&locked, error),
        explain_failure(&fine(), error),
        explain_failure(&fine(), "Cannot allocate memory (os error 12)"),
    ];
    insta::assert_snapshot!(explained.join("\n--\n"));
}

#[test]
fn every_problem_has_an_effect_and_a_remedy() {
    for facts in
        [unprivileged(), without("CAP_SYS_PTRACE"), Facts { btf: Some(Btf::Absent), ..Facts::default() }]
    {
        for verdict in judge(&facts).iter().filter(|verdict| verdict.level >= Level::Degraded) {
            assert!(verdict.effect.is_some() && verdict.remedy.is_some(), "{verdict:?}");
        }
    }
}

#[test]
fn a_verdict_is_one_json_object() {
    let verdict = &judge(&unprivileged())[3];
    assert_eq!(
        serde_json::to_string(verdict).unwrap(),
        r#"{"topic":"capabilities","level":"missing","finding":"CAP_BPF and CAP_PERFMON are not held (user id 1000)","effect":"the kernel refuses to load and attach the hook, so the exact mode is off","remedy":"run cgscope with sudo, or run once: sudo setcap cap_bpf,cap_perfmon+ep /usr/bin/cgscope"}"#
    );
}

#[test]
fn releases_are_parsed() {
    assert_eq!(parse_release("6.12.9-amd64"), Some((6, 12)));
    assert_eq!(parse_release("7.2-rc1"), Some((7, 2)));
    assert_eq!(parse_release("6.18.44-fc-v657\n"), Some((6, 18)));
    assert_eq!(parse_release("6"), None);
    assert_eq!(parse_release("next.gen"), None);
}
