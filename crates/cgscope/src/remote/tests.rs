use std::{io, io::Write, os::unix::net::UnixListener};

use cgscope_record::{Outgoing, ReadError};
use cgscope_serve::protocol::Word;

use super::*;

#[test]
fn a_daemon_that_is_back_is_tried_again_unless_it_will_never_serve() {
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
    assert!(!may_pass(&ConnectError::NotAllowed(path()), REFUSALS), "it stays locked");
}

#[test]
fn a_daemon_that_refuses_is_tried_again_after_longer_and_longer_waits() {
    let path = std::env::temp_dir().join(format!("cgscope-backoff-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    let asking = Asking { request: Request::every(1), sender: None };
    let link =
        Link { asking: Mutex::new(asking), ends: AtomicBool::default(), is_dropped: AtomicBool::default() };
    let remote = Remote(Arc::new(link));
    let viewer = {
        let (path, remote) = (path.clone(), remote.clone());
        thread::spawn(move || reconnect(&path, &remote, &mut Backoff::new()).map(|back| back.is_some()))
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
    remote.0.ends.store(true, Ordering::Release);
    let ended = Instant::now();
    assert!(matches!(viewer.join().expect("no panic"), Ok(false)));
    assert!(ended.elapsed() < Duration::from_secs(2), "it waits for nobody");
}

#[test]
fn a_viewer_whose_view_cannot_be_sent_is_told_why() {
    let lost =
        |refusal| why_lost(Event::Refused(Word::refused(refusal, "it is broken")), Path::new("/run/it"));
    assert_eq!(lost(Refusal::Failed), "it is broken");
    assert!(lost(Refusal::Ending).contains("/run/it has gone"));
    assert!(why_lost(Event::Gone, Path::new("/run/it")).contains("/run/it has gone"));
}
