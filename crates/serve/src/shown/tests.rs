use cgscope_layout::Loss;
use cgscope_model::{Blame, CpuReading, CpuWaits, ExitedReading, Losses, REST, REST_NAME};

use super::*;

const ALICE: u32 = 1_000;
const BOB: u32 = 1_001;

fn task(serial: u64, cgroup_id: u64) -> Arc<TaskReading> {
    let tid = serial as u32;
    Arc::new(TaskReading { serial, tid, tgid: tid, cgroup_id, ..TaskReading::default() })
}

fn access(serial: u64, owner: Option<u32>) -> Access {
    Access { serial, owner, followers: 0 }
}

fn pair(victim: u64, culprit: u64, ns: u64) -> PairReading {
    PairReading { victim, culprit, blame: Blame::Ran, tid: 0, comm: "".into(), ns }
}

fn exited(cgroup_id: u64) -> ExitedReading {
    ExitedReading {
        cgroup_id,
        tasks: 1,
        max_ns: 0,
        totals: cgscope_model::Totals::default(),
        accounts: None,
        hist: Arc::default(),
    }
}

/// Alice owns cgroup 2 and shares 3 with Bob, who owns 4. Root owns 5. Task 14 runs a program as another user.
fn reading() -> Reading {
    let paths = [(1, "/"), (2, "/a/own"), (3, "/shared"), (4, "/bob"), (5, "/system"), (6, "/a")];
    let sample = Sample {
        unix_ns: 7,
        mono_ns: 8,
        tasks: vec![task(10, 2), task(11, 3), task(12, 3), task(13, 4), task(14, 2), task(15, 5)],
        exited: vec![exited(2), exited(3), exited(4)],
        pairs: vec![pair(2, 4, 100), pair(2, 5, 50), pair(2, KERNEL, 7), pair(3, 4, 9), pair(4, 2, 3)],
        cgroups: paths.iter().map(|(id, path)| (*id, Arc::from(*path))).collect(),
        containers: paths
            .map(|(cgroup_id, path)| ContainerReading {
                cgroup_id,
                container: Some(path.into()),
                ..Default::default()
            })
            .into(),
        cpus: vec![CpuReading { waits: Some(CpuWaits::default()), ..CpuReading::default() }],
        losses: Losses::from_iter([(Loss::ALL[0].name(), 3)]),
        ..Sample::default()
    };
    let access = vec![
        access(10, Some(ALICE)),
        access(11, Some(ALICE)),
        access(12, Some(BOB)),
        access(13, Some(BOB)),
        access(14, None),
        access(15, Some(0)),
    ];
    Reading { sample, access }
}

fn shower(user: u32) -> Shower {
    Shower::new(View { user: Some(user), follower: None })
}

fn shown(shower: &mut Shower, reading: &Reading) -> Sample {
    shower.show(reading, &mut |path, user| path == "/a/own" && user == ALICE).expect("a part of it")
}

fn tids(sample: &Sample) -> Vec<u32> {
    sample.tasks.iter().map(|task| task.tid).collect()
}

fn paths(sample: &Sample) -> Vec<&str> {
    sample.cgroups.iter().map(|(_, path)| &**path).collect()
}

fn containers(sample: &Sample) -> Vec<&str> {
    sample.containers.iter().filter_map(|named| named.container.as_deref()).collect()
}

fn pairs(sample: &Sample) -> Vec<(u64, u64, u64)> {
    sample.pairs.iter().map(|pair| (pair.victim, pair.culprit, pair.ns)).collect()
}

#[test]
fn an_admin_sees_the_whole_sample() {
    assert_eq!(Shower::new(View::ALL).show(&reading(), &mut |_, _| true), None);
}

#[test]
fn a_user_sees_their_own_tasks_and_the_cgroups_around_them() {
    let sample = shown(&mut shower(ALICE), &reading());
    assert_eq!(tids(&sample), [10, 11]);
    assert_eq!(paths(&sample), ["/", "/a/own", "/shared", "/a"]);
    assert_eq!(containers(&sample), paths(&sample), "names of the same cgroups only");
    let exited: Vec<u64> = sample.exited.iter().map(|exited| exited.cgroup_id).collect();
    assert_eq!(exited, [2], "the cgroup belongs to the user");
    assert!(sample.cpus[0].waits.is_none(), "waits by CPU include those of other users");
    assert_eq!((sample.unix_ns, sample.mono_ns), (7, 8));
    assert_eq!(sample.losses, reading().sample.losses);

    let sample = shown(&mut shower(BOB), &reading());
    assert_eq!(tids(&sample), [12, 13]);
    assert_eq!(paths(&sample), ["/", "/shared", "/bob", OTHERS_NAME]);
    assert_eq!(containers(&sample), ["/", "/shared", "/bob"]);
    assert!(sample.exited.is_empty());
    assert_eq!(tids(&shown(&mut shower(4_711), &reading())), [0; 0]);
}

#[test]
fn culprits_of_other_users_have_no_name_and_count_from_when_the_victim_is_shown() {
    let mut reading = reading();
    // Now all tasks in cgroup 2 are Alice's.
    reading.sample.tasks.retain(|task| task.tid != 14);
    let mut alice = shower(ALICE);
    let first = shown(&mut alice, &reading);
    assert_eq!(pairs(&first), [(2, OTHERS, 0), (2, KERNEL, 0)], "earlier waits are not counted");
    assert_eq!(first.cgroups.last().map(|(_, path)| &**path), Some(OTHERS_NAME));
    for pair in &mut reading.sample.pairs {
        pair.ns += 10;
    }
    reading.sample.pairs.insert(0, pair(2, 3, 5));
    let second = shown(&mut alice, &reading);
    assert_eq!(pairs(&second), [(2, 3, 5), (2, OTHERS, 20), (2, KERNEL, 10)]);
}

/// Returns the growth between two samples, as viewers compute it.
fn came(before: &Sample, now: &Sample) -> Vec<(u64, u64, u64)> {
    let of = |sample: &Sample| -> BTreeMap<_, _> {
        sample.pairs.iter().map(|pair| ((pair.victim, pair.culprit), pair.ns)).collect()
    };
    let before = of(before);
    let grown = of(now).into_iter().map(|((victim, culprit), ns)| {
        let before = before.get(&(victim, culprit)).copied().unwrap_or_default();
        (victim, culprit, if ns < before { ns } else { ns - before })
    });
    grown.filter(|(.., ns)| *ns != 0).collect()
}

#[test]
fn removed_or_renamed_cgroups_of_others_add_nothing_reported_before() {
    let mut reading = reading();
    reading.sample.tasks.retain(|task| task.tid != 14);
    let mut alice = shower(ALICE);
    let first = shown(&mut alice, &reading);
    reading.sample.pairs = vec![pair(2, 4, 600), pair(2, 5, 51)];
    let second = shown(&mut alice, &reading);
    assert_eq!(came(&first, &second), [(2, OTHERS, 501)]);

    // The culprit's cgroup is removed, and with it the data about it.
    reading.sample.pairs = vec![pair(2, 4, 600)];
    let third = shown(&mut alice, &reading);
    assert_eq!(came(&second, &third), []);

    // Alice starts a task in cgroup 4: from now on she sees its name.
    reading.sample.tasks.push(task(16, 4));
    reading.access.push(access(16, Some(ALICE)));
    reading.sample.pairs = vec![pair(2, 4, 607)];
    let fourth = shown(&mut alice, &reading);
    assert_eq!(came(&third, &fourth), [(2, 4, 7)]);

    // The task ends, and cgroup 4 becomes one of other users again.
    reading.sample.tasks.pop();
    reading.sample.pairs = vec![pair(2, 4, 610)];
    let fifth = shown(&mut alice, &reading);
    assert_eq!(came(&fourth, &fifth), [(2, OTHERS, 3)]);

    // A counter that restarts.
    reading.sample.pairs = vec![pair(2, 4, 2)];
    assert_eq!(came(&fifth, &shown(&mut alice, &reading)), [(2, OTHERS, 2)]);
}

#[test]
fn a_culprit_that_moves_into_the_rest_adds_nothing_reported_before() {
    let mut reading = reading();
    reading.sample.tasks.retain(|task| task.tid != 14);
    reading.sample.cgroups.push((REST, REST_NAME.into()));
    reading.access.iter_mut().for_each(|access| access.followers = u64::MAX);
    let mut admin = Shower::new(View { user: None, follower: Follower::all().next() });
    let mut show = |pairs: Vec<PairReading>| {
        reading.sample.pairs = pairs;
        shown(&mut admin, &reading)
    };
    let before = show(vec![pair(2, 4, 100), pair(2, 5, 50), pair(2, REST, 7)]);
    let more = show(vec![pair(2, 4, 110), pair(2, 5, 50), pair(2, REST, 7)]);
    let merged = show(vec![pair(2, 5, 51), pair(2, REST, 120)]);
    let came = |a: &Sample, b: &Sample| -> Vec<(u64, u64)> {
        between(&a.pairs, &b.pairs).iter().map(|pair| (pair.culprit, pair.ns)).collect()
    };
    assert_eq!(came(&before, &more), [(4, 10)]);
    assert_eq!(came(&more, &merged), [(5, 1), (REST, 3)]);
    assert_eq!(came(&before, &merged), [(5, 1), (REST, 13)]);
    assert_eq!(merged.cgroups.last().map(|(_, path)| &**path), Some(REST_NAME));
}

#[test]
fn culprits_are_hidden_in_a_cgroup_that_has_tasks_of_others() {
    let sample = shown(&mut shower(ALICE), &reading());
    assert!(sample.pairs.is_empty(), "{:?}", sample.pairs);
}

#[test]
fn a_view_of_followed_processes_shows_nothing_else() {
    let mut reading = reading();
    let follower = Follower::all().nth(3).expect("a follower");
    for access in &mut reading.access {
        access.followers = if matches!(access.serial, 13 | 15) { follower.bit() } else { 0 };
    }
    let mut admin = Shower::new(View { user: None, follower: Some(follower) });
    let sample = shown(&mut admin, &reading);
    assert_eq!(tids(&sample), [13, 15]);
    assert!(sample.exited.is_empty());
    assert_eq!(pairs(&sample), [(4, 2, 0)]);
    assert_eq!(paths(&sample), ["/", "/a/own", "/bob", "/system", "/a"]);
    let mut bob = Shower::new(View { user: Some(BOB), follower: Some(follower) });
    assert_eq!(tids(&shown(&mut bob, &reading)), [13], "the id now belongs to another user's process");
}

#[test]
fn a_task_whose_owner_is_unknown_is_not_shown() {
    let mut reading = reading();
    reading.access.retain(|access| access.serial != 10);
    assert_eq!(tids(&shown(&mut shower(ALICE), &reading)), [11]);
}
