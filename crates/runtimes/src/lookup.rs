//! Finds the names for the cgroups of a sample. A thread asks the runtimes, so that samples never wait for a slow runtime.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{CgroupName, ContainerReading};

use crate::{Listing, Runtimes, Wanted};

/// How long the first sample waits for names, so that the first screen shows them.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Pauses between two requests because of the same container. There are pauses because a container's cgroup exists before the
/// runtime lists the container, and because a runtime never lists the container of a pod's sandbox.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// A function that receives the sentences of [`Runtimes::refresh`].
pub type Say = Box<dyn Fn(String) + Send>;

/// A cache of names, by cgroup. Its thread starts when a sample first has a container, and ends when this value is dropped.
pub struct Lookup {
    start: Option<(Runtimes, Say)>,
    thread: Option<(mpsc::SyncSender<()>, mpsc::Receiver<Listing>)>,
    latest: Listing,
    has_waited: bool,
    known: HashMap<u64, Known>,
}

enum Known {
    /// This cgroup belongs neither to a container nor to a pod.
    Neither,
    Unnamed {
        wanted: Wanted,
        ask_at: Instant,
        pause: Duration,
    },
    Named(ContainerReading),
}

impl Lookup {
    /// Creates a lookup that asks these runtimes.
    pub fn new(runtimes: Runtimes, say: Say) -> Self {
        let (latest, known) = (Listing::default(), HashMap::new());
        Self { start: Some((runtimes, say)), thread: None, latest, has_waited: false, known }
    }

    /// Returns the names of the containers and pods among the cgroups of a sample, which are in ascending order of id. A
    /// container that has just started may have no name yet. Only the first call waits for the runtimes, for at most 500 ms.
    pub fn name(&mut self, cgroups: &[(u64, Arc<str>)]) -> Vec<ContainerReading> {
        let now = Instant::now();
        let exists = |id: &u64| cgroups.binary_search_by_key(id, |(id, _)| *id).is_ok();
        self.known.retain(|id, _| exists(id));
        for (id, path) in cgroups {
            self.known.entry(*id).or_insert_with(|| match wanted(path) {
                Some(wanted) => Known::Unnamed { wanted, ask_at: now, pause: FIRST_PAUSE },
                None => Known::Neither,
            });
        }
        self.resolve();
        let mut is_due = false;
        for known in self.known.values_mut() {
            if let Known::Unnamed { ask_at, pause, .. } = known
                && *ask_at <= now
            {
                is_due = true;
                *ask_at = now + *pause;
                *pause = (*pause * 2).min(LONGEST_PAUSE);
            }
        }
        if is_due {
            self.request();
            if !std::mem::replace(&mut self.has_waited, true) {
                let first = self.thread.as_ref().map(|(_, replies)| replies.recv_timeout(FIRST_WAIT));
                self.latest = first.and_then(Result::ok).unwrap_or_default();
            }
            self.resolve();
        }
        let named = cgroups.iter().filter_map(|(id, _)| match self.known.get(id) {
            Some(Known::Named(reading)) => Some(reading.clone()),
            _ => None,
        });
        named.collect()
    }

    /// Assigns names from the latest reply to those cgroups that have no name yet.
    fn resolve(&mut self) {
        if let Some(latest) = self.thread.iter().flat_map(|(_, replies)| replies.try_iter()).last() {
            self.latest = latest;
        }
        for (id, known) in &mut self.known {
            let Known::Unnamed { wanted, .. } = known else { continue };
            if let Some(names) = self.latest.names(wanted) {
                *known = Known::Named(ContainerReading { cgroup_id: *id, ..names.clone() });
            }
        }
    }

    fn request(&mut self) {
        if let Some((runtimes, say)) = self.start.take_if(|(runtimes, _)| runtimes.are_expected()) {
            let (requests, requested) = mpsc::sync_channel(1);
            let (reply, replies) = mpsc::channel();
            // If the thread cannot be created, containers have no names.
            let thread = thread::Builder::new().name("names".into());
            let thread = thread.spawn(move || serve(runtimes, &say, &requested, &reply));
            self.thread = thread.ok().map(|_| (requests, replies));
        }
        // If the channel is full, the thread has not taken the previous request yet, which also serves this sample.
        self.thread.as_ref().map(|(requests, _)| requests.try_send(()));
    }
}

/// Returns the container or pod that owns this path. `None` for a rootless container: its user can choose any id.
fn wanted(path: &str) -> Option<Wanted> {
    let name = CgroupName::of(path);
    let above = CgroupName::of(path.rsplit_once('/')?.0);
    match (name.container, name.pod_uid) {
        _ if name.is_rootless => None,
        (Some(id), _) => above.container.is_none().then_some(Wanted::Container(id)),
        (None, Some(uid)) => above.pod_uid.is_none().then_some(Wanted::Pod(uid)),
        (None, None) => None,
    }
}

/// Answers requests until the sending end of the channel is dropped.
fn serve(mut runtimes: Runtimes, say: &Say, requests: &mpsc::Receiver<()>, replies: &mpsc::Sender<Listing>) {
    let Ok(waiter) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    while requests.recv().is_ok() {
        if let Some(sentence) = waiter.block_on(runtimes.refresh()) {
            say(sentence);
        }
        let _ = replies.send(runtimes.listing());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn only_the_own_cgroups_of_containers_and_pods_are_looked_up() {
        let uid = "7f3a1b2c-0d4e-4f5a-8b6c-9d0e1f2a3b4c";
        let pod = format!("/kubepods/burstable/pod{uid}");
        let rootless = format!("/user.slice/user-9.slice/user@9.service/user.slice/libpod-{ID}.scope");
        for (path, expected) in [
            (pod.clone(), Some(Wanted::Pod(uid.into()))),
            (format!("{pod}/{ID}"), Some(Wanted::Container(ID.into()))),
            (format!("{pod}/{ID}/init"), None),
            (format!("{pod}/other"), None),
            (format!("/docker/{ID}"), Some(Wanted::Container(ID.into()))),
            (rootless, None),
            // This cgroup is delegated, so its owner can choose any name for its descendants.
            (format!("/system.slice/ci.service/{pod}/{ID}"), None),
            ("/system.slice/web.service".into(), None),
            ("/kubepods".into(), None),
            ("/".into(), None),
            ("(rest)".into(), None),
        ] {
            assert_eq!(wanted(&path), expected, "{path}");
        }
    }

    #[test]
    fn without_a_runtime_nothing_is_asked_and_nothing_waits() {
        let nowhere = ["/nonexistent/a.sock", "/nonexistent/b.sock"].map(Into::into);
        let nowhere = Runtimes::at(nowhere.into(), crate::RetryPace::default());
        let mut lookup = Lookup::new(nowhere, Box::new(|sentence| panic!("{sentence}")));
        let began = Instant::now();
        assert_eq!(lookup.name(&[(5, format!("/docker/{ID}").into())]), []);
        assert!(began.elapsed() < FIRST_WAIT / 2 && lookup.thread.is_none());
    }

    #[test]
    fn the_first_sample_has_names_and_a_removed_cgroup_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("containers.json");
        let list =
            |name: &str| std::fs::write(&place, format!(r#"[{{"id":"{ID}","names":["{name}"]}}]"#)).unwrap();
        list("web");
        let runtimes = Runtimes::at(vec![place.clone()], crate::RetryPace::default());
        let mut lookup = Lookup::new(runtimes, Box::new(|sentence| panic!("{sentence}")));
        let cgroups = [(3, "/a".into()), (5, format!("/docker/{ID}").into())];
        let named = |name: &str| ContainerReading {
            cgroup_id: 5,
            container: Some(name.into()),
            ..Default::default()
        };
        assert_eq!(lookup.name(&cgroups), [named("web")]);
        list("changed");
        assert_eq!(lookup.name(&cgroups), [named("web")], "names do not change");
        assert_eq!(lookup.name(&cgroups[..1]), []);
        assert_eq!(lookup.known.len(), 1);
    }
}
