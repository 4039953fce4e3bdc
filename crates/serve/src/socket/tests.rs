use cgscope_model::{ExitedReading, Sample};

use super::*;
use crate::{collection::Collect, shown::Reading};

const ALICE: u32 = 61_001;
const SECOND: u64 = 1_000_000_000;

/// Takes Samples of nothing.
struct Nothing;

impl Collect for Nothing {
    fn collect(&mut self) -> Result<Reading, String> {
        Ok(Reading { sample: Sample::default(), access: Vec::new() })
    }
    fn follow(&mut self, _: Follower, _: &[u32]) {}
    fn follow_no_longer(&mut self, _: Follower) {}
}

/// One that serves nobody yet, and the folder where its socket is.
pub(super) fn server(limits: Limits) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s.sock")).unwrap();
    let collection = Collection::start(Nothing).unwrap();
    let header = Header::default();
    let server = Server::new(listener, collection, &header, None, limits, Arc::default()).unwrap();
    (server, folder)
}

fn kind(user: Option<u32>, interval_ns: u64) -> Kind {
    Kind { view: View { user, follower: None }, interval_ns }
}

#[test]
fn intervals_are_multiples_of_the_shortest_and_not_shorter_than_asked_for() {
    let limits = Limits::default();
    for (asked_ms, ms) in [(1, 100), (100, 100), (101, 200), (250, 300), (300, 300), (1_000, 1_000)] {
        assert_eq!(limits.interval_ns(asked_ms * 1_000_000), ms * 1_000_000, "{asked_ms}");
    }
}

#[tokio::test]
async fn a_user_looks_at_so_many_different_intervals_and_others_do_not_notice() {
    let (server, _folder) = server(Limits::default());
    let mut shared = server.shared.borrow_mut();
    let mut join = |user, seconds| shared.join(kind(user, seconds * SECOND), 0);
    for seconds in 1..=16 {
        join(Some(ALICE), seconds).unwrap();
    }
    let word = join(Some(ALICE), 17).unwrap_err();
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("16 different intervals"), "{}", word.sentence);
    assert!(join(Some(ALICE), 16).is_ok(), "there is this one");
    assert!(join(Some(ALICE + 1), 17).is_ok() && join(None, 17).is_ok());
}

#[tokio::test]
async fn what_exited_in_a_cgroup_that_is_gone_is_still_its_owners() {
    use std::os::unix::fs::MetadataExt;

    let (server, _folder) = server(Limits::default());
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
        let taken = Taken { reading, at_ns, is_on_grid: true, number, at, took: Duration::ZERO, changes: 0 };
        shared.show(taken).unwrap();
        assert!(shared.owners.is_owned("/short", uid), "{number}");
        assert_eq!(shared.streams.next(&mut cursor).map(|shown| shown.number), Some(number));
        let _ = std::fs::remove_dir(&cgroup);
    }
}
