//! Parses a million requests that are invalid or nearly valid. Each request is accepted, or refused with a sentence. No request
//! leaks memory.

use cgscope_serve::protocol::{LONGEST, Refusal, Request, Requests};
use oorandom::Rand32;

const COUNT: u32 = 1_000_000;
/// Each request whose number is a multiple of this is too long.
const OVERSIZED_EVERY: u32 = 1_000;

/// Words that have a meaning in a request.
const WORDS: [&[u8]; 14] = [
    b"{",
    b"[[[[[[[[[[[[[[[[",
    b"\"version\":2",
    b"\"interval_ns\":-1",
    b"1e999",
    b"18446744073709551616",
    b"\\ud800",
    b"\xff\xfe",
    b"\0",
    b"null",
    b"\"pids\":[1,",
    b"\"pids\":[4294967296]",
    b"\r",
    b",\"version\":1",
];

/// Returns a valid request with some bytes changed, removed or inserted.
fn spoilt(random: &mut Rand32, right: &[Vec<u8>]) -> Vec<u8> {
    let mut below = |end: usize| random.rand_u32() as usize % end.max(1);
    let mut line = right[below(right.len())].clone();
    for _ in 0..=below(3) {
        let at = below(line.len());
        match below(4) {
            0 => line[at] ^= 1 << below(8),
            1 => drop(line.drain(at..(at + below(20)).min(line.len()))),
            2 => drop(line.splice(at..at, WORDS[below(WORDS.len())].iter().copied())),
            _ => line.truncate(at),
        }
        if line.is_empty() {
            line.push(b'{');
        }
    }
    line
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("the second field");
    pages.parse::<usize>().expect("a number") * 4096
}

#[test]
fn a_million_bad_requests_are_refused_and_leak_no_memory() {
    let mut random = Rand32::new(8);
    let right: Vec<Vec<u8>> = [vec![], vec![1], (1..200).collect()]
        .map(|pids| Request { pids, ..Request::every(1_000_000_000) }.line())
        .map(|line| line[..line.len() - 1].to_vec())
        .into();
    let before = resident_bytes();
    let (mut refused, mut understood, mut oversized) = (0u32, 0u32, 0u32);
    let mut requests = Requests::default();
    for n in 0..COUNT {
        let mut line = spoilt(&mut random, &right);
        if n % OVERSIZED_EVERY == 0 {
            line.resize(LONGEST + 1 + random.rand_u32() as usize % (4 * LONGEST), b' ');
            oversized += 1;
        }
        line.push(b'\n');
        let mut came = &line[..];
        while !came.is_empty() {
            match requests.take(&mut came) {
                Ok(Some(_)) => understood += 1,
                Ok(None) => {}
                Err(word) => {
                    assert_eq!(word.refused, Some(Refusal::BadRequest));
                    assert!(!word.sentence.is_empty() && word.sentence.len() < 1_000, "{}", word.sentence);
                    refused += 1;
                    // A server would disconnect the client here, so the rest of the client's bytes is not read.
                    (came, requests) = (&[], Requests::default());
                }
            }
        }
    }
    let kept = resident_bytes().saturating_sub(before);
    eprintln!("{refused} refused, {understood} understood, {oversized} oversized; {kept} bytes more");
    assert!(refused > COUNT / 2 && refused + understood >= COUNT - oversized && oversized >= 1_000);
    assert!(kept < 8 << 20, "{kept} bytes");
}
