//! Tests of container names, with fake runtimes: each is a gRPC server on a Unix socket.

mod names;
mod runtime;
mod trouble;
