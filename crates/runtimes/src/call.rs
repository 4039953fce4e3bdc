//! Calls a function of the CRI: one unary gRPC call (HTTP/2, by `h2`) over a Unix socket. Each call opens its own connection,
//! because the runtime may have restarted since the last call.

use std::{io, path::Path, pin::pin, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use cgscope_model::printable;
use h2::{RecvStream, client};
use http::{HeaderMap, Request, StatusCode, header};
use prost::Message;
use tokio::net::UnixStream;

use crate::{
    messages::{LIST_CONTAINERS, running},
    names::REPLY_BYTES,
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

/// Requests the list of containers, and returns the encoded reply. The request asks the runtime to stop after `limit`, but the
/// runtime may ignore this.
pub(super) async fn list_containers(socket: &Path, limit: Duration) -> Result<Bytes, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(Failure::Connect)?;
    let (sender, connection) = client::Builder::new()
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .handshake(stream)
        .await?;
    let mut reply = pin!(call(sender, limit));
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        // This future must be polled, because it drives the connection. If the runtime closes the connection, the bytes that
        // arrived earlier can still be read.
        _ = connection => reply.await,
    }
}

async fn call(sender: client::SendRequest<Bytes>, limit: Duration) -> Result<Bytes, Failure> {
    let request = request(limit).map_err(|error| Failure::Broken(error.to_string()))?;
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(framed(&running()), true)?;
    let (head, mut body) = response.await?.into_parts();
    // A gRPC status in the headers means that the runtime refused the call and sends no body.
    if head.headers.contains_key("grpc-status") {
        check_status(&head.headers)?;
    }
    if head.status != StatusCode::OK {
        return Err(Failure::Broken(format!("HTTP status {}", head.status)));
    }
    let reply = receive(&mut body).await?;
    check_status(&body.trailers().await?.unwrap_or_default())?;
    unframed(reply)
}

fn request(limit: Duration) -> Result<Request<()>, http::Error> {
    Request::post(LIST_CONTAINERS)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("cgscope/", env!("CARGO_PKG_VERSION")))
        .header("grpc-timeout", format!("{}m", limit.as_millis()))
        .body(())
}

fn framed(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat().into()
}

async fn receive(body: &mut RecvStream) -> Result<Bytes, Failure> {
    let mut reply = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        if reply.len() + piece.len() > FRAME + REPLY_BYTES {
            return Err(Failure::TooLarge(REPLY_BYTES));
        }
        reply.put_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(reply.freeze())
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

fn unframed(mut reply: Bytes) -> Result<Bytes, Failure> {
    match reply.first_chunk::<FRAME>() {
        Some([0, length @ ..]) if u32::from_be_bytes(*length) as usize == reply.len() - FRAME => {
            Ok(reply.split_off(FRAME))
        }
        _ => Err(Failure::Garbage),
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
    /// The connection broke, or the peer does not speak gRPC. Contains a description.
    Broken(String),
    /// The runtime does not know the call: it has no CRI, or a CRI older than version 1.
    Unknown,
    /// The runtime refused the call. Contains the gRPC code, and the runtime's message in printable characters.
    Refused(u32, String),
    /// The reply is longer than this many bytes.
    TooLarge(usize),
    /// The reply is not a list of containers.
    Garbage,
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
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
            Self::Refused(code, message) => {
                format!("refused to list its containers (code {code}: {message})")
            }
            Self::TooLarge(most) => format!("answered with more than {} MiB", most >> 20),
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
            Self::Broken(_) | Self::Refused(..) | Self::TooLarge(_) | Self::Garbage => {
                "check that `crictl ps` or `docker ps` works with that socket; cgscope tries again by itself"
            }
        }
    }
}
