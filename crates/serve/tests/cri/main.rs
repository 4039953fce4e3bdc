//! Names of containers, from runtimes that are made up here: each a server of gRPC on a Unix socket.

mod names;
mod runtime;
mod trouble;
