//! Checks the client with each saved input of the protocol fuzzer: the client must receive what the fuzzer expects.

#[path = "../../../fuzz/src/conversation.rs"]
mod conversation;
#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/frames.rs"]
mod frames;

// The names that the build of the fuzzer uses.
use cgscope_serve::{client, protocol};
use conversation::Said;

#[test]
fn every_saved_input_is_received_as_the_fuzzer_expects() {
    let (mut by_clients, mut by_daemons, mut bytes) = (0, 0, 0);
    for input in corpus::inputs("protocol") {
        let Some(said) = Said::new(&input) else { continue };
        match said {
            Said::ByClient(_) => by_clients += 1,
            Said::ByDaemon(_) => by_daemons += 1,
        }
        bytes += said.bytes();
        said.receive();
    }
    let heard = format!("{by_clients} clients and {by_daemons} daemons sent {bytes} bytes");
    assert!(by_clients > 50 && by_daemons > 50 && bytes > 50_000, "{heard}");
}
