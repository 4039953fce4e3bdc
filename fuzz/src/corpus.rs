//! Reads the saved inputs of a fuzz target from an archive that `cargo xtask fuzz --keep` writes.
use std::{fs, path::Path, process::Command};

/// Size of tar's header before each file. tar also pads each file to a multiple of this size.
const BLOCK: usize = 512;

/// Returns all saved inputs of a fuzz target. Panics unless the program `tar` finds the same number of inputs.
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(format!("{target}.tar"));
    let bytes = fs::read(&archive).unwrap_or_else(|why| panic!("{}: {why}", archive.display()));
    let inputs = files(&bytes);
    let listed = Command::new("tar").arg("-tf").arg(&archive).output().expect("tar");
    assert!(listed.status.success(), "{}: {listed:?}", archive.display());
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert_eq!(inputs.len(), listed.lines().filter(|name| !name.ends_with('/')).count(), "{target}");
    inputs
}

fn files(mut archive: &[u8]) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    while let Some((header, rest)) = archive.split_at_checked(BLOCK).filter(|(header, _)| header[0] != 0) {
        let octal = std::str::from_utf8(&header[124..135]).expect("the size");
        let size = usize::from_str_radix(octal, 8).expect("the size");
        if header[156] == b'0' {
            files.push(rest[..size].to_vec());
        }
        archive = &rest[size.next_multiple_of(BLOCK)..];
    }
    files
}
