//! Tests that each rule applies at its threshold and not below it, and that the field cases get the correct class.

mod doubt;

use std::sync::Arc;

use cgscope_ledger::BlockedState;

use super::*;
use crate::{
    Accounts, BlockedOn, BlockedTime, ByCause, ByState, Cause, CgroupReading, ExitedInterval, Interval,
    Pending, StackReading, TaskInterval, TaskReading, Totals, Tree, Wait,
};

pub(super) const S: u64 = 1_000_000_000;

/// The activity of four threads. Times are in parts of 1000.
pub(super) fn activity(on_cpu: u64, waits: &[(Cause, u64)], kinds: &[(BlockedKind, u64)]) -> Activity {
    let mut by_cause = ByCause::default();
    waits.iter().for_each(|(cause, ns)| by_cause.add(&ByCause::only(*cause, *ns)));
    let mut blocked = BlockedTime::default();
    kinds.iter().for_each(|(kind, ns)| blocked.add_ns(*kind, *ns));
    Activity { duration_ns: S, threads: 4, on_cpu_ns: on_cpu, by_cause, blocked, ..Activity::default() }
}

pub(super) fn says(activity: &Activity) -> String {
    verdict(activity, None).says
}

pub(super) fn names(activity: &Activity) -> Vec<&'static str> {
    verdict(activity, None).classes.into_iter().map(Class::name).collect()
}

#[test]
fn a_target_that_computes_is_cpu_bound() {
    assert_eq!(says(&activity(980, &[(Cause::Kernel, 20)], &[])), "CPU-bound: on a CPU 98 % of the time");
    let busy = activity(700, &[], &[(BlockedKind::Disk, 100), (BlockedKind::Timer, 200)]);
    assert_eq!(
        says(&busy),
        "CPU-bound: on a CPU 70 % of the time, waiting for work 20 % (timer), blocked on disk 10 %"
    );
}

#[test]
fn a_quota_is_named_from_a_tenth_of_the_wanted_time() {
    assert_eq!(names(&activity(901, &[(Cause::Throttled, 99)], &[])), ["CPU-bound"]);
    assert_eq!(names(&activity(900, &[(Cause::Throttled, 100)], &[])), ["quota-bound"]);
    let throttled = activity(500, &[(Cause::Throttled, 500)], &[]);
    let quota = |cores| Quota { path: "/render".into(), cores, used_up: false };
    let says = |cores| verdict(&throttled, Some(&quota(cores))).says;
    let first = "quota-bound: throttled 50 % of the time by /render";
    assert_eq!(
        says(Some(0.5)),
        format!(
            "{first} (0.5 CPUs), on a CPU 50 %: raise the limit (cpu.max, in v1 cpu.cfs_quota_us) or use fewer threads"
        )
    );
    assert_eq!(
        says(Some(3.5)),
        format!("{first} (3.5 CPUs), on a CPU 50 %: raise the limit (cpu.max, in v1 cpu.cfs_quota_us)"),
        "four threads fit"
    );
    let of_unit = Quota { path: "/system.slice/render.service".into(), ..quota(Some(1.0)) };
    let says_of_unit = verdict(&throttled, Some(&of_unit)).says;
    assert!(
        says_of_unit.contains("raise the limit: systemctl set-property render.service CPUQuota=200%"),
        "{says_of_unit}"
    );
    assert_eq!(
        says(None),
        format!(
            "{first}, on a CPU 50 %: raise the limit (cpu.max, in v1 cpu.cfs_quota_us) or use fewer threads"
        )
    );
}

#[test]
fn contention_is_named_from_a_fifth_of_the_wanted_time() {
    assert_eq!(names(&activity(801, &[(Cause::OtherCgroup, 199)], &[])), ["CPU-bound"]);
    let contended =
        activity(500, &[(Cause::OtherCgroup, 400), (Cause::OwnCgroup, 80), (Cause::Wakeup, 20)], &[]);
    assert_eq!(
        says(&contended),
        "contended: queued for a CPU 48 % of the time (behind its own cgroup 8 % and other cgroups 40 %), on a CPU 50 %: \
         raise its cpu.weight (in v1 cpu.shares), add CPUs, pin it to other CPUs, or move the neighbours away"
    );
    assert_eq!(names(&activity(800, &[(Cause::Wakeup, 200)], &[])), ["contended"]);
    let both = activity(400, &[(Cause::OwnCgroup, 200), (Cause::Throttled, 400)], &[]);
    assert_eq!(names(&both), ["quota-bound", "contended"]);
    let coarse = activity(500, &[(Cause::Unattributed, 500)], &[]);
    assert_eq!(says(&coarse), "contended: queued for a CPU 50 % of the time, on a CPU 50 %: more CPUs help");
}

#[test]
fn a_class_with_three_fifths_of_the_needed_time_is_named_alone() {
    assert_eq!(names(&activity(400, &[], &[(BlockedKind::Network, 600)])), ["I/O-bound"]);
    assert_eq!(names(&activity(401, &[], &[(BlockedKind::Network, 599)])), ["I/O-bound", "CPU-bound"]);
    // Time in which a task waits for work does not count as needed time.
    assert_eq!(
        names(&activity(200, &[], &[(BlockedKind::Network, 300), (BlockedKind::Accept, 499)])),
        ["I/O-bound"]
    );
    let mixed = activity(
        450,
        &[],
        &[(BlockedKind::Disk, 300), (BlockedKind::Network, 100), (BlockedKind::Lock, 150)],
    );
    assert_eq!(
        says(&mixed),
        "mixed, CPU-bound and I/O-bound: blocked on disk 30 % of the time, blocked on network 10 %, on a CPU 45 %, blocked on a futex 15 % (a lock, or a pool that waits for work)"
    );
    assert_eq!(
        names(&activity(400, &[], &[(BlockedKind::Disk, 400), (BlockedKind::FileLock, 200)])),
        ["CPU-bound", "I/O-bound", "lock-bound"]
    );
}

#[test]
fn a_blocked_target_reports_whether_more_cpu_helps() {
    assert_eq!(
        says(&activity(100, &[(Cause::OwnCgroup, 90)], &[(BlockedKind::Lock, 810)])),
        "lock-bound: blocked on a futex 81 % of the time (a lock, or a pool that waits for work), on a CPU 10 %, queued for a CPU 9 % (behind its own cgroup 9 %): it does not lack CPU, but those for whom it waits may"
    );
    assert_eq!(
        says(&activity(100, &[(Cause::Throttled, 100)], &[(BlockedKind::Disk, 800)])),
        "I/O-bound: blocked on disk 80 % of the time, on a CPU 10 %, throttled 10 %: more CPU saves at most 10 %"
    );
    assert_eq!(
        says(&activity(200, &[], &[(BlockedKind::Unknown, 800)])),
        "blocked: blocked 80 % of the time (the reason is not known), on a CPU 20 %: it does not lack CPU, but those for whom it waits may"
    );
    assert_eq!(
        names(&activity(200, &[], &[(BlockedKind::Memory, 700), (BlockedKind::Other, 100)])),
        ["blocked"]
    );
}

#[test]
fn a_target_that_mostly_waits_for_work_is_idle() {
    assert_eq!(names(&activity(501, &[], &[(BlockedKind::Poll, 499)])), ["CPU-bound"]);
    let idle = activity(3, &[], &[(BlockedKind::Poll, 900), (BlockedKind::Timer, 97)]);
    assert_eq!(
        says(&idle),
        "idle: waiting in poll 90 % of the time (for work or for answers), waiting for work 10 % (timer), on a CPU <1 %"
    );
    let throttled = activity(100, &[(Cause::Throttled, 300)], &[(BlockedKind::Accept, 600)]);
    assert_eq!(names(&throttled), ["idle", "quota-bound"], "what it loses counts all the same");
    let none = Activity { duration_ns: S, ..Activity::default() };
    assert_eq!((names(&none), says(&none).as_str()), (vec!["idle"], "idle: on a CPU 0 % of the time"));
}

pub(super) fn task(serial: u64, ran_ns: u64, waits: ByCause, states: Option<[u64; 5]>) -> TaskInterval {
    let totals = Totals { on_cpu_ns: ran_ns, by_cause: waits, wait_ns: waits.total(), ..Totals::default() };
    let accounts = states.map(|by| Arc::new(Accounts { blocked: Some(ByState(by)), ..Accounts::default() }));
    let reading = TaskReading {
        serial,
        tid: serial as u32,
        tgid: 7,
        comm: "worker".into(),
        cgroup_id: 2,
        totals,
        accounts: accounts.clone(),
        ..TaskReading::default()
    };
    let wait = Wait { total_ns: waits.total(), by_cause: waits, ..Wait::default() };
    TaskInterval { reading, totals, accounts, wait, ..TaskInterval::default() }
}

pub(super) fn stack(serial: u64, addr: u64, ns: u64) -> StackReading {
    let (tid, stack, state) = (serial as u32, [addr].into(), BlockedState::Sleeping);
    StackReading { serial, state, stack, tid, tgid: 7, comm: "worker".into(), ns, count: 1 }
}

pub(super) fn name(addr: u64) -> Option<&'static str> {
    Some(["tcp_recvmsg", "inet_csk_accept", "futex_wait", "wait_for_vfork_done", "kthread"][addr as usize])
}

pub(super) fn interval(tasks: Vec<TaskInterval>, stacks: Vec<StackReading>) -> Interval {
    let cgroups = vec![(1, "/".into()), (2, "/pool".into())];
    Interval { duration_ns: S, tasks, stacks, cgroups, ..Interval::default() }
}

fn with_quota(mut interval: Interval, quota_us: u64) -> Interval {
    let (quota_us, period_us) = (Some(quota_us), Some(100_000));
    interval.limits = vec![CgroupReading { id: 2, quota_us, period_us, ..CgroupReading::default() }];
    interval
}

pub(super) fn classes_of<T>(interval: &Interval, read: impl FnOnce(Classes<'_>) -> T) -> T {
    let (tree, blocked) = (Tree::new(interval), BlockedOn::new(interval, name));
    read(Classes::new(interval, &tree, &blocked))
}

/// Returns the class of the only process, which contains all threads in these tests.
pub(super) fn process(classes: Classes<'_>) -> Classified {
    classes.threads(&classes.interval.tasks.iter().collect::<Vec<_>>())
}

/// Each of 8 workers computes for 20 % of the time and waits for a remote call for 65 %. Another 30 threads only wait for work.
#[test]
fn field_case_4_more_cpu_does_not_help_workers_that_wait() {
    let (mut tasks, mut stacks) = (Vec::new(), Vec::new());
    for serial in 0..8 {
        let queued = ByCause::only(Cause::OwnCgroup, S / 50);
        tasks.push(task(serial, S / 5, queued, Some([S * 78 / 100, 0, 0, 0, 0])));
        stacks.extend([stack(serial, 0, S * 65 / 100), stack(serial, 1, S * 13 / 100)]);
    }
    for serial in 8..38 {
        tasks.push(task(serial, 0, ByCause::default(), Some([S, 0, 0, 0, 0])));
        stacks.push(stack(serial, 1, S));
    }
    let interval = interval(tasks, stacks);
    let expected = "I/O-bound: blocked on network 65 % of the time, on a CPU 20 %, waiting for work 13 % (accept): it does not lack CPU, but those for whom it waits may";
    let of = |read: fn(Classes<'_>) -> Classified| classes_of(&interval, read).says;
    assert_eq!(of(process), expected);
    assert_eq!(of(|classes| classes.total()), expected);
    assert_eq!(of(|classes| classes.cgroup(1)), expected);
    assert_eq!(of(|classes| classes.threads(&[&classes.interval.tasks[0]])), expected);
    assert_eq!(
        of(|classes| classes.threads(&[&classes.interval.tasks[20]])),
        "idle: waiting for work 100 % of the time (accept), on a CPU 0 %"
    );
}

/// Nobody computes for a disk, however long the thread also waits for connections.
#[test]
fn a_thread_that_waits_for_a_disk_waits_for_nobody_who_lacks_cpu() {
    let states = Some([S * 45 / 100, S * 2 / 5, 0, 0, 0]);
    let interval =
        interval(vec![task(1, S * 15 / 100, ByCause::default(), states)], vec![stack(1, 1, S * 45 / 100)]);
    let says = classes_of(&interval, |classes| classes.total()).says;
    assert!(says.starts_with("I/O-bound: blocked on disk 40 %"), "{says}");
    assert!(says.ends_with("(accept), on a CPU 15 %: more CPU will not help"), "{says}");
}

#[test]
fn without_stacks_the_states_decide() {
    let mut interval =
        interval(vec![task(1, S / 5, ByCause::default(), Some([0, S * 4 / 5, 0, 0, 0]))], vec![]);
    let of = |interval: &Interval| classes_of(interval, |classes| classes.total()).says;
    assert_eq!(
        of(&interval),
        "I/O-bound: blocked on disk 80 % of the time, on a CPU 20 %: more CPU will not help"
    );
    let unknown = "blocked: blocked 80 % of the time (the reason is not known), on a CPU 20 %: it does not lack CPU, but those for whom it waits may";
    interval.tasks[0] = task(1, S / 5, ByCause::default(), Some([S * 4 / 5, 0, 0, 0, 0]));
    assert_eq!(of(&interval), unknown);
}

#[test]
fn a_thread_that_is_blocked_on_a_device_is_active_although_it_does_not_run() {
    let stuck = task(1, 0, ByCause::default(), Some([0, S, 0, 0, 0]));
    let asleep = |serial| task(serial, 0, ByCause::default(), Some([S, 0, 0, 0, 0]));
    let interval = interval(vec![stuck, asleep(2), asleep(3)], vec![stack(2, 1, S), stack(3, 1, S)]);
    let says = classes_of(&interval, process).says;
    assert_eq!(says, "I/O-bound: blocked on disk 100 % of the time, on a CPU 0 %: more CPU will not help");
}

/// A busy loop under a quota of half a CPU.
#[test]
fn field_case_1_a_loop_under_a_quota_is_quota_bound() {
    let tasks = vec![task(1, S / 2, ByCause::only(Cause::Throttled, S / 2), Some([0; 5]))];
    let interval = with_quota(interval(tasks, vec![]), 50_000);
    let expected = "quota-bound: throttled 50 % of the time by /pool (0.5 CPUs), on a CPU 50 %: raise the limit (cpu.max, in v1 cpu.cfs_quota_us)";
    for says in [
        classes_of(&interval, |classes| classes.total()),
        classes_of(&interval, process),
        classes_of(&interval, |classes| classes.cgroup(1)),
    ]
    .map(|verdict| verdict.says)
    {
        assert_eq!(says, expected);
    }
}

/// 20 threads under a quota of 1 CPU. Per second, all threads together run for 0.866 s and are throttled for 1.897 s.
#[test]
fn field_case_2_threads_above_a_quota_are_too_many() {
    let throttled = ByCause::only(Cause::Throttled, S * 1_897 / 20_000);
    let thread = |serial| task(serial, S * 866 / 20_000, throttled, Some([S / 2, 0, 0, 0, 0]));
    // Each thread sleeps on a futex most of the time, until its next frame.
    let mut tasks: Vec<_> = (1..=20).map(thread).collect();
    let stacks = (1..=20).map(|serial| stack(serial, 2, S / 2)).collect();
    let interval = with_quota(interval(tasks.clone(), stacks), 100_000);
    assert_eq!(
        classes_of(&interval, process).says,
        "quota-bound: throttled 15 % of the time by /pool (1 CPU), blocked on a futex 78 % (a lock, or a pool that waits for work), on a CPU 7 %: raise the limit (cpu.max, in v1 cpu.cfs_quota_us) or use fewer threads"
    );
    // If the threads run for half as long but are throttled as before, the target is not quota-bound.
    tasks.iter_mut().for_each(|task| task.totals.on_cpu_ns /= 2);
    let interval = with_quota(self::interval(tasks, interval.stacks), 100_000);
    assert_eq!(classes_of(&interval, process).classes, [Class::LockBound]);
}

#[test]
fn threads_that_do_little_do_not_hide_the_busy_one() {
    let little = |serial| task(serial, S / 50, ByCause::default(), Some([S * 49 / 50, 0, 0, 0, 0]));
    let mut tasks: Vec<_> = (2..20).map(little).collect();
    tasks.insert(0, task(1, S, ByCause::default(), Some([0; 5])));
    let stacks: Vec<_> = (2..20).map(|serial| stack(serial, 2, S * 49 / 50)).collect();
    let interval = interval(tasks, stacks);
    assert_eq!(classes_of(&interval, process).says, "CPU-bound: on a CPU 100 % of the time");
}

#[test]
fn exited_tasks_count_as_far_as_they_are_known() {
    let mut interval = interval(
        vec![task(1, 0, ByCause::default(), Some([S, 0, 0, 0, 0]))],
        vec![stack(1, 1, S), stack(9, 0, 3 * S)],
    );
    let accounts = Accounts { blocked: Some(ByState([4 * S, 0, 0, 0, 0])), ..Accounts::default() };
    let totals = Totals { on_cpu_ns: 6 * S, ..Totals::default() };
    let (wait, accounts) = (Wait::default(), Some(accounts));
    interval.exited = vec![ExitedInterval { cgroup_id: 2, tasks: 3, totals, accounts, wait }];
    assert_eq!(
        classes_of(&interval, |classes| classes.total()).says,
        "CPU-bound: on a CPU 67 % of the time that is known, blocked on network 33 %"
    );
    assert_eq!(
        classes_of(&interval, |classes| classes.cgroup(1)).says,
        "CPU-bound: on a CPU 100 % of the time that it ran or wanted to run"
    );
}

#[test]
fn a_wait_that_began_before_the_interval_counts_within_it() {
    let mut waiting = task(1, 0, ByCause::default(), Some([0; 5]));
    let by_cause = ByCause::only(Cause::OtherCgroup, 50 * S);
    waiting.reading.pending = Some(Pending { ns: 50 * S, booked_ns: 0, by_cause }.into());
    let interval = interval(vec![waiting], vec![]);
    let activity = classes_of(&interval, |classes| Activity::of(&[&interval.tasks[0]], &classes, false));
    assert_eq!((activity.queued_ns(), activity.threads), (S, 1));
}
