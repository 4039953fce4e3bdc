//! A fake container runtime with programmed answers.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use cgscope_runtimes::{RetryPace, Runtimes, Wanted};
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
    task::JoinHandle,
    time::sleep,
};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(message, repeated, tag = "1")]
    pub(crate) containers: Vec<Container>,
}

/// A container in a reply. It also has fields of the CRI that cgscope does not read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) metadata: Option<Metadata>,
    #[prost(int64, tag = "7")]
    pub(crate) created_at: i64,
    #[prost(map = "string, string", tag = "8")]
    pub(crate) labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "9")]
    pub(crate) annotations: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) attempt: u32,
}

#[derive(Clone)]
pub(crate) enum Answer {
    /// Replies with this message and status 0.
    Message(Vec<u8>),
    /// Replies with these bytes instead of a gRPC frame, and status 0.
    Raw(Vec<u8>),
    /// Replies with this status and message, without a body.
    Status(&'static str, &'static str),
    /// Replies with a body and no status.
    NoStatus,
    /// Replies with a body that never ends.
    Endless,
    Hang,
    /// Replies with this HTTP status, without a body.
    Http(u16),
    /// Sends these bytes, which are not HTTP/2, and then closes the connection.
    NoHttp(Vec<u8>),
}

pub(crate) struct Fake {
    pub(crate) socket: PathBuf,
    pub(crate) calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// A pace without pauses after failures.
pub(crate) const PACE: RetryPace = RetryPace {
    deadline: Duration::from_secs(5),
    first_retry: Duration::ZERO,
    longest_retry: Duration::ZERO,
};

pub(crate) fn list(containers: Vec<Container>) -> Answer {
    Answer::Message(List { containers }.encode_to_vec())
}

pub(crate) fn runtime(socket: &Path) -> Runtimes {
    Runtimes::at(vec![socket.into()], PACE)
}

pub(crate) fn knows(runtimes: &Runtimes, id: &str) -> bool {
    runtimes.listing().names(&Wanted::Container(id.into())).is_some()
}

impl Fake {
    /// Starts a runtime at this path, and replaces an earlier runtime there.
    pub(crate) fn start(socket: PathBuf, answer: Answer) -> Self {
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(listen(listener, answer, calls.clone()));
        Self { socket, calls, task }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    /// Stops the runtime. The socket file remains, as after a crash.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn listen(listener: UnixListener, answer: Answer, calls: Arc<AtomicUsize>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(connection(stream, answer.clone(), calls.clone()));
    }
}

async fn connection(mut stream: UnixStream, answer: Answer, calls: Arc<AtomicUsize>) {
    if let Answer::NoHttp(bytes) = answer {
        let _ = stream.write_all(&bytes).await;
        return;
    }
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.fetch_add(1, SeqCst);
        tokio::spawn(call(request, respond, answer.clone()));
    }
}

async fn call(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, answer: Answer) {
    check(request).await;
    let head = |status: u16| {
        Response::builder().status(status).header("content-type", "application/grpc").body(()).unwrap()
    };
    let is_endless = matches!(answer, Answer::Endless);
    let has_status = !matches!(answer, Answer::NoStatus);
    let body = match answer {
        Answer::Hang => return sleep(Duration::from_secs(3600)).await,
        Answer::Http(status) => {
            respond.send_response(head(status), true).unwrap();
            return;
        }
        Answer::Status(code, message) => {
            let mut head = head(200);
            head.headers_mut().insert("grpc-status", code.parse().unwrap());
            head.headers_mut().insert("grpc-message", message.parse().unwrap());
            respond.send_response(head, true).unwrap();
            return;
        }
        Answer::Message(message) => [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat(),
        Answer::Raw(bytes) => bytes,
        Answer::NoStatus | Answer::Endless => vec![0; 1 << 20],
        Answer::NoHttp(_) => unreachable!("said before any call"),
    };
    let mut stream = respond.send_response(head(200), false).unwrap();
    if is_endless {
        // Sends until the client resets the stream, which makes `send` fail.
        while send(&mut stream, &body).await.is_some() {}
        return;
    }
    if send(&mut stream, &body).await.is_none() {
        return;
    }
    let mut trailers = HeaderMap::new();
    if has_status {
        trailers.insert("grpc-status", "0".parse().unwrap());
    }
    let _ = stream.send_trailers(trailers);
}

/// Sends bytes as fast as the client reads them. Returns `None` if the client has disconnected.
async fn send(stream: &mut h2::SendStream<Bytes>, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
        let (piece, rest) = bytes.split_at(room.min(bytes.len()));
        stream.send_data(Bytes::copy_from_slice(piece), false).ok()?;
        bytes = rest;
    }
    Some(())
}

/// Checks the headers that every gRPC server checks, and that the client requests only running containers.
async fn check(request: Request<RecvStream>) {
    assert_eq!(request.uri().path(), "/runtime.v1.RuntimeService/ListContainers");
    assert_eq!(request.method(), http::Method::POST);
    for (header, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        assert_eq!(request.headers()[header], value);
    }
    let limit = request.headers()["grpc-timeout"].to_str().unwrap();
    let (number, unit) = limit.split_at(limit.len() - 1);
    assert!(number.len() <= 8 && number.parse::<u32>().is_ok() && unit == "m", "{limit}");
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    // The request's frame has a filter for the state 1 (running).
    assert_eq!(bytes, [0, 0, 0, 0, 6, 0x0a, 4, 0x12, 2, 8, 1]);
}
