//! What is kept of a runtime's answer: bounded in number and length, and printable.

use std::{collections::HashMap, sync::Arc};

use cgscope_model::printable;
use prost::Message;

use super::{
    messages::{Container, NotAMessage, containers},
    shortened,
};

/// The most containers that are kept: some ten times what a large node has.
const CONTAINERS: usize = 10_000;

/// The most bytes of one container in an answer. The kubelet writes a few thousand.
const CONTAINER_BYTES: usize = 1 << 20;

/// The most bytes of a name: as long as Kubernetes lets one be.
const NAME_BYTES: usize = 253;

/// The most bytes of an id. Those in the paths of cgroups have 64.
const ID_BYTES: usize = 128;

/// The names of a container or a pod. `None`: the runtime does not name it, as outside of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// The container in its pod; `None` for a pod.
    pub container: Option<Arc<str>>,
    /// The pod.
    pub pod: Option<Arc<str>>,
    /// The pod's namespace.
    pub namespace: Option<Arc<str>>,
    /// The pod's uid, as the kubelet has it.
    pub pod_uid: Option<Arc<str>>,
}

/// The names in one answer.
#[derive(Default)]
pub(super) struct RuntimeNames {
    pub(super) by_container: HashMap<String, ContainerNames>,
    /// By the pod's uid; without the container.
    pub(super) by_pod: HashMap<Arc<str>, ContainerNames>,
    /// Containers that are not named, because there are too many or they are too long.
    pub(super) left_out: u64,
}

impl RuntimeNames {
    pub(super) fn from_reply(reply: &[u8]) -> Result<Self, NotAMessage> {
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

/// A name as it may be shown. None: it is empty.
fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| printable(shortened(text, NAME_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field 1 with this content.
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
    fn too_many_and_too_long_ones_are_counted_and_left_out() {
        let many: Vec<_> = (0..CONTAINERS + 5).map(|n| container(&n.to_string(), &[])).collect();
        let names = RuntimeNames::from_reply(&reply(&many)).unwrap();
        assert_eq!((names.by_container.len(), names.left_out), (CONTAINERS, 5));
        let large = "l".repeat(CONTAINER_BYTES);
        let odd = [container("a", &[("k", &large)]), container("", &[]), container(&"i".repeat(200), &[])];
        let names = RuntimeNames::from_reply(&reply(&odd)).unwrap();
        assert_eq!((names.by_container.len(), names.left_out), (0, 3));
    }
}
