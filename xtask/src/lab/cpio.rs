//! The archive of a kernel's first root: cpio in the form "newc" (`Documentation/driver-api/early-userspace`).
use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Files of root. Paths are absolute; directories above a file are added.
pub(crate) struct Archive {
    bytes: Vec<u8>,
    made: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), made: BTreeSet::new(), entries: 0 }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.made.contains(path)
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.parents(path);
        self.entry(path, FILE | mode, content);
    }

    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.parents(path);
        self.entry(path, LINK | 0o777, to.as_bytes());
    }

    pub(crate) fn directory(&mut self, path: &str) {
        self.parents(path);
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0);
        self.bytes
    }

    /// The kernel makes no missing directories: each must be in the archive before its files.
    fn parents(&mut self, path: &str) {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str).filter(|parent| *parent != "/")
        {
            self.directory(parent);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        if self.made.insert(path.to_owned()) {
            self.header(path.trim_start_matches('/'), mode, content.len());
            self.bytes.extend_from_slice(content);
            self.pad();
        }
    }

    fn header(&mut self, name: &str, mode: u32, size: usize) {
        self.entries += 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), device of a node (2), length of the name, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn a_file_comes_after_its_directories_and_each_begins_at_a_multiple_of_four() {
        let mut archive = Archive::new();
        archive.file("/usr/bin/a", 0o755, b"hello");
        let bytes = archive.finish();
        let starts: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"070701")).collect();
        assert_eq!(starts.len(), 4, "usr, usr/bin, usr/bin/a and the end");
        assert!(starts.iter().all(|start| start % 4 == 0), "{starts:?}");
        let header = |at: usize| String::from_utf8_lossy(&bytes[at..at + 110]).into_owned();
        assert_eq!(&header(starts[0])[14..22], "000041ED", "a directory, rwxr-xr-x");
        assert_eq!(&header(starts[2])[14..22], "000081ED", "a file, rwxr-xr-x");
        assert_eq!(&header(starts[2])[54..62], "00000005", "its length");
        let name = &bytes[starts[2] + 110..];
        assert!(name.starts_with(b"usr/bin/a\0hello\0\0\0"), "{name:?}");
    }

    #[test]
    fn the_same_path_is_packed_once() {
        let mut archive = Archive::new();
        archive.link("/lib", "usr/lib");
        archive.link("/lib", "elsewhere");
        assert!(archive.has("/lib") && !archive.has("/usr"));
        assert_eq!(archive.entries, 1);
    }
}
