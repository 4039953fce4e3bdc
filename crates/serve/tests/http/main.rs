//! The HTTP server as its clients meet it: real sockets, one conversation a test.

mod access;
mod binding;
mod conversation;
mod hostile;
mod support;
mod tls;
