//! Requests the list of containers from a runtime: from the CRI by one unary gRPC call (HTTP/2, by `h2`), or from the API of
//! Docker and Podman by `GET /containers/json`. Each call opens its own connection over a Unix socket, because the runtime may
//! have restarted since the last call. Podman and CRI-O also store the list in a file, which is needed because Podman has no
//! daemon that could be asked.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    path::Path,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use cgscope_model::{ContainerReading, printable};
use h2::client;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::{
    DecodeError, Message, decode_length_delimiter,
    encoding::{DecodeContext, WireType, decode_key, skip_field},
};
use serde::Deserialize;
use tokio::net::UnixStream;

use crate::shortened;

/// Maximum number of bytes that the runtime may send ahead of our reads.
const WINDOW_BYTES: u32 = 1 << 20;

/// Maximum length of the reply's headers, bytes.
const HEADER_BYTES: u32 = 16 << 10;

/// Maximum length of an error message from the runtime that we print, bytes.
const MESSAGE_BYTES: usize = 200;

/// Maximum length of one container in a reply, bytes. The kubelet writes a few thousand bytes.
const CONTAINER_BYTES: usize = 1 << 20;

/// The URL of the call. On a Unix socket, every gRPC server accepts the host name `localhost`.
const LIST_CONTAINERS: &str = "http://localhost/runtime.v1.RuntimeService/ListContainers";

/// The gRPC message of the request, which has 6 bytes. Its filter (field 1) has a state (field 2), whose value (field 1) is 1:
/// `CONTAINER_RUNNING`. Other containers have no cgroup.
const RUNNING: &[u8] = &[0, 0, 0, 0, 6, 0x0a, 4, 0x12, 2, 0x08, 1];

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
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(Bytes::from_static(RUNNING), true)?;
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
            names(message).map_err(|_| Failure::Garbage)
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
        Some(0) => Ok(()),
        // The gRPC code UNIMPLEMENTED.
        Some(12) => Err(Failure::Unknown),
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default();
            Err(Failure::Refused(code, printable(shortened(&message, MESSAGE_BYTES)).to_string()))
        }
        None => Err(Failure::Broken("no gRPC status".into())),
    }
}

// The parts of `runtime/v1/api.proto` (package `runtime.v1`) that we use.
cgscope_model::messages! {
    Container {
        "1" id: String, [string];
        "3" metadata: Option<ContainerMetadata>, [message, optional];
        "8" labels: HashMap<String, String>, [map = "string, string"];
    }
    ContainerMetadata { "1" name: String, [string]; }
}

/// Returns the names in an encoded `ListContainersResponse`, whose field 1 is the list of containers. Decodes one container at
/// a time: a million empty containers take 2 MB encoded, but hundreds of MB decoded.
fn names(mut reply: &[u8]) -> Result<RuntimeNames, DecodeError> {
    let mut names = RuntimeNames::default();
    while !reply.is_empty() {
        let (tag, wire_type) = decode_key(&mut reply)?;
        let is_container = (tag, wire_type) == (1, WireType::LengthDelimited);
        if is_container && decode_length_delimiter(reply)? <= CONTAINER_BYTES {
            let container = Container::decode_length_delimited(&mut reply)?;
            let own = container.metadata.as_ref().map(|metadata| &*metadata.name);
            names.keep(container.id, own, &container.labels);
        } else {
            // A container that is too large, or a field of a later version of the CRI.
            skip_field(wire_type, tag, &mut reply, DecodeContext::default())?;
        }
    }
    Ok(names)
}

/// The reason why a runtime returned no names. Every variant except `Absent` refers to a single socket.
#[derive(Debug)]
pub(crate) enum Failure {
    /// None of the sockets exists.
    Absent,
    /// The socket exists, but no process accepts the connection.
    Connect(io::Error),
    Late(Duration),
    /// The connection broke, or the peer does not speak HTTP or gRPC. Contains a description.
    Broken(String),
    /// The runtime does not know the call: it has no CRI, or a CRI older than version 1.
    Unknown,
    /// The runtime refused the call. Contains the gRPC code, and the runtime's message in printable characters.
    Refused(u32, String),
    TooLarge,
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
        let socket = socket.display();
        let runs = "check that the runtime runs; cgscope tries again by itself";
        let lists =
            "check that `crictl ps` or `docker ps` works with that socket; cgscope tries again by itself";
        let (why, remedy) = match self {
            Self::Absent => (
                String::new(),
                "give the runtime's socket (`runtime` in [containers], or --runtime), or \"\" if this host has no containers",
            ),
            Self::Connect(error) => (
                format!("could not be reached ({error})"),
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "add cgscope's user to the group of that socket, or set `runtime` in [containers] to \"\""
                    }
                    _ => runs,
                },
            ),
            Self::Late(limit) => (format!("did not answer within {} ms", limit.as_millis()), runs),
            Self::Broken(why) => (format!("gave no complete answer ({why})"), lists),
            Self::Unknown => (
                "does not know version 1 of the CRI".into(),
                "enable the runtime's CRI (containerd: remove `cri` from `disabled_plugins`); or update the runtime to \
                 containerd 1.6 or CRI-O 1.23; or set `runtime` in [containers] to \"\"",
            ),
            Self::Refused(code, message) => {
                (format!("refused to list its containers (code {code}: {message})"), lists)
            }
            Self::TooLarge => (format!("answered with more than {} MiB", REPLY_BYTES >> 20), lists),
            Self::Garbage => ("answered with something other than a list of containers".into(), lists),
        };
        let what = match self {
            Self::Absent => format!("no container runtime is at {socket}, so"),
            Self::Unknown => format!("the program that listens at {socket} {why}, so its"),
            _ => format!("the container runtime at {socket} {why}, so its"),
        };
        format!("{what} pods and containers have no names; {remedy}")
    }
}

/// Maximum number of containers to keep: about ten times the number on a large node.
const CONTAINERS: usize = 10_000;

/// Maximum length of a name, bytes. Kubernetes has the same limit.
const NAME_BYTES: usize = 253;

/// Maximum length of a container id, bytes. The id in a cgroup's path has 64 bytes.
const ID_BYTES: usize = 128;

/// Maximum length of a reply, bytes.
pub(crate) const REPLY_BYTES: usize = 16 << 20;

/// A container or a pod whose names are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The id of a container, as in its cgroup's path: 64 hexadecimal digits.
    Container(String),
    /// The uid of a pod, with dashes. The uid is in the name of the cgroup that contains the cgroups of the pod's containers.
    Pod(String),
}

/// The names in one reply. A reply contains no cgroups, so each `cgroup_id` is 0.
#[derive(Debug, Default)]
pub(crate) struct RuntimeNames {
    pub(crate) by_container: HashMap<String, ContainerReading>,
    /// The names of each pod, by the pod's uid. These names have no container name.
    by_pod: HashMap<Arc<str>, ContainerReading>,
}

impl RuntimeNames {
    pub(crate) fn get(&self, wanted: &Wanted) -> Option<&ContainerReading> {
        match wanted {
            Wanted::Container(id) => self.by_container.get(id),
            Wanted::Pod(uid) => self.by_pod.get(&**uid),
        }
    }

    /// Stores the names of a container: its own name, and the names in the labels that the kubelet sets. Ignores the container if
    /// there are already too many, or if its id is empty or too long.
    pub(crate) fn keep(&mut self, id: String, own: Option<&str>, labels: &HashMap<String, String>) {
        if id.is_empty() || id.len() > ID_BYTES || self.by_container.len() >= CONTAINERS {
            return;
        }
        let label = |key: &str| labels.get(key).and_then(|value| name(value));
        let names = ContainerReading {
            cgroup_id: 0,
            container: label("io.kubernetes.container.name").or(own.and_then(name)),
            pod: label("io.kubernetes.pod.name"),
            namespace: label("io.kubernetes.pod.namespace"),
        };
        if let (Some(_), Some(_), Some(uid)) = (&names.pod, &names.namespace, label("io.kubernetes.pod.uid"))
        {
            self.by_pod.insert(uid, ContainerReading { container: None, ..names.clone() });
        }
        self.by_container.insert(id, names);
    }
}

/// Returns the text as a printable name of limited length. Returns `None` if the text is empty.
fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| printable(shortened(text, NAME_BYTES)))
}

/// A container in the list of Podman or CRI-O, or in the reply of Docker. In Docker's reply, names begin with `/`. A name of the
/// form `/OTHER/ALIAS` is a link from another container.
#[derive(Deserialize)]
struct Listed {
    #[serde(alias = "Id")]
    id: String,
    #[serde(alias = "Names", default)]
    names: Vec<String>,
}

/// Returns the names in a JSON list of containers. Ignores the labels: in Docker, the user who starts a container chooses its
/// labels, and could pretend that it belongs to a pod. The names of pods come only from the CRI.
pub(crate) fn listed(json: &[u8]) -> Result<RuntimeNames, Failure> {
    let listed: Vec<Listed> = serde_json::from_slice(json).map_err(|_| Failure::Garbage)?;
    let mut names = RuntimeNames::default();
    for Listed { id, names: own } in listed {
        let mut own = own.iter().map(|name| name.trim_start_matches('/'));
        names.keep(id, own.find(|name| !name.contains('/')), &HashMap::new());
    }
    Ok(names)
}

pub(crate) fn list_stored(path: &Path) -> Result<RuntimeNames, Failure> {
    let mut text = Vec::new();
    // Opening a pipe would block until another process opens it for writing.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Garbage);
    }
    let file = File::open(path).map_err(Failure::Connect)?;
    file.take(REPLY_BYTES as u64 + 1).read_to_end(&mut text).map_err(Failure::Connect)?;
    if text.len() > REPLY_BYTES { Err(Failure::TooLarge) } else { listed(&text) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The complete message as prost decodes it. It has unknown fields between the containers.
    #[derive(Clone, PartialEq, Message)]
    struct Whole {
        #[prost(message, repeated, tag = "1")]
        containers: Vec<Container>,
        #[prost(fixed64, tag = "2")]
        a: u64,
        #[prost(fixed32, tag = "300")]
        b: u32,
        #[prost(uint64, tag = "4")]
        c: u64,
        #[prost(string, tag = "5")]
        d: String,
    }

    fn container(id: &str) -> Container {
        let labels = HashMap::from([("k".to_owned(), "v".repeat(200))]);
        Container { id: id.into(), metadata: Some(ContainerMetadata { name: "n".into() }), labels }
    }

    #[test]
    fn containers_are_found_among_unknown_fields() {
        let containers = vec![container("a"), Container::default(), container("b")];
        let whole = Whole { containers, a: 1, b: 2, c: u64::MAX, d: "d".into() };
        let names = names(&[whole.encode_to_vec(), whole.encode_to_vec()].concat()).unwrap();
        let mut ids: Vec<_> = names.by_container.into_keys().collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn an_invalid_reply_is_an_error() {
        for bytes in
            [&[0x0a][..], &[0x0a, 5, 1], &[0x0b], &[0xff; 11], &[9, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]]
        {
            assert!(names(bytes).is_err(), "{bytes:x?}");
        }
        assert!(names(&[]).is_ok_and(|names| names.by_container.is_empty()));
    }

    #[test]
    fn a_container_that_is_too_large_is_dropped() {
        let large = Container {
            labels: HashMap::from([("k".into(), "l".repeat(CONTAINER_BYTES))]),
            ..container("a")
        };
        let whole = Whole { containers: vec![large, container("b")], ..Whole::default() };
        let names = names(&whole.encode_to_vec()).unwrap();
        assert_eq!(names.by_container.len(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_or_an_endless_loop(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let found = names(&bytes).map_or(0, |names| names.by_container.len());
            prop_assert!(found <= bytes.len());
        }
    }

    fn kept(id: &str, own: Option<&str>, labels: &[(&str, &str)]) -> RuntimeNames {
        let mut names = RuntimeNames::default();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        names.keep(id.into(), own, &labels.collect());
        names
    }

    #[test]
    fn names_are_short_and_printable() {
        let long = "é".repeat(1000);
        let labels = [
            ("io.kubernetes.pod.name", "a\u{1b}[2J\nb"),
            ("io.kubernetes.pod.namespace", long.as_str()),
            ("io.kubernetes.container.name", ""),
        ];
        let names = kept("x", None, &labels);
        let names = &names.by_container["x"];
        assert_eq!(names.pod.as_deref(), Some("a\u{fffd}[2J\u{fffd}b"));
        assert_eq!(names.namespace.as_ref().unwrap().chars().count(), NAME_BYTES / 2);
        assert_eq!(names.container, None);
    }

    #[test]
    fn containers_beyond_a_limit_are_dropped() {
        let mut names = RuntimeNames::default();
        (0..CONTAINERS + 5).for_each(|n| names.keep(n.to_string(), None, &HashMap::new()));
        assert_eq!(names.by_container.len(), CONTAINERS);
        for id in [String::new(), "i".repeat(200)] {
            let names = kept(&id, Some("a"), &[]);
            assert_eq!(names.by_container.len(), 0);
        }
    }
}

#[cfg(test)]
mod storage_tests {
    use super::*;

    #[test]
    fn a_stored_list_is_read_and_a_damaged_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("containers.json");
        std::fs::write(&path, r#"[{"id":"a","names":["web","w"],"layer":"x"},{"id":"b","created":"2026"}]"#)
            .unwrap();
        let names = list_stored(&path).unwrap();
        let name = |id: &str| names.get(&Wanted::Container(id.into())).unwrap().container.clone();
        assert_eq!((name("a").as_deref(), name("b")), (Some("web"), None));
        std::fs::write(&path, "[{").unwrap();
        assert!(matches!(list_stored(&path), Err(Failure::Garbage)));
        std::fs::write(&path, " ".repeat(REPLY_BYTES + 1)).unwrap();
        assert!(matches!(list_stored(&path), Err(Failure::TooLarge)));
        assert!(matches!(list_stored(&folder.path().join("none")), Err(Failure::Connect(_))));
        assert!(matches!(list_stored(folder.path()), Err(Failure::Garbage)));
    }
}
