//! Tests of the HTTP server from the view of a client, with real sockets.

mod access;
mod binding;
mod conversation;
mod hostile;
mod support;
mod tls;
