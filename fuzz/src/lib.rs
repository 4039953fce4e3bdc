//! What the fuzz targets do with their inputs. The tests of the crates that they are about do the same with the corpus.

/// These two of cgscope-serve by themselves: its servers with all that they are made of would take minutes to build with coverage.
#[path = "../../crates/serve/src/client.rs"]
pub mod client;
pub mod conversation;
pub mod frames;
pub mod memory;
#[path = "../../crates/serve/src/protocol.rs"]
pub mod protocol;
pub mod recordings;
