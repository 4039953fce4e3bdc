//! Tests of the client with a fake API of Docker.

use cgscope_runtimes::{Runtimes, Wanted};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
};

use crate::runtime::PACE;

/// Starts an engine that answers every request with these bytes and leaves the connection open.
fn engine(folder: &tempfile::TempDir, answer: Vec<u8>) -> Runtimes {
    let socket = folder.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..length]);
            assert!(request.starts_with("GET /containers/json HTTP/1.1\r\nhost: localhost\r\n"), "{request}");
            let _ = stream.write_all(&answer).await;
            std::mem::forget(stream);
        }
    });
    Runtimes::at(vec![socket], PACE)
}

fn reply(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into()
}

#[tokio::test]
async fn a_container_of_docker_has_its_name_and_no_pod_whatever_its_labels() {
    let folder = tempfile::tempdir().unwrap();
    let body = r#"[{"Id":"a1","Names":["/other/alias","/web"],"Labels":{"io.kubernetes.pod.name":"cart"},"State":"running"},
                   {"Id":"b2","Names":[],"Labels":null}]"#;
    let mut engine = engine(&folder, reply("200 OK", body));
    assert_eq!(engine.refresh().await, None);
    let names = |id: &str| engine.listing().names(&Wanted::Container(id.into())).cloned().unwrap();
    assert_eq!((names("a1").container.as_deref(), names("a1").pod), (Some("web"), None));
    assert_eq!(names("b2").container, None);
}

#[tokio::test]
async fn an_engine_that_misbehaves_is_reported() {
    for (answer, words) in [
        (reply("500 Internal Server Error", "{}"), "gave no complete answer (HTTP status 500"),
        (reply("200 OK", "{}"), "other than a list of containers"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
                .iter()
                .copied()
                .chain(vec![b' '; 17 << 20])
                .collect(),
            "more than 16 MiB",
        ),
        (b"nonsense\r\n\r\n".to_vec(), "gave no complete answer ("),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let said = engine(&folder, answer).refresh().await.expect("a sentence");
        assert!(said.contains(words), "{said}");
    }
}
