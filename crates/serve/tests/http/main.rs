//! Tests of the HTTP server with real sockets, from the client's side.

mod access;
mod binding;
mod conversation;
mod hostile;
mod support;
mod tls;
