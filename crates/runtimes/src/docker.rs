//! The API of Docker and Podman: `GET /containers/json` over a Unix socket. Each call opens its own connection.

use std::{
    future::poll_fn,
    path::Path,
    pin::{Pin, pin},
};

use hyper::{
    Request, StatusCode,
    body::{Body, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use crate::{
    call::Failure,
    names::{REPLY_BYTES, RuntimeNames, listed},
};

/// The request for running containers. Stopped containers have no cgroup. Every engine accepts the path without a version.
const LIST: &str = "/containers/json";

pub(crate) async fn list(socket: &Path) -> Result<RuntimeNames, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(Failure::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(LIST).header(header::HOST, "localhost").body(String::new());
    let request = request.map_err(|error| Failure::Broken(error.to_string()))?;
    let mut reply = pin!(async {
        let response = sender.send_request(request).await?;
        match response.status() {
            StatusCode::OK => receive(response.into_body()).await,
            status => Err(Failure::Broken(format!("HTTP status {status}"))),
        }
    });
    let reply = tokio::select! {
        biased;
        reply = &mut reply => reply,
        // This future must be polled, because it drives the connection. If the engine closes the connection, the bytes that
        // arrived earlier can still be read.
        _ = connection => reply.await,
    };
    listed(&reply?)
}

async fn receive(mut body: Incoming) -> Result<Vec<u8>, Failure> {
    let mut reply = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(piece) = frame?.into_data() else { continue };
        if reply.len() + piece.len() > REPLY_BYTES {
            return Err(Failure::TooLarge(REPLY_BYTES));
        }
        reply.extend_from_slice(&piece);
    }
    Ok(reply)
}
