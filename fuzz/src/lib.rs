//! The code of the fuzz targets. The tests of the fuzzed crates run the same code on the corpus.

pub mod answers;
/// Two modules of cgscope-serve. We do not use the whole crate, because building its servers with coverage would take minutes.
#[path = "../../crates/serve/src/client.rs"]
pub mod client;
pub mod conversation;
pub mod frames;
pub mod memory;
#[path = "../../crates/serve/src/protocol.rs"]
pub mod protocol;
pub mod recordings;
