//! Converts a fuzz input into a recording, and reads the recording in order, after seeks, and without tasks.

use std::io::Cursor;

use cgscope_model::Interval;
use cgscope_record::Reader;

use crate::frames::framed;

/// Converts an input into the bytes of a recording.
pub fn recording(input: &[u8]) -> Vec<u8> {
    match input.split_first() {
        Some((b'f', rest)) => framed(rest),
        Some((_, rest)) => rest.to_vec(),
        None => Vec::new(),
    }
}

/// Reads a recording.
pub fn read(file: &[u8]) {
    let Ok(mut reader) = Reader::new(Cursor::new(file)) else { return };
    let mut earlier = None;
    let mut samples = 0;
    for sample in reader.by_ref() {
        let sample = sample.expect("memory does not fail");
        if let Some(earlier) = &earlier {
            let interval = Interval::between(earlier, &sample);
            let _ = interval.total();
        }
        earlier = Some(sample);
        samples += 1;
    }
    assert!(reader.ending.as_ref().is_some());
    let _ = (reader.losses(), reader.skipped);
    let index = reader.index().expect("memory does not fail");
    // The index includes frames that the reader rejects later, when it decodes them.
    assert!(index.len() >= samples);
    for number in [0, index.len() / 2, index.len()] {
        reader.seek(&index, number).expect("memory does not fail");
        let _ = reader.next();
    }
    reader.seek(&index, 0).expect("memory does not fail");
    reader.keep_changes();
    while reader.next_without_tasks().expect("memory does not fail").is_some() {
        let _ = reader.tasks().expect("memory does not fail");
        let _ = (reader.take_new_tasks(), reader.take_exited_tasks());
    }
}
