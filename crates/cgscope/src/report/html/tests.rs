use std::{
    io::Write,
    process::{Command, Stdio},
};

use super::*;

/// Base64 of the SHA-256 of a text.
fn hash(text: &str) -> String {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    let bytes: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&said[2 * i..2 * i + 2], 16).unwrap()).collect();
    bytes.chunks(3).map(base64).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = bytes.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
    let letters = (0..=bytes.len()).map(|i| char::from(LETTERS[(bits >> (18 - 6 * i) & 63) as usize]));
    format!("{:=<4}", letters.collect::<String>())
}

#[test]
fn browsers_are_told_the_hashes_of_what_is_in_the_page() {
    assert_eq!(hash("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    assert_eq!((STYLE_HASH, SCRIPT_HASH), (hash(STYLE).as_str(), hash(SCRIPT).as_str()));
}
