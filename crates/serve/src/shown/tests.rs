use cgscope_ledger::{Loss, chains::Waker, history::KERNEL};
use cgscope_model::{
    Blame, BlockedKind, ByCause, ContainerReading, CpuReading, CpuWaits, ExitedReading, Losses, REST,
    REST_NAME,
};

use super::*;

fn task(serial: u64, cgroup_id: u64) -> Arc<TaskReading> {
    let tid = serial as u32;
    Arc::new(TaskReading { serial, tid, tgid: tid, cgroup_id, ..TaskReading::default() })
}

fn pair(victim: u64, culprit: u64, ns: u64) -> PairReading {
    PairReading { victim, culprit, blame: Blame::Ran, tid: 0, comm: "".into(), ns }
}

fn follower() -> Follower {
    Follower::all().nth(3).expect("a follower")
}

/// The viewer follows all tasks in cgroup 2 and some tasks in cgroup 3. Another viewer follows the other tasks.
fn reading() -> Reading {
    let paths = [(1, "/"), (2, "/a/own"), (3, "/shared"), (4, "/b"), (5, "/system"), (6, "/a")];
    let sample = Sample {
        unix_ns: 7,
        mono_ns: 8,
        tasks: vec![task(10, 2), task(11, 3), task(12, 3), task(13, 4), task(14, 2), task(15, 5)],
        exited: [2, 3, 4].map(|cgroup_id| ExitedReading { cgroup_id, ..ExitedReading::default() }).into(),
        pairs: vec![pair(2, 4, 100), pair(2, KERNEL, 7), pair(3, 4, 9), pair(4, 2, 3)],
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
    let other = Follower::all().next().expect("a follower").bit();
    let followed = |serial| Followed {
        serial,
        followers: if matches!(serial, 10 | 11 | 14) { follower().bit() | other } else { other },
    };
    Reading { sample, followed: (10..=15).map(followed).collect() }
}

fn tids(sample: &Sample) -> Vec<u32> {
    sample.tasks.iter().map(|task| task.tid).collect()
}

fn paths(sample: &Sample) -> Vec<&str> {
    sample.cgroups.iter().map(|(_, path)| &**path).collect()
}

fn pairs(sample: &Sample) -> Vec<(u64, u64, u64)> {
    sample.pairs.iter().map(|pair| (pair.victim, pair.culprit, pair.ns)).collect()
}

#[test]
fn a_view_has_the_followed_tasks_and_the_cgroups_around_them_and_their_culprits() {
    let sample = Shower::new(follower()).show(&reading());
    assert_eq!(tids(&sample), [10, 11, 14]);
    assert_eq!(paths(&sample), ["/", "/a/own", "/shared", "/b", "/a"]);
    let containers: Vec<_> =
        sample.containers.iter().filter_map(|named| named.container.as_deref()).collect();
    assert_eq!(containers, paths(&sample), "names of the same cgroups only");
    assert!(sample.exited.is_empty());
    assert_eq!(pairs(&sample), [(2, 4, 0), (2, KERNEL, 0)], "a task in cgroup 3 is not followed");
    assert!(sample.cpus[0].waits.is_none(), "waits by CPU include those of other tasks");
    assert_eq!((sample.unix_ns, sample.mono_ns), (7, 8));
    assert_eq!(sample.losses, reading().sample.losses);
}

#[test]
fn culprits_count_from_when_all_tasks_of_their_victim_are_shown() {
    let mut reading = reading();
    let mut shower = Shower::new(follower());
    let mut show = |pairs: Vec<PairReading>, is_whole: bool| {
        reading.sample.pairs = pairs;
        reading.followed[4].followers = if is_whole { follower().bit() } else { 0 };
        shower.show(&reading)
    };
    assert_eq!(pairs(&show(vec![pair(2, 4, 100)], true)), [(2, 4, 0)], "earlier waits are not counted");
    assert_eq!(pairs(&show(vec![pair(2, 3, 5), pair(2, 4, 110)], true)), [(2, 3, 5), (2, 4, 10)]);
    assert_eq!(pairs(&show(vec![pair(2, 3, 5), pair(2, 4, 120)], false)), []);
    assert_eq!(pairs(&show(vec![pair(2, 3, 5), pair(2, 4, 130)], true)), [(2, 3, 0), (2, 4, 0)]);
    // The pair's counter starts again from 0.
    assert_eq!(pairs(&show(vec![pair(2, 4, 2)], true)), [(2, 4, 2)]);
}

#[test]
fn a_culprit_that_moves_into_the_rest_adds_nothing_reported_before() {
    let mut reading = reading();
    reading.sample.cgroups.push((REST, REST_NAME.into()));
    let mut shower = Shower::new(follower());
    let mut show = |pairs: Vec<PairReading>| {
        reading.sample.pairs = pairs;
        shower.show(&reading)
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

/// A task of `sleeper`, or all of its tasks, slept until a task of `waker` woke it, 1 ms each.
fn chain(sleeper: u64, sleeper_tid: u32, waker: u64, count: u64) -> ChainReading {
    ChainReading {
        sleeper,
        sleeper_tid,
        kind: BlockedKind::Pipe,
        waker: Waker::Task,
        waker_cgroup: waker,
        waker_tid: 0,
        comm: "".into(),
        count,
        slept_ns: count * 1_000_000,
        ran_ns: count * 1_000_000,
        by_cause: ByCause::default(),
        waker_slept_ns: 0,
        unknown_ns: 0,
        estimated_ns: 0,
    }
}

#[test]
fn the_sleeps_of_a_waker_count_from_when_they_belong_to_a_chain_that_is_shown() {
    let mut reading = reading();
    reading.sample.has_chains = true;
    let mut shower = Shower::new(follower());
    let mut last = shower.show(&reading);
    let mut came = |chains: Vec<ChainReading>| -> Vec<(u64, u32, u64)> {
        reading.sample.chains = chains;
        let next = shower.show(&reading);
        let changes = chains::between(&last.chains, &next.chains);
        last = next;
        changes.iter().map(|row| (row.sleeper, row.sleeper_tid, row.count)).collect()
    };
    // Nobody who is shown sleeps for cgroup 4 yet.
    assert_eq!(
        came(vec![chain(2, 10, 5, 3), chain(4, 0, 5, 100), chain(5, 0, 6, 7)]),
        [(2, 10, 3), (5, 0, 7)]
    );
    let reached = vec![chain(2, 10, 4, 1), chain(2, 10, 5, 3), chain(4, 0, 5, 102), chain(5, 0, 6, 7)];
    assert_eq!(came(reached), [(2, 10, 1), (4, 0, 2)]);
    // The row of the shown task is evicted, and then comes again.
    assert_eq!(came(vec![chain(2, 10, 5, 3), chain(4, 0, 5, 110), chain(5, 0, 6, 8)]), [(5, 0, 1)]);
    assert_eq!(
        came(vec![chain(2, 10, 4, 1), chain(4, 0, 5, 111), chain(5, 0, 6, 8)]),
        [(2, 10, 1), (4, 0, 1)]
    );
    // The table's row starts again from 0.
    assert_eq!(
        came(vec![chain(2, 10, 4, 2), chain(4, 0, 5, 2), chain(5, 0, 6, 9)]),
        [(2, 10, 1), (4, 0, 2), (5, 0, 1)]
    );
}

#[test]
fn a_task_of_which_nothing_is_known_is_not_shown() {
    let mut reading = reading();
    reading.followed.retain(|task| task.serial != 10);
    assert_eq!(tids(&Shower::new(follower()).show(&reading)), [11, 14]);
}
