//! The pages that clients ask for, made by the caller.

use std::borrow::Cow;

use bytes::Bytes;

/// Makes the pages that clients ask for.
pub trait Pages: Send + Sync + 'static {
    /// Which page: all requests of a kind get the same one. There are few kinds, however clients ask.
    type Kind: Clone + PartialEq + Send + Sync + 'static;

    /// Which page answers a request with this header `Accept`. Several are joined with commas; `None`: absent, or not ASCII.
    fn kind(&self, accept: Option<&str>) -> Self::Kind;

    /// Makes it.
    fn make(&self, kind: Self::Kind) -> impl Future<Output = Page> + Send;
}

/// What the client gets.
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

    /// A line of text.
    pub(super) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8".into(), body: body.into() }
    }
}
