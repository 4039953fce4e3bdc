//! Requests the list of containers from a runtime: from the CRI by one unary gRPC call (HTTP/2, by `h2`), or from the API of
//! Docker and Podman by `GET /containers/json`. Each call opens its own connection over a Unix socket, because the runtime may
//! have restarted since the last call.

use std::{io, path::Path, pin::pin, time::Duration};

use bytes::Bytes;
use cgscope_model::printable;
use h2::client;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;

use crate::{
    messages::{self, LIST_CONTAINERS, running},
    names::{REPLY_BYTES, RuntimeNames, listed},
    shortened,
};

/// Maximum number of bytes that the runtime may send ahead of our reads.
const WINDOW_BYTES: u32 = 1 << 20;

/// Maximum length of the reply's headers, bytes.
const HEADER_BYTES: u32 = 16 << 10;

/// Maximum length of an error message from the runtime that we print, bytes.
const MESSAGE_BYTES: usize = 200;

/// gRPC status codes.
const OK: u32 = 0;
const UNIMPLEMENTED: u32 = 12;

/// Length of the header of a gRPC message: one byte for compression, four bytes for the length.
const FRAME: usize = 5;

/// Requests the names of running containers from the API of Docker or Podman. Stopped containers have no cgroup.
pub(super) async fn list_from_docker(socket: &Path) -> Result<RuntimeNames, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(Failure::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Every engine accepts the path without a version.
    let request = Request::get("/containers/json").header(header::HOST, "localhost").body(String::new())?;
    let reply = async {
        let response = sender.send_request(request).await?;
        check_http_status(response.status())?;
        let body = Limited::new(response.into_body(), REPLY_BYTES).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Failure::TooLarge,
            false => Failure::Broken(error.to_string()),
        })?;
        listed(&body.to_bytes())
    };
    drive(connection, reply).await
}

/// Requests the names of running containers from the CRI. The request has a time limit, which the runtime may ignore.
pub(super) async fn list_containers(socket: &Path, limit: Duration) -> Result<RuntimeNames, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(Failure::Connect)?;
    let (sender, connection) = client::Builder::new()
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .handshake(stream)
        .await?;
    drive(connection, call(sender, limit)).await
}

/// Waits for a reply, and polls the connection, which drives the reply. If the runtime closes the connection, the bytes that
/// arrived earlier can still be read.
async fn drive<T>(connection: impl Future, reply: impl Future<Output = T>) -> T {
    let mut reply = pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        _ = connection => reply.await,
    }
}

async fn call(sender: client::SendRequest<Bytes>, limit: Duration) -> Result<RuntimeNames, Failure> {
    let request = Request::post(LIST_CONTAINERS)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("cgscope/", env!("CARGO_PKG_VERSION")))
        .header("grpc-timeout", format!("{}m", limit.as_millis()))
        .body(())?;
    let message = running().encode_to_vec();
    let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(framed.into(), true)?;
    let (head, mut body) = response.await?.into_parts();
    // A gRPC status in the headers means that the runtime refused the call and sends no body.
    if head.headers.contains_key("grpc-status") {
        check_status(&head.headers)?;
    }
    check_http_status(head.status)?;
    let mut reply = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        if reply.len() + piece.len() > FRAME + REPLY_BYTES {
            return Err(Failure::TooLarge);
        }
        reply.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    check_status(&body.trailers().await?.unwrap_or_default())?;
    match reply.split_first_chunk::<FRAME>() {
        Some(([0, length @ ..], message)) if u32::from_be_bytes(*length) as usize == message.len() => {
            messages::names(message).map_err(|_| Failure::Garbage)
        }
        _ => Err(Failure::Garbage),
    }
}

fn check_http_status(status: StatusCode) -> Result<(), Failure> {
    match status {
        StatusCode::OK => Ok(()),
        status => Err(Failure::Broken(format!("HTTP status {status}"))),
    }
}

fn check_status(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |key: &str| headers.get(key).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match text("grpc-status").and_then(|code| code.parse().ok()) {
        Some(OK) => Ok(()),
        Some(UNIMPLEMENTED) => Err(Failure::Unknown),
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default();
            Err(Failure::Refused(code, printable(shortened(&message, MESSAGE_BYTES)).to_string()))
        }
        None => Err(Failure::Broken("no gRPC status".into())),
    }
}

/// The reason why a runtime returned no names. Every variant except `Absent` refers to a single socket.
#[derive(Debug)]
pub(crate) enum Failure {
    /// None of the sockets exists.
    Absent,
    /// The socket exists, but no process accepts the connection.
    Connect(io::Error),
    /// The runtime did not reply within this time.
    Late(Duration),
    /// The connection broke, or the peer does not speak HTTP or gRPC. Contains a description.
    Broken(String),
    /// The runtime does not know the call: it has no CRI, or a CRI older than version 1.
    Unknown,
    /// The runtime refused the call. Contains the gRPC code, and the runtime's message in printable characters.
    Refused(u32, String),
    /// The reply is longer than [`REPLY_BYTES`].
    TooLarge,
    /// The reply is not a list of containers.
    Garbage,
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Failure {
    /// Returns the sentence for the log.
    pub(crate) fn sentence(&self, socket: &Path) -> String {
        let (socket, why) = (socket.display(), self.why());
        let what = match self {
            Self::Absent => format!("no container runtime is at {socket}, so"),
            Self::Unknown => format!("the program that listens at {socket} {why}, so its"),
            _ => format!("the container runtime at {socket} {why}, so its"),
        };
        format!("{what} pods and containers have no names; {}", self.remedy())
    }

    fn why(&self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Connect(error) => format!("could not be reached ({error})"),
            Self::Late(limit) => format!("did not answer within {} ms", limit.as_millis()),
            Self::Broken(why) => format!("gave no complete answer ({why})"),
            Self::Unknown => "does not know version 1 of the CRI".into(),
            Self::Refused(code, message) => format!("refused to list its containers (code {code}: {message})"),
            Self::TooLarge => format!("answered with more than {} MiB", REPLY_BYTES >> 20),
            Self::Garbage => "answered with something other than a list of containers".into(),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Absent => {
                "give the runtime's socket (`runtime` in [containers], or --runtime), or \"\" if this host has no containers"
            }
            Self::Connect(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                "add cgscope's user to the group of that socket, or set `runtime` in [containers] to \"\""
            }
            Self::Connect(_) | Self::Late(_) => "check that the runtime runs; cgscope tries again by itself",
            Self::Unknown => {
                "enable the runtime's CRI (containerd: remove `cri` from `disabled_plugins`); or update the runtime to \
                 containerd 1.6 or CRI-O 1.23; or set `runtime` in [containers] to \"\""
            }
            Self::Broken(_) | Self::Refused(..) | Self::TooLarge | Self::Garbage => {
                "check that `crictl ps` or `docker ps` works with that socket; cgscope tries again by itself"
            }
        }
    }
}
