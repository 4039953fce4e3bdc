//! What the caller is asked for, and what it makes.

use std::borrow::Cow;

use bytes::Bytes;

/// What a client asks for, as far as the caller's page may depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Without the query: `/metrics`.
    pub path: String,
    /// The header `Accept`; several are joined with commas. None: absent, or not ASCII.
    pub accept: Option<String>,
}

/// Makes the pages that clients ask for.
pub trait Pages: Send + Sync + 'static {
    /// What tells one page from another: all requests of a kind are answered with the same. There are to be few, however many
    /// ways to ask there are.
    type Kind: Clone + PartialEq + Send + Sync + 'static;

    /// Which page answers this request.
    fn kind(&self, request: &Request) -> Self::Kind;

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
    /// As it is without compression.
    pub body: Bytes,
}

impl Page {
    /// A page that is there.
    pub fn ok(content_type: impl Into<Cow<'static, str>>, body: impl Into<Bytes>) -> Self {
        Self { status: 200, content_type: content_type.into(), body: body.into() }
    }

    /// A line of text.
    pub(super) fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8".into(), body: body.into() }
    }
}
