use std::{collections::HashSet, io, io::Write, os::unix::net::UnixListener};

use cgscope_record::{Outgoing, ReadError};

use super::*;
use crate::feed::Demand;

mod following;

#[test]
fn a_connection_is_retried_unless_it_can_never_succeed() {
    let path = || PathBuf::from("/run/it");
    let refused = |refusal| ConnectError::Refused(Word::refused(refusal, "no"));
    let passing = [
        ConnectError::NobodyThere(path(), io::ErrorKind::NotFound.into()),
        ConnectError::Io(path(), io::ErrorKind::ConnectionReset.into()),
        ConnectError::NotAllowed(path()),
        refused(Refusal::Ending),
        refused(Refusal::TooManyClients),
    ];
    assert!(passing.iter().all(|error| may_pass(error, 0)));
    let lasting = [
        ConnectError::NoDaemon(path(), ReadError::Version { found: 99, wrote: None }),
        refused(Refusal::NoSuchProcess),
        refused(Refusal::BadRequest),
    ];
    assert!(!lasting.iter().any(|error| may_pass(error, 0)));
    assert!(!may_pass(&ConnectError::NotAllowed(path()), REFUSALS), "the socket stays locked");
}

#[test]
fn waits_grow_while_a_daemon_refuses() {
    let path = std::env::temp_dir().join(format!("cgscope-backoff-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    let remote = Remote::new(Request::every(1), None);
    let viewer = {
        let (path, remote) = (path.clone(), remote.clone());
        thread::spawn(move || reconnect(&path, &remote, &mut { AGAIN }).map(|back| back.is_some()))
    };
    let word = Outgoing::refusal(&Word::refused(Refusal::Failed, "no")).expect("a word");
    let (begun, mut tries) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(4) {
        if let Ok((mut client, _)) = listener.accept() {
            tries += 1;
            client.write_all(&word).expect("it reads");
        }
        thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(&path).expect("a file of ours");
    assert!((1..=4).contains(&tries), "{tries} times in 4 s");
    remote.demand(Demand::Last);
    let ended = Instant::now();
    assert!(matches!(viewer.join().expect("no panic"), Ok(false)));
    assert!(ended.elapsed() < Duration::from_secs(2), "the end does not wait");
}

#[test]
fn waits_double_up_to_the_longest_and_vary_at_random() {
    let mut backoff = AGAIN;
    let waits: Vec<Duration> = (0..10).map(|_| back_off(&mut backoff)).collect();
    let middle = (0..10).map(|n| (AGAIN * 2u32.pow(n)).min(LONGEST));
    for (wait, middle) in waits.iter().zip(middle) {
        assert!((middle.mul_f64(0.75)..=middle.mul_f64(1.25)).contains(wait), "{wait:?} of {middle:?}");
    }
    assert!((0..20).map(|_| spread(AGAIN)).collect::<HashSet<_>>().len() > 10);
}
