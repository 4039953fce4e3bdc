//! Tests of the HTTP server as clients use it: real sockets, one conversation per test.

mod access;
mod binding;
mod conversation;
mod hostile;
mod support;
mod tls;
