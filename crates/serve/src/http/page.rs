//! The pages that clients ask for, made by the caller, and how many bytes of them are held.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;

/// Makes pages.
pub trait Pages: Send + Sync + 'static {
    /// Which page: all requests of a kind get the same one. There are few kinds, however clients ask.
    type Kind: Clone + PartialEq + Send + Sync + 'static;

    /// Which page answers a request with this header `Accept`. Several are joined with commas; `None`: absent, or not ASCII.
    fn kind(&self, accept: Option<&str>) -> Self::Kind;

    /// Makes a page.
    fn make(&self, kind: Self::Kind) -> impl Future<Output = Page> + Send;
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status of HTTP, from 200 to 599.
    pub status: u16,
    /// With its parameters, as `text/plain; version=0.0.4; charset=utf-8`.
    pub content_type: Cow<'static, str>,
    /// Not compressed.
    pub body: Bytes,
}

impl Page {
    /// A page with status 200.
    pub fn ok(content_type: impl Into<Cow<'static, str>>, body: impl Into<Bytes>) -> Self {
        Self { status: 200, content_type: content_type.into(), body: body.into() }
    }

    pub(super) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8".into(), body: body.into() }
    }
}

/// Bytes of pages that are held: by those who made them, and by clients that have not read all of theirs.
#[derive(Clone, Default)]
pub(super) struct HeldBytes(Arc<AtomicUsize>);

/// A body that is counted until its last part is dropped.
struct Body {
    bytes: Bytes,
    held: HeldBytes,
}

impl HeldBytes {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// The same body, counted.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_counted_until_the_last_piece_of_it_is_gone() {
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
