//! Names of containers, from the CRI socket that this node's kubelet uses. An API server is never contacted.
//!
//! A cgroup's path contains the container's id and the pod's uid. Only the runtime knows the names that people use. The names
//! that are kept are printable, and limited in number and length.

mod call;
mod messages;

use std::{
    collections::HashMap,
    mem::discriminant,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use cgscope_model::printable;
use prost::Message;
use tokio::time::{Instant, timeout};

use call::Failure;
use messages::{Container, NotAMessage, containers};

/// Sockets of runtimes: containerd, CRI-O, Docker with cri-dockerd, and the containerd of k3s and k0s.
pub const SOCKETS: [&str; 5] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
];

/// Time limit of a refresh, and the pauses after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPace {
    /// Maximum duration of one [`Runtime::refresh`].
    pub deadline: Duration,
    /// Pause after the first failure. It doubles after each further failure.
    pub first_retry: Duration,
    /// Maximum pause.
    pub longest_retry: Duration,
}

impl Default for RetryPace {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(2),
            first_retry: Duration::from_secs(5),
            longest_retry: Duration::from_secs(300),
        }
    }
}

/// A client of the container runtime, which can stop and restart at any time.
pub struct Runtime {
    /// Sockets in the order in which they are tried.
    sockets: Vec<PathBuf>,
    pace: RetryPace,
    names: RuntimeNames,
    trouble: Option<Trouble>,
}

struct Trouble {
    failure: Failure,
    retry: Duration,
    retry_at: Instant,
}

impl Runtime {
    /// Creates a client from the configuration's `runtime`: `auto`, the path of a socket (optionally after `unix://`), or empty
    /// for none.
    pub fn new(config: &str) -> Result<Self, String> {
        let sockets = match config {
            "" => Vec::new(),
            "auto" => SOCKETS.map(PathBuf::from).into(),
            path => {
                let path = path.strip_prefix("unix://").unwrap_or(path);
                if !path.starts_with('/') {
                    return Err(format!(
                        "`runtime` in [containers] is {config:?}, which is not an absolute path, so containers have no names; \
                         set it to \"auto\", to the path of a CRI socket, or to \"\" for none"
                    ));
                }
                vec![path.into()]
            }
        };
        Ok(Self::any_of(sockets, RetryPace::default()))
    }

    /// Creates a client that uses the first of these sockets that exists and answers.
    pub fn any_of(sockets: Vec<PathBuf>, pace: RetryPace) -> Self {
        Self { sockets, pace, names: RuntimeNames::default(), trouble: None }
    }

    /// Returns the sockets that are tried.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Requests the list of containers, for at most [`RetryPace::deadline`]. After a failure the known names stay, and calls
    /// return at once until the pause is over. Returns a sentence for the log when the state changes.
    pub async fn refresh(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.sockets.is_empty() || self.trouble.as_ref().is_some_and(|trouble| now < trouble.retry_at) {
            return None;
        }
        match self.ask().await {
            Ok(names) => {
                self.names = names;
                self.trouble.take().map(|_| self.back())
            }
            Err((socket, failure)) => self.failed(&socket, failure),
        }
    }

    /// Returns the names of a container by its id, as in its cgroup's path: 64 hexadecimal digits.
    pub fn names(&self, container_id: &str) -> Option<&ContainerNames> {
        self.names.by_container.get(container_id)
    }

    /// Returns the names of a pod by its uid, with dashes. Used for the cgroup around a pod's containers.
    pub fn pod(&self, pod_uid: &str) -> Option<&ContainerNames> {
        self.names.by_pod.get(pod_uid)
    }

    /// Returns the number of named containers in the last reply.
    pub fn named(&self) -> usize {
        self.names.by_container.len()
    }

    /// Returns the number of containers in the last reply that were dropped: there were too many, or their fields were too long.
    pub fn left_out(&self) -> u64 {
        self.names.left_out
    }

    /// Returns the names, or the first failure and its socket.
    async fn ask(&mut self) -> Result<RuntimeNames, (PathBuf, Failure)> {
        let existing: Vec<usize> = (0..self.sockets.len()).filter(|at| self.sockets[*at].exists()).collect();
        let mut first = None;
        for at in existing.iter().copied() {
            let socket = &self.sockets[at];
            // The time is divided between the sockets, so that a runtime that hangs does not use up the time of the others.
            let limit = self.pace.deadline / existing.len() as u32;
            let reply = timeout(limit, call::list_containers(socket, limit)).await;
            let reply = reply.unwrap_or(Err(Failure::Late(limit)));
            match reply.and_then(|reply| RuntimeNames::from_reply(&reply).map_err(|_| Failure::Garbage)) {
                Ok(names) => {
                    // Try this socket first next time.
                    self.sockets[..=at].rotate_right(1);
                    return Ok(names);
                }
                Err(failure) => first = first.or_else(|| Some((socket.clone(), failure))),
            }
        }
        Err(first.unwrap_or_else(|| (self.sockets[0].clone(), Failure::Absent)))
    }

    fn failed(&mut self, socket: &Path, failure: Failure) -> Option<String> {
        let before = self.trouble.take();
        let retry = before.as_ref().map_or(self.pace.first_retry, |trouble| trouble.retry * 2);
        let retry = retry.min(self.pace.longest_retry);
        let is_new = before.is_none_or(|trouble| discriminant(&trouble.failure) != discriminant(&failure));
        // Most hosts have no Kubernetes: do not log that none of the default sockets exists.
        let is_expected = matches!(failure, Failure::Absent) && self.sockets.len() > 1;
        let sentence = (is_new && !is_expected).then(|| failure.sentence(socket));
        self.trouble = Some(Trouble { failure, retry, retry_at: Instant::now() + retry });
        sentence
    }

    fn back(&self) -> String {
        let socket = self.sockets.first().map(|path| path.display().to_string()).unwrap_or_default();
        format!("the container runtime at {socket} answers: metrics now name pods and containers")
    }
}

/// Maximum number of containers that are kept: about ten times the number on a large node.
const CONTAINERS: usize = 10_000;

/// Maximum length of one container in a reply, bytes. The kubelet writes a few thousand.
const CONTAINER_BYTES: usize = 1 << 20;

/// Maximum length of a name, bytes: the limit of Kubernetes.
const NAME_BYTES: usize = 253;

/// Maximum length of a container id, bytes. Ids in cgroup paths have 64.
const ID_BYTES: usize = 128;

/// The names of a container or a pod. A field is `None` if the runtime does not report it, as outside of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// The container's name in its pod; `None` for a pod.
    pub container: Option<Arc<str>>,
    /// The pod's name.
    pub pod: Option<Arc<str>>,
    /// The pod's namespace.
    pub namespace: Option<Arc<str>>,
    /// The pod's uid, as the kubelet assigned it.
    pub pod_uid: Option<Arc<str>>,
}

/// The names in one reply.
#[derive(Default)]
struct RuntimeNames {
    by_container: HashMap<String, ContainerNames>,
    /// The names of each pod, by the pod's uid; without a container's name.
    by_pod: HashMap<Arc<str>, ContainerNames>,
    /// Number of containers that were dropped, because there were too many or their fields were too long.
    left_out: u64,
}

impl RuntimeNames {
    fn from_reply(reply: &[u8]) -> Result<Self, NotAMessage> {
        let mut names = Self::default();
        for encoded in containers(reply) {
            let encoded = encoded?;
            if encoded.len() > CONTAINER_BYTES || names.by_container.len() >= CONTAINERS {
                names.left_out += 1;
                continue;
            }
            names.keep(Container::decode(encoded).map_err(|_| NotAMessage)?);
        }
        Ok(names)
    }

    fn keep(&mut self, container: Container) {
        if container.id.is_empty() || container.id.len() > ID_BYTES {
            self.left_out += 1;
            return;
        }
        let label = |key: &str| container.labels.get(key).and_then(|value| name(value));
        let own = container.metadata.as_ref().and_then(|metadata| name(&metadata.name));
        let names = ContainerNames {
            container: label("io.kubernetes.container.name").or(own),
            pod: label("io.kubernetes.pod.name"),
            namespace: label("io.kubernetes.pod.namespace"),
            pod_uid: label("io.kubernetes.pod.uid"),
        };
        if let ContainerNames { pod: Some(_), namespace: Some(_), pod_uid: Some(uid), .. } = &names {
            self.by_pod.insert(uid.clone(), ContainerNames { container: None, ..names.clone() });
        }
        self.by_container.insert(container.id, names);
    }
}

/// Returns a printable name of limited length, or `None` if the text is empty.
fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| printable(shortened(text, NAME_BYTES)))
}

/// Returns the text, cut to at most `most` bytes.
fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a reply: each container is in a field with number 1.
    fn reply(containers: &[Container]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for container in containers {
            bytes.push(0x0a);
            container.encode_length_delimited(&mut bytes).unwrap();
        }
        bytes
    }

    fn container(id: &str, labels: &[(&str, &str)]) -> Container {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Container { id: id.into(), metadata: None, labels }
    }

    #[test]
    fn names_are_short_and_printable() {
        let long = "é".repeat(1000);
        let labels = [
            ("io.kubernetes.pod.name", "a\u{1b}[2J\nb"),
            ("io.kubernetes.pod.namespace", long.as_str()),
            ("io.kubernetes.container.name", ""),
        ];
        let names = RuntimeNames::from_reply(&reply(&[container("x", &labels)])).unwrap();
        let names = &names.by_container["x"];
        assert_eq!(names.pod.as_deref(), Some("a\u{fffd}[2J\u{fffd}b"));
        assert_eq!(names.namespace.as_ref().unwrap().chars().count(), NAME_BYTES / 2);
        assert_eq!((&names.container, &names.pod_uid), (&None, &None));
    }

    #[test]
    fn containers_beyond_a_limit_are_counted_and_dropped() {
        let many: Vec<_> = (0..CONTAINERS + 5).map(|n| container(&n.to_string(), &[])).collect();
        let names = RuntimeNames::from_reply(&reply(&many)).unwrap();
        assert_eq!((names.by_container.len(), names.left_out), (CONTAINERS, 5));
        let large = "l".repeat(CONTAINER_BYTES);
        let odd = [container("a", &[("k", &large)]), container("", &[]), container(&"i".repeat(200), &[])];
        let names = RuntimeNames::from_reply(&reply(&odd)).unwrap();
        assert_eq!((names.by_container.len(), names.left_out), (0, 3));
    }
}
