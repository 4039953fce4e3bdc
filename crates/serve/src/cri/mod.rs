//! Names of containers, from their runtime's CRI socket: the one that the kubelet of this node uses, and never an API server.
//!
//! A path of a cgroup has the container's id and the pod's uid. Only the runtime knows what people call them.

mod call;
mod messages;
mod names;

use std::{
    mem::discriminant,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, timeout};

pub use names::ContainerNames;

use call::Failure;
use names::RuntimeNames;

/// Where runtimes have their sockets: containerd, CRI-O, Docker with cri-dockerd, and the containerd of k3s and k0s.
pub const SOCKETS: [&str; 5] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
];

/// How long a runtime may take, and when it is asked again after it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPace {
    /// For one [`Runtime::refresh`].
    pub deadline: Duration,
    /// After the first failure; twice as long after every further one.
    pub first_retry: Duration,
    /// But not longer than this.
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

/// A container runtime that may be there, may go, and may come back.
pub struct Runtime {
    /// In the order in which they are asked. Empty: none is.
    sockets: Vec<PathBuf>,
    pace: RetryPace,
    names: RuntimeNames,
    trouble: Option<Trouble>,
}

/// Since it failed.
struct Trouble {
    failure: Failure,
    retry: Duration,
    retry_at: Instant,
}

impl Runtime {
    /// From the configuration's `runtime`: `auto`, the path of a socket (also with `unix://` before it), or nothing.
    ///
    /// # Errors
    /// It names something else: a sentence.
    pub fn new(config: &str) -> Result<Self, String> {
        let sockets = match config {
            "" => Vec::new(),
            "auto" => SOCKETS.map(PathBuf::from).into(),
            path => {
                let path = path.strip_prefix("unix://").unwrap_or(path);
                if !path.starts_with('/') {
                    return Err(format!(
                        "`runtime` in [containers] is {config:?}, which is no absolute path, so no runtime can be asked for names; \
                         set it to \"auto\", to the path of a CRI socket, or to \"\" for none"
                    ));
                }
                vec![path.into()]
            }
        };
        Ok(Self::any_of(sockets, RetryPace::default()))
    }

    /// The first of these sockets that is there and answers.
    pub fn any_of(sockets: Vec<PathBuf>, pace: RetryPace) -> Self {
        Self { sockets, pace, names: RuntimeNames::default(), trouble: None }
    }

    /// Where it may be asked.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Asks the runtime for its containers. Where it does not answer, the names known stay, and it is asked again later: a call
    /// before that returns at once. Takes no longer than [`RetryPace::deadline`], and never fails: what is to be said about it, once,
    /// is returned as a sentence for the log.
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

    /// What people call this container. Its id as in the path of its cgroup: 64 hexadecimal digits.
    pub fn names(&self, container_id: &str) -> Option<&ContainerNames> {
        self.names.by_container.get(container_id)
    }

    /// What people call this pod, by its uid, with the dashes that it has: for the cgroup around a pod's containers.
    pub fn pod(&self, pod_uid: &str) -> Option<&ContainerNames> {
        self.names.by_pod.get(pod_uid)
    }

    /// How many containers of the last answer are named.
    pub fn named(&self) -> usize {
        self.names.by_container.len()
    }

    /// How many containers of the last answer are not named, because there were too many or what was told of them was too long.
    pub fn left_out(&self) -> u64 {
        self.names.left_out
    }

    /// The names, or the first failure with its socket.
    async fn ask(&mut self) -> Result<RuntimeNames, (PathBuf, Failure)> {
        let existing: Vec<usize> = (0..self.sockets.len()).filter(|at| self.sockets[*at].exists()).collect();
        let mut first = None;
        for at in existing.iter().copied() {
            let socket = &self.sockets[at];
            // One that hangs leaves the others their share of the time.
            let limit = self.pace.deadline / existing.len() as u32;
            let reply = timeout(limit, call::list_containers(socket, limit)).await;
            let reply = reply.unwrap_or(Err(Failure::Late(limit)));
            match reply.and_then(|reply| RuntimeNames::from_reply(&reply).map_err(|_| Failure::Garbage)) {
                Ok(names) => {
                    // The next time, it is the first that is asked.
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
        // Most hosts have no Kubernetes: an absent socket that nobody named is not worth a line.
        let is_expected = matches!(failure, Failure::Absent) && self.sockets.len() > 1;
        let sentence = (is_new && !is_expected).then(|| failure.sentence(socket));
        self.trouble = Some(Trouble { failure, retry, retry_at: Instant::now() + retry });
        sentence
    }

    fn back(&self) -> String {
        let socket = self.sockets.first().map(|path| path.display().to_string()).unwrap_or_default();
        format!("the container runtime at {socket} answers: pods, namespaces and containers are named")
    }
}

/// The text, cut to at most this many bytes.
fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
