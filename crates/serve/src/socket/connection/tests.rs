use cgscope_model::follower::Follower;

use super::*;
use crate::{
    socket::{
        Server, SocketConfig,
        limits::free_follower,
        tests::{server, taken},
    },
    streams::StreamKind,
};

const ALICE: u32 = 61_001;
const VIEWERS: u32 = 61_101;
const MS: u64 = 1_000_000;

fn limits(viewer_gids: &[u32], shortest_ms: u64) -> SocketConfig {
    SocketConfig {
        viewer_gids: viewer_gids.to_vec(),
        shortest_interval: shortest_ms * MS,
        ..SocketConfig::default()
    }
}

/// Returns a connection of the user Alice, who is in the group of viewers, and the client's end of its socket.
fn viewer(server: &Server, interval_ns: u64) -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = Peer { uid: ALICE, gids: vec![VIEWERS] };
    let mut viewer = Connection::new(ours, peer, server.shared.clone());
    viewer.asked = Some((Request::every(interval_ns), Instant::now()));
    viewer.answer().unwrap();
    (viewer, theirs)
}

#[tokio::test]
async fn a_process_that_started_while_a_sample_was_taken_is_found_in_the_next_one() {
    let (server, _folder) = server(limits(&[VIEWERS], 100));
    let (mut viewer, _theirs) = viewer(&server, 1_000 * MS);
    let before = Instant::now();
    let sample = |tasks, number, began| Taken { began, ..taken(tasks, number) };
    let pids = taken(1, 2).reading.sample.tasks.iter().map(|task| task.tgid).collect();
    viewer.asked = Some((Request { pids, ..Request::every(1_000 * MS) }, Instant::now()));
    let show = |taken| {
        let mut shared = server.shared.borrow_mut();
        shared.wants_one = false;
        shared.show(taken);
    };
    show(sample(0, 1, before));
    assert_eq!(viewer.answer(), Ok(()), "not refused");
    assert!(viewer.asked.is_some() && server.shared.borrow().wants_one);
    show(sample(1, 2, Instant::now()));
    assert_eq!(viewer.answer(), Ok(()));
    assert!(viewer.asked.is_none() && viewer.cursor.is_some_and(|cursor| cursor.kind.follower.is_some()));
}

#[tokio::test]
async fn a_viewer_whose_view_cannot_be_sent_gets_the_reason_and_others_continue() {
    let (server, _folder) = server(limits(&[VIEWERS], 100));
    let (mut all, _theirs) = viewer(&server, 1_000 * MS);
    let (mut one, _hers) = viewer(&server, 1_000 * MS);
    // The second viewer follows one process, and sees only this process.
    let kind = StreamKind { follower: Follower::all().next(), interval_ns: 1_000 * MS };
    let joined = server.shared.borrow_mut().begin(ALICE, kind, 0).unwrap();
    let before = one.cursor.replace(joined).expect("the viewer was in a stream");
    server.shared.borrow_mut().leave(ALICE, &before);
    // These tasks are in the wrong order, so they cannot be encoded. The second viewer does not follow them.
    let mut sample = cgscope_made_up::host(3, 1, 1);
    sample.tasks.reverse();
    let reading = Arc::new(crate::shown::Reading { sample, followed: Vec::new() });
    server.shared.borrow_mut().show(Taken { reading, ..taken(1, 1) });
    one.out.clear();
    assert!(!all.out.is_empty(), "it has not read what was sent before");
    let word = all.look_again().expect_err("it cannot be sent");
    assert_eq!(word.refused, Some(Refusal::Failed));
    assert!(word.sentence.contains("other viewers continue"), "{word:?}");
    assert_eq!((one.look_again(), one.fill(), one.out.len()), (Ok(()), Ok(()), 1));
}

#[tokio::test]
async fn a_viewer_that_reads_too_slowly_is_told_how_many_samples_it_lost() {
    let (server, _folder) = server(limits(&[VIEWERS], 100));
    let (mut viewer, _theirs) = viewer(&server, 1_000 * MS);
    viewer.out.clear();
    let show = |number| server.shared.borrow_mut().show(taken(1, number));
    show(1);
    assert_eq!((viewer.fill(), viewer.out.len()), (Ok(()), 1));
    viewer.out.clear();
    (2..=2_000).for_each(show);
    assert_eq!(viewer.fill(), Ok(()));
    let word = String::from_utf8_lossy(&viewer.out[0]).into_owned();
    assert!(word.contains("samples were left out, because this viewer reads too slowly"), "{word}");
}

/// Times for which tests watch a viewer that should stay connected, and a viewer that should be disconnected.
const STAYS: Duration = Duration::from_millis(300);
const GOES: Duration = Duration::from_secs(20);

/// Serves a viewer, and changes the limits. Returns the last message if the server disconnected the viewer.
async fn word_of_change(
    server: &Server,
    viewer: &mut Connection,
    limits: SocketConfig,
    watched: Duration,
) -> Option<Word> {
    let mut news = server.shared.borrow().news.subscribe();
    let change = server.limits();
    let mut served = std::pin::pin!(viewer.serve(&mut news));
    if let Ok(ended) = tokio::time::timeout(Duration::from_millis(20), &mut served).await {
        return ended.err();
    }
    change(limits);
    tokio::time::timeout(watched, served).await.ok().and_then(Result::err)
}

#[tokio::test]
async fn a_former_viewer_is_disconnected() {
    let (server, _folder) = server(limits(&[VIEWERS], 100));
    let (mut viewer, _theirs) = viewer(&server, 1_000 * MS);
    let word = word_of_change(&server, &mut viewer, limits(&[VIEWERS, 7], 100), STAYS).await;
    assert_eq!(word, None, "she may still see everything");
    let word = word_of_change(&server, &mut viewer, limits(&[7], 100), GOES).await.expect("no viewer");
    assert_eq!(word.refused, Some(Refusal::OtherUser), "{word:?}");
}

#[tokio::test]
async fn connected_viewers_continue_at_intervals_that_the_new_limits_allow() {
    let (server, _folder) = server(limits(&[VIEWERS], 100));
    let (mut viewer, _theirs) = viewer(&server, 300 * MS);
    let interval_ms = |viewer: &Connection| viewer.cursor.map(|cursor| cursor.kind.interval_ns / MS);
    for (shortest_ms, ms) in [(1_000, 1_000), (200, 400), (100, 300)] {
        let word = word_of_change(&server, &mut viewer, limits(&[VIEWERS], shortest_ms), STAYS).await;
        assert_eq!((word, interval_ms(&viewer)), (None, Some(ms)), "{shortest_ms}");
        assert_eq!(server.shared.borrow().streams.streams.len(), 1);
    }
    // A viewer that follows a process also stays connected, and the process is still followed.
    let follower = free_follower(&server.shared.borrow().streams, ALICE).ok();
    let followed = StreamKind { follower, interval_ns: 300 * MS };
    let joined = server.shared.borrow_mut().begin(ALICE, followed, 0).unwrap();
    let before = viewer.cursor.replace(joined).expect("the viewer was in a stream");
    server.shared.borrow_mut().leave(ALICE, &before);
    assert_eq!(word_of_change(&server, &mut viewer, limits(&[VIEWERS], 500), STAYS).await, None);
    assert_eq!(viewer.cursor.map(|cursor| cursor.kind), Some(StreamKind { follower, interval_ns: 500 * MS }));
    let followers: Vec<_> = server.shared.borrow().streams.followers().collect();
    assert_eq!(followers, [(follower.expect("a free one"), ALICE)]);
}
