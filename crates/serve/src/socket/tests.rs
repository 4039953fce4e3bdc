use cgscope_model::{
    ExitedReading, Sample,
    follower::{Followed, Follower},
};

use super::*;
use crate::{collection::Collect, shown::Reading};

const ALICE: u32 = 61_001;
const SECOND: u64 = 1_000_000_000;

struct Nothing;

impl Collect for Nothing {
    fn collect(&mut self) -> Result<Reading, String> {
        Ok(Reading { sample: Sample::default(), followed: Vec::new() })
    }
    fn follow(&mut self, _: Follower, _: &[u32]) {}
}

/// Returns a server without clients, and the directory that contains its socket.
pub(super) fn server(limits: SocketConfig) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s.sock")).unwrap();
    let collection = Collection::start(Nothing).unwrap();
    let header = Header::default();
    let server = Server::new(Some(listener), collection, &header, limits, Arc::default()).unwrap();
    (server, folder)
}

#[test]
fn intervals_are_multiples_of_the_shortest_and_not_shorter_than_requested() {
    let limits = SocketConfig::default();
    for (asked_ms, ms) in [(1, 100), (100, 100), (101, 200), (250, 300), (300, 300), (1_000, 1_000)] {
        assert_eq!(limits.interval_ns(asked_ms * 1_000_000), ms * 1_000_000, "{asked_ms}");
    }
}

#[tokio::test]
async fn intervals_of_a_user_are_limited_and_others_still_get_theirs() {
    let (server, _folder) = server(SocketConfig::default());
    let mut shared = server.shared.borrow_mut();
    let mut join = |uid, seconds| shared.join(uid, &[], seconds * SECOND);
    let cursors: Vec<Cursor> = (1..=16).map(|seconds| join(ALICE, seconds).unwrap()).collect();
    let word = join(ALICE, 17).unwrap_err();
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("16 different intervals"), "{}", word.sentence);
    let again = join(ALICE, 16).expect("the user already has this interval");
    assert!(join(ALICE + 1, 17).is_ok() && join(ROOT, 18).is_ok());
    // An interval counts until its last viewer has left.
    shared.leave(ALICE, &again);
    assert!(shared.join(ALICE, &[], 17 * SECOND).is_err());
    shared.leave(ALICE, &cursors[15]);
    assert!(shared.join(ALICE, &[], 17 * SECOND).is_ok());
}

#[tokio::test]
async fn only_root_and_viewers_may_connect() {
    let limits = SocketConfig { viewer_gids: vec![61_101], ..SocketConfig::default() };
    let (server, _folder) = server(limits);
    let shared = server.shared.borrow();
    let may = |uid, gids: &[u32]| shared.limits.may_see(&Peer { uid, gids: gids.to_vec() });
    assert!(may(0, &[]) && may(ALICE, &[5, 61_101]));
    assert!(!may(ALICE, &[]) && !may(ALICE, &[0, 61_100]));
}

/// Simulates a host that creates and removes thousands of cgroups each second.
#[tokio::test]
async fn a_viewer_with_an_interval_of_a_day_takes_bounded_memory() {
    let (server, _folder) = server(SocketConfig::default());
    let mut shared = server.shared.borrow_mut();
    let mut cursor = shared.join(ALICE, &[], 86_400 * SECOND).unwrap();
    let (mut before, mut ended) = (Reading::default(), Arc::<crate::collection::Ended>::default());
    for number in 1..=200 {
        let mut sample = cgscope_made_up::host(1, 1, 1);
        let exited = sample.exited[0].clone();
        let ids = (number * 1_000)..(number * 1_000 + 1_000);
        sample.exited = ids.clone().map(|cgroup_id| ExitedReading { cgroup_id, ..exited.clone() }).collect();
        sample.cgroups = ids.map(|id| (id, format!("/{id}").into())).collect();
        let reading = Reading { sample, followed: Vec::new() };
        ended = ended.then(number, &before, &reading);
        before = reading.clone();
        let reading = Arc::new(reading);
        shared.show(Taken { reading, ended: ended.clone(), ..taken(1, number) });
    }
    assert_eq!(shared.streams.next(&mut cursor).map(|shown| shown.number), Some(1));
    let bytes: usize = shared.streams.going_on().map(|stream| stream.bytes()).sum();
    assert!((2 << 20..12 << 20).contains(&bytes), "{bytes} bytes");
}

/// Returns a sample in which each follower follows all tasks.
pub(super) fn taken(tasks: u32, number: u64) -> Taken {
    let sample = cgscope_made_up::host(tasks, 5, number);
    let followed = |serial| Followed { serial, followers: u64::MAX };
    let followed = sample.tasks.iter().map(|task| followed(task.serial)).collect();
    let reading = Arc::new(Reading { sample, followed });
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

const ROOT: u32 = 0;

#[tokio::test]
async fn only_the_user_at_the_limit_of_followers_is_refused() {
    let (server, _folder) = server(SocketConfig::default());
    let mut shared = server.shared.borrow_mut();
    let first = taken(5, 1);
    let pid = first.reading.sample.tasks[0].tgid;
    shared.show(first);
    let mut follow = |uid| shared.join(uid, &[pid], SECOND);
    let followed = (0..100).take_while(|_| follow(ALICE).is_ok()).count();
    assert_eq!(followed, 8);
    let word = follow(ALICE).unwrap_err();
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("you have 8 viewers that follow processes"), "{}", word.sentence);
    assert!(follow(ALICE + 1).is_ok() && follow(ROOT).is_ok());
}

#[tokio::test]
async fn the_memory_of_a_users_streams_is_limited_and_other_streams_continue() {
    const MOST: usize = 30 << 20;
    let (server, _folder) = server(SocketConfig::default());
    let mut shared = server.shared.borrow_mut();
    let mut join = |uid, ms| shared.join(uid, &[], ms * SECOND / 1_000).unwrap();
    // All streams are so short that they contain each sample.
    let [first, second] = [1, 2].map(|ms| join(ALICE, ms));
    let cursors: Vec<Cursor> = (3..=16).map(|ms| join(ALICE, ms)).collect();
    let [root, other] = [(ROOT, 17), (ALICE + 1, 18)].map(|(uid, ms)| join(uid, ms));
    let held = |shared: &mut Shared, account| {
        let of_user = shared.streams.going_on().filter(|stream| stream.account == account);
        of_user.map(|stream| stream.bytes()).collect::<Vec<_>>()
    };
    for number in 1..=4 {
        shared.show(taken(2_000, number * 16));
        bound_memory(&mut shared.streams, MOST, usize::MAX);
        let bytes = held(&mut shared, ALICE);
        assert!(bytes.iter().sum::<usize>() <= MOST && !bytes.is_empty(), "{bytes:?}");
    }
    let word = cursors.last().and_then(|cursor| shared.streams.of(cursor).ended.clone()).expect("the newest");
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("too much of the daemon's memory"), "{}", word.sentence);
    let is_served = |shared: &Shared, cursor| shared.streams.of(cursor).ended.is_none();
    assert!([&first, &second, &root, &other].iter().all(|cursor| is_served(&shared, cursor)));
    // If the limit for all users together is lower, each user still keeps one stream.
    bound_memory(&mut shared.streams, MOST, 1);
    assert!([&first, &root, &other].iter().all(|cursor| is_served(&shared, cursor)));
    assert!(!is_served(&shared, &second));
}

#[tokio::test]
async fn a_stream_holds_one_copy_of_its_rows_and_few_frames() {
    const TASKS: u32 = 5_000;
    let (server, _folder) = server(SocketConfig::default());
    let mut shared = server.shared.borrow_mut();
    let kind = StreamKind { follower: Follower::all().next(), interval_ns: SECOND };
    let mut cursor = shared.begin(ROOT, kind, 0).unwrap();
    for number in 1..=10 {
        shared.show(taken(TASKS, number));
        assert!(shared.streams.next(&mut cursor).is_some_and(|shown| shown.number == number));
    }
    assert_eq!(shared.streams.of(&cursor).behind(&cursor), 0);
    let bytes = shared.streams.going_on().map(|stream| stream.bytes()).sum::<usize>();
    // The limit is the fixed size of a stream plus the size of a reading with two references for each task.
    assert!(bytes < (1 << 20) + TASKS as usize * 850, "{bytes} bytes for {TASKS} tasks");
}
