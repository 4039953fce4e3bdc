//! The messages of `runtime/v1/api.proto` (package `runtime.v1`): our request, and those fields of the reply that we read.

use std::collections::HashMap;

use prost::{
    DecodeError, Message, decode_length_delimiter,
    encoding::{DecodeContext, WireType, decode_key, skip_field},
};

use crate::names::RuntimeNames;

/// Maximum length of one container in a reply, bytes. The kubelet writes a few thousand bytes.
const CONTAINER_BYTES: usize = 1 << 20;

/// The URL of the call. On a Unix socket, every gRPC server accepts the host name `localhost`.
pub(super) const LIST_CONTAINERS: &str = "http://localhost/runtime.v1.RuntimeService/ListContainers";

/// The value `CONTAINER_RUNNING` of the enum `ContainerState`.
const RUNNING: i32 = 1;

cgscope_model::messages! {
    ListContainersRequest {
        "1" filter: Option<ContainerFilter>, [message, optional];
    }
    ContainerFilter {
        "2" state: Option<ContainerStateValue>, [message, optional];
    }
    ContainerStateValue {
        "1" state: i32, [int32];
    }
    Container {
        "1" id: String, [string];
        "3" metadata: Option<ContainerMetadata>, [message, optional];
        "8" labels: HashMap<String, String>, [map = "string, string"];
    }
    ContainerMetadata {
        "1" name: String, [string];
    }
}

/// Creates a request for the running containers. Other containers have no cgroup.
pub(super) fn running() -> ListContainersRequest {
    let filter = ContainerFilter { state: Some(ContainerStateValue { state: RUNNING }) };
    ListContainersRequest { filter: Some(filter) }
}

/// Returns the names in an encoded `ListContainersResponse`, whose field 1 is the list of containers. Decodes one container at
/// a time: a million empty containers take 2 MB encoded, but hundreds of MB decoded.
pub(super) fn names(mut reply: &[u8]) -> Result<RuntimeNames, DecodeError> {
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
}
