//! Tests that runtimes that misbehave do not make the daemon fail, and that each problem is reported once.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use cgscope_runtimes::{RetryPace, Runtimes};
use tokio::{net::UnixListener, time::sleep};

use crate::runtime::{Answer, Container, Fake, PACE, knows, list, runtime};

fn one(id: &str) -> Answer {
    list(vec![Container { id: id.into(), ..Container::default() }])
}

/// Returns the sentence for the log if a runtime gives this answer. Checks that a second refresh returns no sentence.
async fn said(answer: Answer) -> String {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(dir.path().join("cri"), answer);
    let mut runtime = runtime(&fake.socket);
    let sentence = runtime.refresh().await.expect("a sentence");
    assert_eq!(runtime.refresh().await, None, "it is reported only once");
    assert!(sentence.contains(fake.socket.to_str().unwrap()), "{sentence}");
    assert!(sentence.contains(", so its pods and containers have no names; "), "{sentence}");
    assert!(!sentence.contains(char::is_control), "{sentence:?}");
    sentence
}

#[tokio::test]
async fn each_invalid_answer_has_its_own_sentence() {
    for (answer, words) in [
        (Answer::Status("12", "unknown service"), "does not know version 1 of the CRI"),
        (Answer::Status("7", "no%20way\u{9}"), "refused to list its containers (code 7: no%20way\u{fffd})"),
        (Answer::Status("0", ""), "gave no complete answer (no gRPC status)"),
        (Answer::Status("x", ""), "gave no complete answer (no gRPC status)"),
        (Answer::NoStatus, "gave no complete answer (no gRPC status)"),
        (Answer::Http(502), "gave no complete answer (HTTP status 502"),
        (Answer::NoHttp(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), "gave no complete answer ("),
        (Answer::NoHttp(Vec::new()), "gave no complete answer ("),
        (Answer::Message(b"\xff\xff\xff".to_vec()), "other than a list of containers"),
        (Answer::Message(b"\x0a\x02\x0a\x09".to_vec()), "other than a list of containers"),
        (Answer::Raw(Vec::new()), "other than a list of containers"),
        (Answer::Raw(vec![1, 0, 0, 0, 0]), "other than a list of containers"),
        (Answer::Raw(vec![0, 0, 0, 0, 9, 1]), "other than a list of containers"),
        (Answer::Endless, "answered with more than 16 MiB"),
    ] {
        let sentence = said(answer).await;
        assert!(sentence.contains(words), "{sentence}");
    }
}

#[tokio::test]
async fn an_empty_list_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(dir.path().join("cri"), Answer::Message(Vec::new()));
    let mut runtime = runtime(&fake.socket);
    assert_eq!(runtime.refresh().await, None);
    assert_eq!(runtime.listing().named(), 0);
}

#[tokio::test]
async fn a_runtime_that_hangs_is_left_after_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let calling = Fake::start(dir.path().join("a"), Answer::Hang);
    // This runtime does not even accept the connection.
    let deaf = dir.path().join("b");
    let _listener = UnixListener::bind(&deaf).unwrap();
    let pace = RetryPace { deadline: Duration::from_millis(300), ..PACE };
    for socket in [calling.socket.clone(), deaf] {
        let mut runtime = Runtimes::at(vec![socket], pace);
        let start = Instant::now();
        let sentence = runtime.refresh().await.unwrap();
        assert!(sentence.contains("did not answer within 300 ms"), "{sentence}");
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
    // A runtime that hangs does not use up the time of the next runtime.
    let good = Fake::start(dir.path().join("c"), one("x"));
    let mut runtime = Runtimes::at(vec![calling.socket.clone(), good.socket.clone()], pace);
    let sentence = runtime.refresh().await.expect("the one that hangs is reported");
    assert!(sentence.contains("did not answer within 150 ms") && !sentence.contains("; the"), "{sentence}");
    assert!(knows(&runtime, "x"));
}

#[tokio::test]
async fn a_runtime_that_fails_beside_one_that_answers_is_reported_and_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let good = Fake::start(dir.path().join("good"), one("x"));
    let (refusing, without_cri) = (dir.path().join("refusing"), dir.path().join("docker"));
    let refuses = Fake::start(refusing.clone(), Answer::Status("7", "no"));
    let _without = Fake::start(without_cri.clone(), Answer::Status("12", "unknown service"));
    let mut all = Runtimes::at(vec![without_cri, refusing.clone(), good.socket.clone()], PACE);
    let sentence = all.refresh().await.expect("a sentence");
    assert!(sentence.contains("refused to list its containers"), "{sentence}");
    assert!(!sentence.contains("CRI"), "the containerd of Docker has none: {sentence}");
    assert_eq!(all.refresh().await, None);
    refuses.stop().await;
    let sentence = all.refresh().await.expect("another failure");
    assert!(sentence.contains("could not be reached"), "{sentence}");
    let _answers = Fake::start(refusing.clone(), one("y"));
    let sentence = all.refresh().await.expect("it answers");
    assert!(sentence.contains("answers: its pods"), "{sentence}");
    assert!(knows(&all, "x") && knows(&all, "y"));
}

#[tokio::test]
async fn a_runtime_that_stops_and_restarts_is_reported_twice_and_keeps_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri");
    let mut runtime = runtime(&socket);
    let absent = runtime.refresh().await.unwrap();
    assert!(
        absent.starts_with("no container runtime is at ") && absent.contains("`runtime` in [containers]")
    );
    let fake = Fake::start(socket.clone(), one("first"));
    let back = runtime.refresh().await.unwrap();
    assert!(back.contains("answers: its pods and containers now have names"), "{back}");
    fake.stop().await;
    let exited = runtime.refresh().await.unwrap();
    assert!(exited.contains("could not be reached (Connection refused"), "{exited}");
    assert_eq!(runtime.refresh().await, None);
    assert!(knows(&runtime, "first"), "the names stay");
    let _fake = Fake::start(socket, one("second"));
    assert!(runtime.refresh().await.is_some());
    assert_eq!(runtime.refresh().await, None);
    assert!(knows(&runtime, "second") && !knows(&runtime, "first"));
}

#[tokio::test]
async fn a_failing_runtime_is_called_again_at_growing_intervals() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(dir.path().join("cri"), Answer::Status("2", "no"));
    let ms = Duration::from_millis;
    let pace = RetryPace { first_retry: ms(50), longest_retry: ms(400), ..PACE };
    let mut runtime = Runtimes::at(vec![fake.socket.clone()], pace);
    let start = Instant::now();
    let mut asked = Vec::new();
    while asked.len() < 6 {
        runtime.refresh().await;
        if fake.calls() > asked.len() {
            asked.push(start.elapsed());
        }
        sleep(ms(2)).await;
    }
    let between: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (between, least) in between.iter().zip([50, 100, 200, 400, 400]) {
        assert!(*between >= ms(least - 5), "{asked:?}");
    }
    assert!(between[4] < ms(2_000), "{asked:?}");
}

#[tokio::test]
async fn a_path_that_is_not_a_socket_is_reported() {
    let sentence = runtime(Path::new("/dev/null")).refresh().await.unwrap();
    assert!(sentence.contains("at /dev/null could not be reached"), "{sentence}");
}

#[tokio::test]
async fn missing_default_sockets_are_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["a.sock", "b.sock"].map(|name| folder.path().join(name));
    let mut auto = Runtimes::at(sockets.to_vec(), RetryPace::default());
    assert_eq!(auto.refresh().await, None);
    let mut named = Runtimes::at(sockets[..1].to_vec(), RetryPace::default());
    let sentence = named.refresh().await.expect("the configured socket is reported");
    assert!(sentence.starts_with("no container runtime is at "), "{sentence}");
}
