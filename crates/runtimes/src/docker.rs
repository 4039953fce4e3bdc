//! The API of Docker and Podman: `GET /containers/json` over a Unix socket. Each call opens its own connection.

use std::{
    collections::HashMap,
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
use serde::Deserialize;
use tokio::net::UnixStream;

use crate::{
    call::Failure,
    names::{REPLY_BYTES, RuntimeNames},
};

/// Running containers only: just these have a cgroup. Every engine knows the path without a version.
const LIST: &str = "/containers/json";

/// A container in the reply. A name begins with `/`; the further names are those of links to the container.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

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
        // Polled to drive the connection. What arrived before the engine closes it can still be read.
        _ = connection => reply.await,
    };
    names(&reply?)
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

/// Docker lets whoever starts a container choose its labels, and none of them makes a pod: pods have their names from the CRI.
fn names(reply: &[u8]) -> Result<RuntimeNames, Failure> {
    let listed: Vec<Listed> = serde_json::from_slice(reply).map_err(|_| Failure::Garbage)?;
    let mut names = RuntimeNames::default();
    for container in listed {
        let own =
            container.names.iter().map(|name| name.trim_start_matches('/')).find(|name| !name.contains('/'));
        names.keep(container.id, own, &HashMap::new());
    }
    Ok(names)
}
