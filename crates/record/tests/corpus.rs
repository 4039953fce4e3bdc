//! Reads every recording in the fuzzer's corpus, with the same code as the fuzzer.

#[path = "../../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../../fuzz/src/recordings.rs"]
mod recordings;

use std::{fs, path::Path};

#[test]
fn every_saved_recording_is_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/reader");
    let mut read = 0;
    for file in fs::read_dir(corpus).unwrap() {
        recordings::read(&recordings::recording(&fs::read(file.unwrap().path()).unwrap()));
        read += 1;
    }
    assert!(read > 1_000, "{read}");
}
