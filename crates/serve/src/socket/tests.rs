use cgscope_model::{
    ExitedReading, Sample,
    access::{Access, Follower},
};

use super::*;
use crate::{collection::Collect, shown::Reading};

const ALICE: u32 = 61_001;
const SECOND: u64 = 1_000_000_000;

/// Takes empty samples.
struct Nothing;

impl Collect for Nothing {
    fn collect(&mut self) -> Result<Reading, String> {
        Ok(Reading { sample: Sample::default(), access: Vec::new() })
    }
    fn follow(&mut self, _: Follower, _: &[u32]) {}
}

/// A server without clients, and the folder of its socket.
pub(super) fn server(limits: ViewerLimits) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s.sock")).unwrap();
    let collection = Collection::start(Nothing).unwrap();
    let header = Header::default();
    let server = Server::new(listener, collection, &header, None, limits, Arc::default()).unwrap();
    (server, folder)
}

fn kind(user: Option<u32>, interval_ns: u64) -> StreamKind {
    StreamKind { view: View { user, follower: None }, interval_ns }
}

#[test]
fn intervals_are_multiples_of_the_shortest_and_not_shorter_than_requested() {
    let limits = ViewerLimits::default();
    for (asked_ms, ms) in [(1, 100), (100, 100), (101, 200), (250, 300), (300, 300), (1_000, 1_000)] {
        assert_eq!(limits.interval_ns(asked_ms * 1_000_000), ms * 1_000_000, "{asked_ms}");
    }
}

#[tokio::test]
async fn intervals_of_a_user_are_limited_and_others_still_get_theirs() {
    let (server, _folder) = server(ViewerLimits::default());
    let mut shared = server.shared.borrow_mut();
    let mut join = |user, seconds| shared.join(kind(user, seconds * SECOND), 0);
    for seconds in 1..=16 {
        join(Some(ALICE), seconds).unwrap();
    }
    let word = join(Some(ALICE), 17).unwrap_err();
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("16 different intervals"), "{}", word.sentence);
    assert!(join(Some(ALICE), 16).is_ok(), "the user already has this interval");
    assert!(join(Some(ALICE + 1), 17).is_ok() && join(None, 17).is_ok());
}

#[tokio::test]
async fn exited_tasks_of_a_removed_cgroup_still_belong_to_its_owner() {
    use std::os::unix::fs::MetadataExt;

    let (server, _folder) = server(ViewerLimits::default());
    let mut shared = server.shared.borrow_mut();
    let mount = tempfile::tempdir().unwrap();
    let cgroup = mount.path().join("short");
    std::fs::create_dir(&cgroup).unwrap();
    let metadata = std::fs::metadata(&cgroup).unwrap();
    let (id, uid) = (metadata.ino(), metadata.uid());
    shared.mount = Some(mount.path().into());
    let mut cursor = shared.join(kind(Some(uid), SECOND), 0).unwrap();
    for number in 1..=2 {
        let mut sample = cgscope_made_up::host(1, 1, number);
        sample.exited = vec![ExitedReading { cgroup_id: id, ..sample.exited[0].clone() }];
        sample.cgroups = vec![(id, "/short".into())];
        let reading = Arc::new(Reading { sample, access: Vec::new() });
        let (at_ns, at) = (number * SECOND, Instant::now());
        let taken = Taken {
            reading,
            ended: Arc::default(),
            at_ns,
            is_on_grid: true,
            number,
            began: at,
            at,
            took: Duration::ZERO,
            changes: 0,
        };
        shared.show(taken);
        assert!(shared.owners.is_owned("/short", uid), "{number}");
        assert_eq!(shared.streams.next(&mut cursor).map(|shown| shown.number), Some(number));
        let _ = std::fs::remove_dir(&cgroup);
    }
}

/// A reading in which all tasks are Alice's and are followed for every follower.
pub(super) fn taken(tasks: u32, number: u64) -> Taken {
    let sample = cgscope_made_up::host(tasks, 5, number);
    let access = |serial| Access { serial, owner: Some(ALICE), followers: u64::MAX };
    let access = sample.tasks.iter().map(|task| access(task.serial)).collect();
    let reading = Arc::new(Reading { sample, access });
    let (at_ns, at) = (number * SECOND, Instant::now());
    Taken {
        reading,
        ended: Arc::default(),
        at_ns,
        is_on_grid: true,
        number,
        began: at,
        at,
        took: Duration::ZERO,
        changes: 0,
    }
}

fn seat(account: u32) -> CountedFor {
    CountedFor { account, is_admin: false }
}

#[tokio::test]
async fn only_the_user_at_the_limit_of_followers_is_refused() {
    let (server, _folder) = server(ViewerLimits::default());
    let mut shared = server.shared.borrow_mut();
    let first = taken(5, 1);
    let pid = first.reading.sample.tasks[0].tgid;
    shared.show(first);
    let alices = View { user: Some(ALICE), follower: None };
    let mut follow = |view, seat| shared.follow(view, seat, &[pid]);
    let followed = (0..100).take_while(|_| follow(alices, seat(ALICE)).is_ok()).count();
    assert_eq!(followed, 8);
    let word = follow(alices, seat(ALICE)).unwrap_err();
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("you have 8 viewers that follow processes"), "{}", word.sentence);
    assert!(follow(alices, seat(ALICE + 1)).is_ok(), "another user");
    assert!(follow(View::ALL, CountedFor { account: 0, is_admin: true }).is_ok(), "an admin");
}

#[tokio::test]
async fn the_memory_of_a_users_streams_is_limited_and_other_streams_continue() {
    const MOST: usize = 30 << 20;
    let (server, _folder) = server(ViewerLimits::default());
    let mut shared = server.shared.borrow_mut();
    let mut join = |user, seconds| shared.join(kind(user, seconds * SECOND), 0).unwrap();
    let [first, second] = [1, 2].map(|seconds| join(Some(ALICE), seconds));
    let cursors: Vec<Cursor> = (3..=16).map(|seconds| join(Some(ALICE), seconds)).collect();
    let [admin, other] = [None, Some(ALICE + 1)].map(|user| join(user, 1));
    let held = |shared: &Shared, user| {
        let of_user = shared.streams.held().filter(|held| held.kind.view.user == user);
        of_user.map(|held| held.bytes).collect::<Vec<_>>()
    };
    for number in 1..=4 {
        shared.show(taken(2_000, number * 16));
        shared.bound_memory(MOST, usize::MAX);
        let bytes = held(&shared, Some(ALICE));
        assert!(bytes.iter().sum::<usize>() <= MOST && !bytes.is_empty(), "{bytes:?}");
    }
    let word = cursors.last().and_then(|cursor| shared.streams.ended(cursor)).expect("the newest");
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("too much of the daemon's memory"), "{}", word.sentence);
    let is_served = |shared: &Shared, cursor| shared.streams.ended(cursor).is_none();
    assert!([&first, &second, &admin, &other].iter().all(|cursor| is_served(&shared, cursor)));
    // A lower limit for all users: each user keeps one stream.
    shared.bound_memory(MOST, 1);
    assert!([&first, &admin, &other].iter().all(|cursor| is_served(&shared, cursor)));
    assert!(!is_served(&shared, &second));
}

#[tokio::test]
async fn a_stream_holds_one_copy_of_its_rows_and_few_frames() {
    const TASKS: u32 = 5_000;
    let (server, _folder) = server(ViewerLimits::default());
    let mut shared = server.shared.borrow_mut();
    let view = View { user: None, follower: Follower::all().next() };
    let mut cursor = shared.join(StreamKind { view, interval_ns: SECOND }, 0).unwrap();
    for number in 1..=10 {
        shared.show(taken(TASKS, number));
        assert!(shared.streams.next(&mut cursor).is_some_and(|shown| shown.number == number));
    }
    assert_eq!(shared.streams.behind(&cursor), 0);
    let bytes = shared.streams.held().map(|held| held.bytes).sum::<usize>();
    // The fixed size of a stream, and for each task a reading and two references to it.
    assert!(bytes < (1 << 20) + TASKS as usize * 850, "{bytes} bytes for {TASKS} tasks");
}

#[tokio::test]
async fn intervals_count_for_the_owner_of_subordinate_ids() {
    let (server, folder) = server(ViewerLimits::default());
    let mut shared = server.shared.borrow_mut();
    let files = ["subuid", "passwd"].map(|name| folder.path().join(name));
    std::fs::write(&files[0], format!("{ALICE}:700000:100\n")).unwrap();
    shared.accounts = Accounts::of_files(files);
    let peer = |uid| Peer { uid, gids: Vec::new() };
    assert_eq!(shared.seat(&peer(700_007)), seat(ALICE));
    assert_eq!(shared.seat(&peer(700_100)), seat(700_100));
    let mut join = |user, seconds| shared.join(kind(Some(user), seconds * SECOND), 0);
    for seconds in 1..=16u32 {
        join(700_000 + seconds, seconds.into()).unwrap();
    }
    assert!(join(ALICE, 17).is_err() && join(700_050, 17).is_err());
    assert!(join(700_100, 17).is_ok(), "no account owns the id");
}
