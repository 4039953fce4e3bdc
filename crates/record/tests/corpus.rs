//! Reads every recording in the fuzzer's corpus, with the same code as the fuzzer.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../../fuzz/src/recordings.rs"]
mod recordings;

#[test]
fn every_saved_recording_is_read() {
    let inputs = corpus::inputs("reader");
    for input in &inputs {
        recordings::read(&recordings::recording(input));
    }
    assert!(inputs.len() > 1_000, "{}", inputs.len());
}
