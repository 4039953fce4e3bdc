//! The messages of `runtime/v1/api.proto` (package `runtime.v1`): our request, and those fields of the reply that we read.

use std::collections::HashMap;

use prost::{Message, decode_length_delimiter};

use crate::{call::Failure, names::RuntimeNames};

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

/// Returns the names in an encoded `ListContainersResponse`.
pub(super) fn names(reply: &[u8]) -> Result<RuntimeNames, Failure> {
    let mut names = RuntimeNames::default();
    for encoded in containers(reply) {
        let encoded = encoded.ok_or(Failure::Garbage)?;
        if encoded.len() > CONTAINER_BYTES {
            continue;
        }
        let container = Container::decode(encoded).map_err(|_| Failure::Garbage)?;
        let own = container.metadata.as_ref().map(|metadata| &*metadata.name);
        names.keep(container.id, own, &container.labels);
    }
    Ok(names)
}

/// Iterates over the encoded containers of a `ListContainersResponse`. If the rest of the message is invalid, the last item is
/// `None`. We do not decode the whole list with prost, because that needs too much memory: a million empty containers take 2 MB
/// encoded, and hundreds of MB decoded.
pub(super) fn containers(mut reply: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        while !reply.is_empty() {
            match field(&mut reply) {
                Some((1, container @ Some(_))) => return Some(container),
                // A field of a later version of the CRI.
                Some(_) => {}
                None => {
                    reply = &[];
                    return Some(None);
                }
            }
        }
        None
    })
}

/// Returns the number of the next field, and the bytes of a length-delimited field. Advances `rest` past the field.
fn field<'a>(rest: &mut &'a [u8]) -> Option<(usize, Option<&'a [u8]>)> {
    // Keys and varint values are encoded in the same way as lengths.
    let key = decode_length_delimiter(&mut *rest).ok()?;
    let bytes = match key & 7 {
        0 => decode_length_delimiter(&mut *rest).ok().map(|_| None)?,
        1 => rest.split_off(..8).map(|_| None)?,
        2 => {
            let length = decode_length_delimiter(&mut *rest).ok()?;
            Some(rest.split_off(..length)?)
        }
        5 => rest.split_off(..4).map(|_| None)?,
        _ => return None,
    };
    Some((key >> 3, bytes))
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
        let whole = Whole {
            containers: vec![container("a"), Container::default(), container("b")],
            a: 1,
            b: 2,
            c: u64::MAX,
            d: "d".into(),
        };
        let bytes = whole.encode_to_vec();
        let found: Vec<_> =
            containers(&bytes).map(|found| Container::decode(found.unwrap()).unwrap()).collect();
        assert_eq!(found, whole.containers);
        for cut in 1..bytes.len() {
            assert!(containers(&bytes[..cut]).count() <= 4, "{cut}");
        }
    }

    #[test]
    fn an_invalid_reply_is_an_error() {
        for bytes in
            [&[0x0a][..], &[0x0a, 5, 1], &[0x0b], &[0xff; 11], &[9, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]]
        {
            assert_eq!(containers(bytes).collect::<Vec<_>>(), [None], "{bytes:x?}");
        }
        assert_eq!(containers(&[]).count(), 0);
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
            let found = containers(&bytes).count();
            prop_assert!(found <= bytes.len());
        }
    }
}
