//! The names in the reply of one runtime, or in the list of containers that Podman and CRI-O store in a file. The file is needed
//! because Podman has no daemon that could be asked.

use std::{collections::HashMap, fs::File, io::Read, path::Path, sync::Arc};

use cgscope_model::{ContainerReading, printable};
use serde::Deserialize;

use crate::{call::Failure, shortened};

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
    use super::*;

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
