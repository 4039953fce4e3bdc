//! Tests of container names, with fake runtimes on Unix sockets: gRPC servers with the CRI, and HTTP servers with the API of Docker.

mod docker;
mod names;
mod runtime;
mod trouble;
