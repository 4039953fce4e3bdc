//! The names in the reply of one runtime, and in the list of containers that Podman and CRI-O store as a file: Podman runs no daemon that
//! could be asked.

use std::{collections::HashMap, fs::File, io::Read, path::Path, sync::Arc};

use cgscope_model::printable;
use serde::Deserialize;

use crate::{call::Failure, shortened};

/// Maximum number of containers that are kept: about ten times the number on a large node.
const CONTAINERS: usize = 10_000;

/// Maximum length of a name, bytes: the limit of Kubernetes.
const NAME_BYTES: usize = 253;

/// Maximum length of a container id, bytes. Ids in cgroup paths have 64.
const ID_BYTES: usize = 128;

/// Maximum length of a reply, bytes.
pub(crate) const REPLY_BYTES: usize = 16 << 20;

/// A container or a pod whose names are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A container, by its id, as in its cgroup's path: 64 hexadecimal digits.
    Container(String),
    /// A pod, by its uid, with dashes. Used for the cgroup around a pod's containers.
    Pod(String),
}

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
#[derive(Debug, Default)]
pub(crate) struct RuntimeNames {
    pub(crate) by_container: HashMap<String, ContainerNames>,
    /// The names of each pod, by the pod's uid; without a container's name.
    by_pod: HashMap<Arc<str>, ContainerNames>,
    /// Number of containers that were dropped, because there were too many or their fields were too long.
    pub(crate) left_out: u64,
}

impl RuntimeNames {
    pub(crate) fn get(&self, wanted: &Wanted) -> Option<&ContainerNames> {
        match wanted {
            Wanted::Container(id) => self.by_container.get(id),
            Wanted::Pod(uid) => self.by_pod.get(&**uid),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_container.len() >= CONTAINERS
    }

    /// Keeps the names of a container: its own name, and those that the kubelet gives as labels.
    pub(crate) fn keep(&mut self, id: String, own: Option<&str>, labels: &HashMap<String, String>) {
        if id.is_empty() || id.len() > ID_BYTES || self.is_full() {
            self.left_out += 1;
            return;
        }
        let label = |key: &str| labels.get(key).and_then(|value| name(value));
        let names = ContainerNames {
            container: label("io.kubernetes.container.name").or(own.and_then(name)),
            pod: label("io.kubernetes.pod.name"),
            namespace: label("io.kubernetes.pod.namespace"),
            pod_uid: label("io.kubernetes.pod.uid"),
        };
        if let ContainerNames { pod: Some(_), namespace: Some(_), pod_uid: Some(uid), .. } = &names {
            self.by_pod.insert(uid.clone(), ContainerNames { container: None, ..names.clone() });
        }
        self.by_container.insert(id, names);
    }
}

/// Returns a printable name of limited length, or `None` if the text is empty.
fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| printable(shortened(text, NAME_BYTES)))
}

#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

pub(crate) fn list_stored(path: &Path) -> Result<RuntimeNames, Failure> {
    let mut text = Vec::new();
    // A pipe would never be opened.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Garbage);
    }
    let file = File::open(path).map_err(Failure::Connect)?;
    file.take(REPLY_BYTES as u64 + 1).read_to_end(&mut text).map_err(Failure::Connect)?;
    if text.len() > REPLY_BYTES {
        return Err(Failure::TooLarge(REPLY_BYTES));
    }
    let stored: Vec<Stored> = serde_json::from_slice(&text).map_err(|_| Failure::Garbage)?;
    let mut names = RuntimeNames::default();
    for container in stored {
        names.keep(container.id, container.names.first().map(String::as_str), &HashMap::new());
    }
    Ok(names)
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
        assert_eq!((&names.container, &names.pod_uid), (&None, &None));
    }

    #[test]
    fn containers_beyond_a_limit_are_counted_and_dropped() {
        let mut names = RuntimeNames::default();
        (0..CONTAINERS + 5).for_each(|n| names.keep(n.to_string(), None, &HashMap::new()));
        assert_eq!((names.by_container.len(), names.left_out), (CONTAINERS, 5));
        for id in [String::new(), "i".repeat(200)] {
            let names = kept(&id, Some("a"), &[]);
            assert_eq!((names.by_container.len(), names.left_out), (0, 1));
        }
    }
}

#[cfg(test)]
mod storage_tests {
    use super::*;
    use crate::Wanted;

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
        assert!(matches!(list_stored(&path), Err(Failure::TooLarge(_))));
        assert!(matches!(list_stored(&folder.path().join("none")), Err(Failure::Connect(_))));
        assert!(matches!(list_stored(folder.path()), Err(Failure::Garbage)));
    }
}
