//! One unary call of gRPC over a Unix socket: h2 and a frame of five bytes before the message. A connection for each call: the
//! runtime may be another one by the next.

use std::{path::Path, pin::pin, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use cgscope_model::printable;
use h2::{RecvStream, client};
use http::{HeaderMap, Request, Response};
use prost::Message;
use tokio::net::UnixStream;

use super::{
    Failure,
    messages::{LIST_CONTAINERS, running},
    shortened,
};

/// The longest answer that is taken.
const REPLY_BYTES: usize = 16 << 20;

/// What the runtime may send before it must wait for us to take it.
const WINDOW_BYTES: u32 = 1 << 20;

/// The most bytes of its headers.
const HEADER_BYTES: u32 = 16 << 10;

/// The most bytes of its word on why it refuses.
const MESSAGE_BYTES: usize = 200;

/// gRPC's codes.
const OK: u32 = 0;
const UNIMPLEMENTED: u32 = 12;

/// The frame of gRPC: one byte for compression, four for the length.
const FRAME: usize = 5;

/// The encoded answer. The runtime is told to give up after `limit`, and need not obey.
pub(super) async fn list_containers(socket: &Path, limit: Duration) -> Result<Bytes, Failure> {
    let reach = |error| Failure::Connect { socket: socket.into(), error };
    let stream = UnixStream::connect(socket).await.map_err(reach)?;
    let broken = |error: h2::Error| broken(socket, &error);
    let (sender, connection) = client::Builder::new()
        .enable_push(false)
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES)
        .handshake(stream)
        .await
        .map_err(broken)?;
    let mut reply = pin!(converse(socket, sender, limit));
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        // Polled for the frames that it passes on. Where the runtime closes it, what came before is still to be had.
        _ = connection => reply.await,
    }
}

async fn converse(
    socket: &Path,
    sender: client::SendRequest<Bytes>,
    limit: Duration,
) -> Result<Bytes, Failure> {
    let broken = |error: h2::Error| broken(socket, &error);
    let mut sender = sender.ready().await.map_err(broken)?;
    let (response, mut body) = sender.send_request(request(limit), false).map_err(broken)?;
    body.send_data(framed(&running()), true).map_err(broken)?;
    let (head, mut body) = response.await.map_err(broken)?.into_parts();
    accepted(socket, &Response::from_parts(head, ()))?;
    let reply = received(socket, &mut body).await?;
    let trailers = body.trailers().await.map_err(broken)?.unwrap_or_default();
    status(socket, &trailers)?;
    unframed(socket, reply)
}

fn request(limit: Duration) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::uri::Builder::new()
        .scheme("http")
        // Every server of gRPC takes this name on a Unix socket.
        .authority("localhost")
        .path_and_query(LIST_CONTAINERS)
        .build()
        .unwrap_or_default();
    let headers = request.headers_mut();
    let fixed = http::HeaderValue::from_static;
    headers.insert(http::header::CONTENT_TYPE, fixed("application/grpc"));
    headers.insert(http::header::TE, fixed("trailers"));
    headers.insert(http::header::USER_AGENT, fixed(concat!("cgscope/", env!("CARGO_PKG_VERSION"))));
    if let Ok(limit) = format!("{}m", limit.as_millis()).try_into() {
        headers.insert("grpc-timeout", limit);
    }
    request
}

fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// A status in the headers is a refusal without a body.
fn accepted(socket: &Path, head: &Response<()>) -> Result<(), Failure> {
    if head.headers().contains_key("grpc-status") {
        status(socket, head.headers())?;
    }
    if head.status() != http::StatusCode::OK {
        return Err(Failure::Broken {
            socket: socket.into(),
            why: format!("status {} of HTTP", head.status()),
        });
    }
    Ok(())
}

async fn received(socket: &Path, body: &mut RecvStream) -> Result<BytesMut, Failure> {
    let mut reply = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|error| broken(socket, &error))?;
        if reply.len() + piece.len() > FRAME + REPLY_BYTES {
            return Err(Failure::TooLarge { socket: socket.into(), most: REPLY_BYTES });
        }
        reply.put_slice(&piece);
        body.flow_control().release_capacity(piece.len()).map_err(|error| broken(socket, &error))?;
    }
    Ok(reply)
}

fn status(socket: &Path, headers: &HeaderMap) -> Result<(), Failure> {
    let text = |key: &str| headers.get(key).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let code = text("grpc-status").and_then(|code| code.parse().ok());
    match code {
        Some(OK) => Ok(()),
        Some(UNIMPLEMENTED) => Err(Failure::Unknown(socket.into())),
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default();
            let message = printable(shortened(&message, MESSAGE_BYTES)).to_string();
            Err(Failure::Refused { socket: socket.into(), code, message })
        }
        None => Err(Failure::Broken { socket: socket.into(), why: "no status of gRPC".into() }),
    }
}

fn unframed(socket: &Path, reply: BytesMut) -> Result<Bytes, Failure> {
    let mut reply = reply.freeze();
    match reply.first_chunk::<FRAME>() {
        Some([0, length @ ..]) if u32::from_be_bytes(*length) as usize == reply.len() - FRAME => {
            Ok(reply.split_off(FRAME))
        }
        _ => Err(Failure::Garbage(socket.into())),
    }
}

fn broken(socket: &Path, error: &h2::Error) -> Failure {
    Failure::Broken { socket: socket.into(), why: error.to_string() }
}
