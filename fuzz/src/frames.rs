//! Builds frames with correct checksums. With random checksums, almost no fuzz input would pass the checksum test.

use cgscope_record::{Header, Outgoing};

const KEY: u8 = 4;
const DELTA: u8 = 5;

/// Builds the opening of a recording or of a daemon's stream, and appends frames.
///
/// For each frame, `input` has kind, length (u16) and payload. A sample's payload is uncompressed and lacks the fixed part.
pub fn framed(input: &[u8]) -> Vec<u8> {
    let mut bytes = Outgoing::opening(&Header::default()).expect("writing to memory succeeds");
    let mut rest = input;
    while let [kind, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (payload, next) = after.split_at(length);
        frame(&mut bytes, kind % 8, payload);
        rest = next;
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, body: &[u8]) {
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
    bytes.extend(length);
    bytes.extend(checksum.finalize().to_le_bytes());
    bytes.push(kind);
    bytes.extend(payload);
}
