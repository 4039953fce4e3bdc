//! Requests the names of containers and pods from the container runtimes of this host. This crate never contacts the API server
//! of Kubernetes.
//!
//! The path of a cgroup contains the ids of the container and the pod, but only the runtime knows the names that people use. This
//! crate makes each name printable, and limits the number and the length of names. [`Lookup`] finds the names for the cgroups of
//! a sample.

mod call;
mod lookup;

use std::path::{Path, PathBuf};
use std::{collections::HashSet, mem::discriminant, sync::Arc, time::Duration};

use cgscope_model::ContainerReading;
use tokio::time::{Instant, timeout};

use crate::call::{Failure, RuntimeNames};
pub use call::Wanted;
pub use lookup::Lookup;

/// Where runtimes listen or store names: the CRI sockets of containerd, CRI-O, Docker with cri-dockerd, k3s and k0s; the API
/// socket of Docker; the storage of Podman, which has no daemon.
pub const PLACES: [&str; 7] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/run/docker.sock",
    "/var/lib/containers/storage/overlay-containers/containers.json",
];

/// The time limit of a refresh, and the pauses after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPace {
    /// Maximum duration of one call of [`Runtimes::refresh`].
    pub deadline: Duration,
    /// Pause after the first failure. The pause doubles after each further failure.
    pub first_retry: Duration,
    /// Maximum pause after a failure.
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

/// A client of all container runtimes of this host. Each runtime can stop and restart at any time.
pub struct Runtimes {
    runtimes: Vec<Runtime>,
    pace: RetryPace,
}

struct Runtime {
    place: PathBuf,
    /// The names in the last valid reply of this runtime.
    names: Arc<RuntimeNames>,
    has_answered: bool,
    trouble: Option<Trouble>,
}

struct Trouble {
    failure: Failure,
    retry: Duration,
    retry_at: Instant,
}

impl Runtimes {
    /// Creates a client from the key `runtime`: `auto`, the path of a socket (also with `unix://`), or empty.
    pub fn new(config: &str) -> Result<Self, String> {
        let places = match config {
            "" => Vec::new(),
            "auto" => PLACES.map(PathBuf::from).into(),
            path => {
                let path = path.strip_prefix("unix://").unwrap_or(path);
                if !path.starts_with('/') {
                    return Err(format!(
                        "the container runtime {config:?} is not an absolute path, so containers have no names; give \"auto\", \
                         the path of a socket, or \"\" for none"
                    ));
                }
                vec![path.into()]
            }
        };
        Ok(Self::at(places, RetryPace::default()))
    }

    /// Creates a client of the runtimes at these places.
    pub fn at(places: Vec<PathBuf>, pace: RetryPace) -> Self {
        let runtime = |place| Runtime { place, names: Arc::default(), has_answered: false, trouble: None };
        Self { runtimes: places.into_iter().map(runtime).collect(), pace }
    }

    /// Iterates over the places where this client looks for runtimes.
    pub fn places(&self) -> impl Iterator<Item = &Path> {
        self.runtimes.iter().map(|runtime| runtime.place.as_path())
    }

    /// Returns whether a refresh can find a runtime: one of the places exists, or the user named a place.
    fn are_expected(&self) -> bool {
        self.runtimes.len() == 1 || self.places().any(Path::exists)
    }

    /// Requests the list of containers from each runtime. All requests together take no longer than [`RetryPace::deadline`]. If a
    /// runtime fails, the client keeps the names that it knows, and pauses before the next request to this runtime. Returns
    /// sentences for the log: when a runtime begins to fail, fails in another way, or answers again.
    pub async fn refresh(&mut self) -> Option<String> {
        let (now, pace, is_only) = (Instant::now(), self.pace, self.runtimes.len() == 1);
        let is_due = |runtime: &&mut Runtime| {
            let is_over = runtime.trouble.as_ref().is_none_or(|trouble| now >= trouble.retry_at);
            // Most hosts have no containers. So it is no failure if none of the default places exists.
            is_over && (is_only || runtime.place.exists())
        };
        let mut due: Vec<&mut Runtime> = self.runtimes.iter_mut().filter(is_due).collect();
        // Each runtime gets an equal part of the time, so that a runtime that hangs does not use up the time of the others.
        let limit = pace.deadline / due.len().max(1) as u32;
        let mut said = Vec::new();
        for runtime in &mut due {
            let answer = if runtime.place.exists() { runtime.ask(limit).await } else { Err(Failure::Absent) };
            let sentence = runtime.take(answer, pace);
            let is_no_cri = matches!(runtime.trouble, Some(Trouble { failure: Failure::Unknown, .. }));
            said.extend(sentence.map(|sentence| (is_no_cri, sentence)));
        }
        // On most hosts, Docker's containerd has its CRI turned off. This is no problem if Docker itself reports the containers.
        let has_answered = self.runtimes.iter().any(|runtime| runtime.has_answered);
        said.retain(|(is_no_cri, _)| !(*is_no_cri && has_answered));
        said.into_iter().map(|(_, sentence)| sentence).reduce(|all, sentence| format!("{all}; {sentence}"))
    }

    /// Returns all names that are known now.
    pub fn listing(&self) -> Listing {
        Listing(self.runtimes.iter().map(|runtime| runtime.names.clone()).collect())
    }
}

impl Runtime {
    /// Stores the names, or records the failure. Returns a sentence if the runtime answers again, or fails in a new way.
    fn take(&mut self, answer: Result<RuntimeNames, Failure>, pace: RetryPace) -> Option<String> {
        let before = self.trouble.take();
        let failure = match answer {
            Ok(names) => {
                (self.names, self.has_answered) = (Arc::new(names), true);
                let place = self.place.display();
                let sentence = format!(
                    "the container runtime at {place} answers: its pods and containers now have names"
                );
                return before.map(|_| sentence);
            }
            Err(failure) => failure,
        };
        self.has_answered = false;
        let retry = before.as_ref().map_or(pace.first_retry, |trouble| trouble.retry * 2);
        let retry = retry.min(pace.longest_retry);
        let is_new = before.is_none_or(|trouble| discriminant(&trouble.failure) != discriminant(&failure));
        let sentence = is_new.then(|| failure.sentence(&self.place));
        self.trouble = Some(Trouble { failure, retry, retry_at: Instant::now() + retry });
        sentence
    }

    async fn ask(&self, limit: Duration) -> Result<RuntimeNames, Failure> {
        let name = self.place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let asked = async {
            match name {
                "docker.sock" | "podman.sock" => call::list_from_docker(&self.place).await,
                _ if name.ends_with(".json") => call::list_stored(&self.place),
                _ => call::list_containers(&self.place, limit).await,
            }
        };
        timeout(limit, asked).await.unwrap_or(Err(Failure::Late(limit)))
    }
}

/// All names that the runtimes reported.
#[derive(Clone, Debug, Default)]
pub struct Listing(Vec<Arc<RuntimeNames>>);

impl Listing {
    /// Returns the names of a container or a pod. The field `cgroup_id` is 0, because the runtimes do not know the cgroup.
    pub fn names(&self, wanted: &Wanted) -> Option<&ContainerReading> {
        self.0.iter().find_map(|names| names.get(wanted))
    }

    /// Returns the number of containers that have a name. A container that two runtimes name counts once.
    pub fn named(&self) -> usize {
        let ids: HashSet<&String> = self.0.iter().flat_map(|names| names.by_container.keys()).collect();
        ids.len()
    }
}

/// Returns the text, cut at a character boundary to at most `most` bytes.
fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
