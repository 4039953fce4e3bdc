//! Tests that no class or advice depends on data that is unknown, too small, or from outside the target.

use cgscope_ledger::BlockedState;

use super::*;
use crate::{
    Accounts, BlockedOn, ByCause, ByState, Cause, ExitedInterval, Interval, Mode, StackReading, TaskInterval,
    Totals, Tree, Wait, json::IntervalObject,
};

const MS: u64 = S / 1_000;

fn exited(on_cpu_ns: u64, waits: ByCause, blocked: [u64; 5]) -> ExitedInterval {
    let accounts = Some(Accounts { blocked: Some(ByState(blocked)), ..Accounts::default() });
    let totals = Totals { on_cpu_ns, by_cause: waits, wait_ns: waits.total(), ..Totals::default() };
    let wait = Wait { total_ns: waits.total(), by_cause: waits, ..Wait::default() };
    ExitedInterval { cgroup_id: 2, tasks: 50, totals, accounts, wait }
}

/// Short-lived processes keep two CPUs busy, but sleep longer than they run.
#[test]
fn sleep_of_exited_tasks_does_not_hide_a_saturated_host() {
    let mut interval = interval(vec![], vec![]);
    interval.exited = vec![exited(2 * S, ByCause::only(Cause::OtherCgroup, S), [5 * S, 0, 0, 0, 0])];
    for says in [
        classes_of(&interval, |classes| classes.total()).says,
        classes_of(&interval, |classes| classes.cgroup(0)).says,
    ] {
        assert_eq!(
            says,
            "contended: queued for a CPU 33 % of the time that it ran or wanted to run (behind other cgroups 33 %), on a CPU 67 %: \
             raise its cpu.weight (in v1 cpu.shares), add CPUs, pin it to other CPUs, or move the neighbours away"
        );
    }
}

#[test]
fn blocked_time_of_active_exited_tasks_counts_if_a_state_shows_its_kind() {
    let mut interval = interval(vec![task(1, S / 5, ByCause::default(), Some([0; 5]))], vec![]);
    interval.exited = vec![exited(S / 5, ByCause::default(), [9 * S, 2 * S, 0, 0, 0])];
    let says = |interval: &Interval| classes_of(interval, |classes| classes.total()).says;
    assert_eq!(
        says(&interval),
        "I/O-bound: blocked on disk 83 % of the time that is known, on a CPU 17 %: more CPU will not help"
    );
    interval.exited = vec![exited(S / 200, ByCause::default(), [9 * S, 2 * S, 0, 0, 0])];
    assert_eq!(says(&interval), "CPU-bound: on a CPU 100 % of the time", "the exited tasks were idle");
}

#[test]
fn little_cpu_time_of_exited_tasks_is_not_cpu_bound() {
    let mut interval = interval(vec![], vec![]);
    interval.exited = vec![exited(S / 20, ByCause::default(), [S, 0, 0, 0, 0])];
    let verdict = classes_of(&interval, |classes| classes.total());
    assert_eq!(verdict.classes, []);
    assert_eq!(
        verdict.says,
        "on a CPU 100 % of the time that it ran or wanted to run (what it was blocked on is not known)"
    );
    interval.exited = vec![exited(S / 1_000, ByCause::default(), [S, 0, 0, 0, 0])];
    assert_eq!(
        classes_of(&interval, |classes| classes.total()).says,
        "idle: no thread ran or waited for a CPU for at least 1 % of the time"
    );
}

#[test]
fn without_accounts_blocked_time_is_not_mentioned() {
    let of = |ran_ns, waits| {
        let mut interval = interval(vec![task(1, ran_ns, waits, None)], vec![]);
        interval.mode = Mode::Coarse;
        classes_of(&interval, |classes| classes.total())
    };
    // The task may have started or exited in the interval, so the rest of the interval does not count as sleep.
    let half = of(S / 2, ByCause::only(Cause::Unattributed, S / 50));
    assert_eq!(half.classes, []);
    assert_eq!(
        half.says,
        "on a CPU 96 % of the time that it ran or wanted to run (what it was blocked on is not known)"
    );
    assert_eq!(
        of(S, ByCause::default()).says,
        "CPU-bound: on a CPU 100 % of the time that it ran or wanted to run"
    );
    assert_eq!(
        of(S / 4, ByCause::only(Cause::Unattributed, S / 4)).says,
        "contended: queued for a CPU 50 % of the time that it ran or wanted to run, on a CPU 50 %: more CPUs help"
    );
}

#[test]
fn time_that_an_idle_target_loses_is_named_from_a_tenth_of_the_time() {
    let idle =
        |queued| activity(0, &[(Cause::OtherCgroup, queued)], &[(BlockedKind::KernelWorker, 1_000 - queued)]);
    assert_eq!(
        says(&idle(60)),
        "idle: waiting for work 94 % of the time (kernel worker), queued for a CPU 6 % (behind other cgroups 6 %), on a CPU 0 %"
    );
    assert_eq!(names(&idle(99)), ["idle"]);
    assert_eq!(
        says(&idle(100)),
        "idle, and contended when it runs: waiting for work 90 % of the time (kernel worker), queued for a CPU 10 % (behind other \
         cgroups 10 %), on a CPU 0 %: raise its cpu.weight (in v1 cpu.shares), add CPUs, pin it to other CPUs, or move the neighbours away"
    );
}

#[test]
fn advice_is_given_only_with_its_figure() {
    // Throttling takes 3 % of all time, but a fifth of the time that the target ran or wanted to run.
    let quota = Quota { path: "/pool".into(), cores: Some(1.0), used_up: true };
    let little = activity(120, &[(Cause::Throttled, 30)], &[(BlockedKind::Lock, 850)]);
    let says = verdict(&little, Some(&quota)).says;
    assert!(says.starts_with("quota-bound: throttled 3 % of the time by /pool (1 CPU), blocked"), "{says}");
    let waking = activity(800, &[(Cause::Wakeup, 200)], &[]);
    assert_eq!(
        super::tests::says(&waking),
        "contended: waking up 20 % of the time, on a CPU 80 %",
        "more CPUs do not wake up sooner"
    );
}

#[test]
fn a_thread_that_waits_for_work_uninterruptibly_is_not_stuck() {
    let busy = task(1, S / 2, ByCause::default(), Some([S / 2, 0, 0, 0, 0]));
    let parent = task(2, 0, ByCause::default(), Some([0, 0, S, 0, 0]));
    let vfork = StackReading { state: BlockedState::Uninterruptible, ..stack(2, 3, S) };
    let interval = interval(vec![busy, parent], vec![stack(1, 0, S / 2), vfork]);
    assert_eq!(
        classes_of(&interval, process).says,
        "mixed, CPU-bound and I/O-bound: blocked on network 50 % of the time, on a CPU 50 %"
    );
}

#[test]
fn a_stuck_kernel_thread_does_not_decide_the_class_of_a_cgroup() {
    let busy = task(1, S, ByCause::default(), Some([0; 5]));
    let journal = task(2, 0, ByCause::default(), Some([0, 4 * S, 0, 0, 0]));
    let commit = StackReading { state: BlockedState::Iowait, stack: [0, 4].into(), ..stack(2, 0, 4 * S) };
    let interval = interval(vec![busy, journal], vec![commit]);
    let expected = "CPU-bound: on a CPU 100 % of the time";
    assert_eq!(classes_of(&interval, |classes| classes.total()).says, expected);
    assert_eq!(classes_of(&interval, |classes| classes.cgroup(1)).says, expected);
    let own = classes_of(&interval, |classes| classes.threads(&[&classes.interval.tasks[1]]));
    assert_eq!(own.classes, [Class::IoBound], "the thread itself has its class");
}

#[test]
fn fewer_threads_help_if_they_wait_for_each_other() {
    let of = |tasks: Vec<TaskInterval>| {
        let says = classes_of(&interval(tasks, vec![]), process).says;
        says.split_once("%): ").or(says.split_once("%: ")).map(|(_, advice)| advice.to_string()).ok_or(says)
    };
    let waiting = |serial, cause| task(serial, S / 2, ByCause::only(cause, S / 2), Some([0; 5]));
    let both = |cause| of(vec![waiting(1, cause), waiting(2, cause)]);
    assert_eq!(both(Cause::OwnCgroup).as_deref(), Ok("more CPUs or fewer threads help"));
    assert_eq!(of(vec![waiting(1, Cause::OwnCgroup)]).as_deref(), Ok("more CPUs help"), "a single thread");
    let neighbours = "raise its cpu.weight (in v1 cpu.shares), add CPUs, pin it to other CPUs, or move the neighbours away";
    assert_eq!(both(Cause::OtherCgroup).as_deref(), Ok(neighbours));
    let realtime = |serial| {
        let mut task = waiting(serial, Cause::OtherCgroup);
        task.reading.scheduling = Some(crate::Scheduling { policy: 1, is_bound: false });
        task
    };
    let advice = of(vec![realtime(1), waiting(2, Cause::OtherCgroup)]);
    assert!(
        advice.as_ref().is_ok_and(|advice| advice.starts_with("raise its priority (chrt)")),
        "{advice:?}"
    );
    let most_are_not = vec![realtime(1), waiting(2, Cause::OtherCgroup), waiting(3, Cause::OtherCgroup)];
    assert_eq!(of(most_are_not).as_deref(), Ok(neighbours));
    let kernel = "add CPUs, pin it to other CPUs, or move the neighbours whose work keeps the kernel busy";
    assert_eq!(both(Cause::Kernel).as_deref(), Ok(kernel));
}

#[test]
fn in_the_root_cgroup_other_tasks_may_be_the_cause() {
    let mut tasks = vec![
        task(1, S / 2, ByCause::only(Cause::OwnCgroup, S / 2), Some([0; 5])),
        task(2, S / 2, ByCause::only(Cause::OwnCgroup, S / 2), Some([0; 5])),
    ];
    tasks.iter_mut().for_each(|task| task.reading.cgroup_id = 1);
    let interval = interval(tasks, vec![]);
    assert_eq!(
        classes_of(&interval, process).says,
        "contended: queued for a CPU 50 % of the time (behind other tasks in / or its own threads 50 %), on a CPU 50 %: more CPUs help"
    );
}

/// The command `true` lives for a millisecond, in which it runs and reads its pages.
#[test]
fn a_very_short_run_is_too_short_to_judge() {
    let of = |duration_ns, ran_ns| {
        let mut interval =
            interval(vec![task(1, ran_ns, ByCause::default(), Some([0, MS, 0, 0, 0]))], vec![]);
        interval.duration_ns = duration_ns;
        classes_of(&interval, |classes| classes.total())
    };
    let short = of(2 * MS, MS);
    assert_eq!((&*short.classes, short.says.as_str()), (&[][..], "too short to judge"));
    assert_eq!(of(49 * MS, 47 * MS).says, "too short to judge");
    assert_eq!(of(49 * MS, 49 * MS).classes, [Class::CpuBound], "two threads' worth of time");
    assert_eq!(of(50 * MS, 48 * MS).classes, [Class::CpuBound]);
}

#[test]
fn the_interval_object_has_classes_on_request() {
    let tasks = vec![
        task(1, S / 5, ByCause::default(), Some([S * 4 / 5, 0, 0, 0, 0])),
        task(2, S, ByCause::default(), None),
    ];
    let mut interval = interval(tasks, vec![stack(1, 0, S * 4 / 5)]);
    interval.tasks[1].reading.cgroup_id = 9;
    let object = IntervalObject::new(&interval, &Default::default());
    let plain = serde_json::to_value(&object).unwrap();
    let has = |value: &serde_json::Value| value.get("class").is_some() || value.get("blocked_on").is_some();
    assert!(!has(&plain) && !has(&plain["tasks"][0]) && !has(&plain["cgroups"][0]), "{plain}");

    let (tree, blocked) = (Tree::new(&interval), BlockedOn::new(&interval, name));
    let object = IntervalObject { classes: Some(Classes::new(&interval, &tree, &blocked)), ..object };
    let object = serde_json::to_value(&object).unwrap();
    let network = serde_json::json!({"network": S * 4 / 5});
    assert_eq!(object["tasks"][0]["class"]["classes"], serde_json::json!(["I/O-bound"]));
    assert_eq!(object["tasks"][0]["blocked_on"], network);
    assert!(object["tasks"][1].as_object().unwrap()["blocked_on"].is_null(), "unknown");
    let cgroups: Vec<_> = object["cgroups"].as_array().unwrap().iter().collect();
    let of = |path: Option<&str>| cgroups.iter().find(|cgroup| cgroup["path"].as_str() == path).unwrap();
    assert_eq!(of(None)["class"]["classes"], serde_json::json!(["CPU-bound"]));
    assert_eq!(of(Some("/pool"))["blocked_on"], network);
    assert_eq!(of(Some("/pool"))["class"]["classes"], serde_json::json!(["I/O-bound"]));
    assert_eq!(object["blocked_on"], network);
    assert!(object["class"]["says"].as_str().unwrap().contains("blocked on network"), "{}", object["class"]);
}
