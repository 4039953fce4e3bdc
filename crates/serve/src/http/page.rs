//! The pages that clients request, their compression, and a count of the bytes that are held.

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::header::{ACCEPT_ENCODING, HeaderMap};

/// Makes pages.
pub trait Pages: Send + Sync + 'static {
    /// Identifies a page: all requests of a kind get the same page. There are only a few kinds, whatever clients request.
    type Kind: Clone + PartialEq + Send + Sync + 'static;

    /// Returns the kind of page for an `Accept` header. Several headers are joined with commas; `None` means absent or not ASCII.
    fn kind(&self, accept: Option<&str>) -> Self::Kind;

    /// Makes a page.
    fn make(&self, kind: Self::Kind) -> impl Future<Output = Page> + Send;

    /// For health probes. The error says in a sentence what hangs. Must not wait, and must not reveal anything about the host.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A page as the answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The HTTP status, from 200 to 599.
    pub status: u16,
    /// The content type with its parameters, for example `text/plain; version=0.0.4; charset=utf-8`.
    pub content_type: Cow<'static, str>,
    /// The uncompressed body.
    pub body: Bytes,
}

impl Page {
    /// Creates a page with status 200.
    pub fn ok(content_type: impl Into<Cow<'static, str>>, body: impl Into<Bytes>) -> Self {
        Self { status: 200, content_type: content_type.into(), body: body.into() }
    }

    pub(super) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8".into(), body: body.into() }
    }
}

/// Bytes of pages in memory: held by the code that made them, or by clients that have not read all of theirs.
#[derive(Clone, Default)]
pub(super) struct HeldBytes(Arc<AtomicUsize>);

/// A body that is counted until its last slice is dropped.
struct Body {
    bytes: Bytes,
    held: HeldBytes,
}

impl HeldBytes {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Returns the same body, counted until it is dropped.
    pub(super) fn count(&self, bytes: Bytes) -> Bytes {
        self.0.fetch_add(bytes.len(), Relaxed);
        Bytes::from_owner(Body { bytes, held: self.clone() })
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes.len(), Relaxed);
    }
}

/// Whether the client accepts gzip (RFC 9110, 12.5.3): the header names gzip or `*` with a weight other than 0.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for coding in values.flat_map(|value| value.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        });
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return !refused;
        }
        any |= name == "*" && !refused;
    }
    any
}

/// Compresses at the fastest level: metrics are so repetitive that even this level shrinks them to a tenth.
pub(super) fn gzip(body: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_counted_until_its_last_slice_is_dropped() {
        let held = HeldBytes::default();
        let mut body = held.count(Bytes::from(vec![7; 100]));
        let other = held.count(Bytes::from_static(b"abc"));
        let (piece, copy) = (body.split_to(1), body.clone());
        assert_eq!((held.bytes(), &*piece, &*other), (103, &[7][..], &b"abc"[..]));
        drop((body, copy));
        assert_eq!(held.bytes(), 103);
        drop(piece);
        assert_eq!(held.bytes(), 3);
    }
}

#[cfg(test)]
mod tests_of_gzip {
    use super::*;

    #[test]
    fn gzip_is_used_only_if_the_client_accepts_it() {
        let taken =
            |value: &str| takes_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]));
        for value in
            ["gzip", "deflate, gzip;q=1.0, *;q=0.5", "GZIP", "x-gzip", "br;q=1, *", "gzip;q=0.1", "gzip;q=x"]
        {
            assert!(taken(value), "{value}");
        }
        for value in ["", "identity", "gzip;q=0", "gzip; q=0.000", "*;q=0", "*, gzip;Q=0", "gzipped", ",;=,"]
        {
            assert!(!taken(value), "{value}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
