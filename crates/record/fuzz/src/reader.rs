//! Reads whatever the fuzzer makes up, in all the ways in which a recording is read.
#![no_main]

mod memory;

use std::{io::Cursor, sync::OnceLock};

use cgscope_model::Interval;
use cgscope_record::{Header, Reader, Writer};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// What reading may take however small the file is: buffers, the tables' columns, zstd.
const AT_LEAST: usize = 4 << 20;
/// And for each byte of it. A row is some 1,500 bytes in memory, and no less than 8 in a file.
const FOR_A_BYTE: usize = 512;

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let file = match how {
        b'f' => framed(rest),
        _ => rest.to_vec(),
    };
    memory::begin();
    read(&file);
    let most = memory::most();
    assert!(most <= AT_LEAST + FOR_A_BYTE * file.len(), "{most} bytes for a file of {}", file.len());
});

fn read(file: &[u8]) {
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
    assert!(reader.ending().is_some());
    let _ = (reader.losses(), reader.skipped());
    let index = reader.index().expect("memory does not fail");
    // Frames that turn out to make no sense are in the index alone.
    assert!(index.entries().len() >= samples);
    for number in [0, index.entries().len() / 2, index.entries().len()] {
        reader.seek(&index, number).expect("memory does not fail");
        let _ = reader.next();
    }
    reader.seek(&index, 0).expect("memory does not fail");
    reader.keep_changes();
    while reader.next_without_tasks().expect("memory does not fail").is_some() {
        let _ = reader.tasks().expect("memory does not fail");
        let _ = (reader.take_new_tasks(), reader.take_gone_tasks());
    }
}

/// A recording whose frames have checksums that fit, or the fuzzer would hardly get beyond them: `input` is kind and length (u16)
/// of each, and its payload; of Samples what comes after the fixed part, not compressed.
fn framed(input: &[u8]) -> Vec<u8> {
    static START: OnceLock<Vec<u8>> = OnceLock::new();
    let start = START.get_or_init(|| {
        let mut start = Vec::new();
        Writer::create(&mut start, &Header::default()).expect("memory takes it");
        start
    });
    let mut file = start.clone();
    let mut rest = input;
    while let [kind, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (payload, next) = after.split_at(length);
        frame(&mut file, kind % 8, payload);
        rest = next;
    }
    file
}

fn frame(file: &mut Vec<u8>, kind: u8, body: &[u8]) {
    const KEY: u8 = 4;
    const DELTA: u8 = 5;
    let mut payload = Vec::new();
    if kind == KEY {
        payload.extend(b"\x8BcgsKEY\n");
    }
    if kind == KEY || kind == DELTA {
        payload.extend([1; 16]);
        payload.extend((body.len() as u32).to_le_bytes());
    }
    payload.extend(body);
    let length = (payload.len() as u32).to_le_bytes();
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&length);
    checksum.update(&[kind]);
    checksum.update(&payload);
    file.extend(length);
    file.extend(checksum.finalize().to_le_bytes());
    file.push(kind);
    file.extend(payload);
}
