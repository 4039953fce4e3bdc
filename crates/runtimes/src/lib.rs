//! Names of containers and pods, from the container runtimes of this host. An API server is never contacted.
//!
//! A cgroup's path contains the container's id and the pod's uid. Only the runtime knows the names that people use. The names
//! that are kept are printable, and limited in number and length. [`Lookup`] finds those of a sample's cgroups.

mod call;
mod docker;
mod failure;
mod lookup;
mod messages;
mod names;
mod storage;

use std::{
    collections::HashSet,
    mem::discriminant,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, timeout};

use failure::Failure;
pub use lookup::Lookup;
use names::RuntimeNames;
pub use names::{ContainerNames, Wanted};

/// Where runtimes listen or store names: the CRI of containerd, CRI-O, Docker with cri-dockerd, k3s and k0s; the API of Docker;
/// the storage of Podman, which runs no daemon.
pub const PLACES: [&str; 7] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/run/docker.sock",
    "/var/lib/containers/storage/overlay-containers/containers.json",
];

/// Time limit of a refresh, and the pauses after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPace {
    /// Maximum duration of one [`Runtimes::refresh`].
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

/// A client of all container runtimes of this host. Each can stop and restart at any time.
pub struct Runtimes {
    runtimes: Vec<Runtime>,
    pace: RetryPace,
    trouble: Option<Trouble>,
}

struct Runtime {
    place: PathBuf,
    /// The names in its last reply.
    names: Arc<RuntimeNames>,
}

struct Trouble {
    failure: Failure,
    retry: Duration,
    retry_at: Instant,
}

impl Runtimes {
    /// Creates a client from the configuration's `runtime`: `auto`, the path of a socket (optionally after `unix://`), or empty
    /// for none. The error is a sentence.
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
        let runtime = |place| Runtime { place, names: Arc::default() };
        Self { runtimes: places.into_iter().map(runtime).collect(), pace, trouble: None }
    }

    /// Iterates over the places that are tried.
    pub fn places(&self) -> impl Iterator<Item = &Path> {
        self.runtimes.iter().map(|runtime| runtime.place.as_path())
    }

    /// Whether there is a runtime to ask: one exists, or the user named one.
    fn are_expected(&self) -> bool {
        self.runtimes.len() == 1 || self.places().any(Path::exists)
    }

    /// Requests the lists of containers, for at most [`RetryPace::deadline`]. The known names of a runtime that fails stay. If no
    /// runtime answers, calls return at once until the pause is over. Returns a sentence for the log when the state changes.
    pub async fn refresh(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.runtimes.is_empty() || self.trouble.as_ref().is_some_and(|trouble| now < trouble.retry_at) {
            return None;
        }
        match self.ask().await {
            Ok(()) => self
                .trouble
                .take()
                .map(|_| "a container runtime answers: pods and containers now have names".into()),
            Err((place, failure)) => self.failed(&place, failure),
        }
    }

    /// Returns the names that are known now.
    pub fn listing(&self) -> Listing {
        Listing(self.runtimes.iter().map(|runtime| runtime.names.clone()).collect())
    }

    /// Asks each runtime. The error is the first failure and its place, if none answers.
    async fn ask(&mut self) -> Result<(), (PathBuf, Failure)> {
        let first = self.runtimes[0].place.clone();
        let existing = || self.runtimes.iter().filter(|runtime| runtime.place.exists()).count();
        // The time is divided, so that a runtime that hangs does not use up the time of the others.
        let limit = self.pace.deadline / existing().max(1) as u32;
        let (mut has_answered, mut failed) = (false, None);
        for runtime in self.runtimes.iter_mut().filter(|runtime| runtime.place.exists()) {
            match runtime.ask(limit).await {
                Ok(names) => (runtime.names, has_answered) = (Arc::new(names), true),
                Err(failure) => failed = failed.or_else(|| Some((runtime.place.clone(), failure))),
            }
        }
        if has_answered { Ok(()) } else { Err(failed.unwrap_or((first, Failure::Absent))) }
    }

    fn failed(&mut self, place: &Path, failure: Failure) -> Option<String> {
        let before = self.trouble.take();
        let retry = before.as_ref().map_or(self.pace.first_retry, |trouble| trouble.retry * 2);
        let retry = retry.min(self.pace.longest_retry);
        let is_new = before.is_none_or(|trouble| discriminant(&trouble.failure) != discriminant(&failure));
        // Most hosts have no containers: do not log that none of the usual places exists.
        let is_expected = matches!(failure, Failure::Absent) && self.runtimes.len() > 1;
        let sentence = (is_new && !is_expected).then(|| failure.sentence(place));
        self.trouble = Some(Trouble { failure, retry, retry_at: Instant::now() + retry });
        sentence
    }
}

impl Runtime {
    async fn ask(&self, limit: Duration) -> Result<RuntimeNames, Failure> {
        let name = self.place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let asked = async {
            match name {
                "docker.sock" | "podman.sock" => docker::list(&self.place).await,
                _ if name.ends_with(".json") => storage::list(&self.place),
                _ => {
                    call::list_containers(&self.place, limit).await.and_then(|reply| messages::names(&reply))
                }
            }
        };
        timeout(limit, asked).await.unwrap_or(Err(Failure::Late(limit)))
    }
}

/// The names that the runtimes reported.
#[derive(Clone, Debug, Default)]
pub struct Listing(Vec<Arc<RuntimeNames>>);

impl Listing {
    /// Returns the names of a container or a pod.
    pub fn names(&self, wanted: &Wanted) -> Option<&ContainerNames> {
        self.0.iter().find_map(|names| names.get(wanted))
    }

    /// Returns the number of named containers. CRI-O's are also in the stored list.
    pub fn named(&self) -> usize {
        let ids: HashSet<&String> = self.0.iter().flat_map(|names| names.by_container.keys()).collect();
        ids.len()
    }

    /// Returns the number of containers that were dropped: there were too many, or their fields were too long.
    pub fn left_out(&self) -> u64 {
        self.0.iter().map(|names| names.left_out).sum()
    }
}

/// Returns the text, cut to at most `most` bytes.
fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
