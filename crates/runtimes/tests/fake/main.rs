//! Tests of container names with fake runtimes on Unix sockets. The fake runtimes are gRPC servers with the CRI, and HTTP servers
//! with Docker's API.

mod docker;
mod names;
mod runtime;
mod trouble;
