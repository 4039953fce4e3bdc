//! The directory tree of a package, as it is installed.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{cannot_read, cannot_write, said};
use crate::failure::Failure;

/// A directory that represents the target's root or a directory below it.
pub(super) struct Tree {
    pub(super) root: PathBuf,
}

impl Tree {
    pub(super) fn new(root: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&root).map_err(|why| cannot_write(&root, &why))?;
        set_mode(&root, 0o755)?;
        Ok(Self { root })
    }

    /// Writes a file. Creates missing directories, readable by everybody, regardless of the umask.
    pub(super) fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), Failure> {
        let file = self.root.join(path);
        let mut directory = self.root.clone();
        for part in Path::new(path).parent().into_iter().flat_map(Path::iter) {
            directory.push(part);
            if !directory.is_dir() {
                fs::create_dir(&directory).map_err(|why| cannot_write(&directory, &why))?;
                set_mode(&directory, 0o755)?;
            }
        }
        fs::write(&file, content).map_err(|why| cannot_write(&file, &why))?;
        set_mode(&file, mode)
    }

    pub(super) fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<(), Failure> {
        let content = fs::read(from).map_err(|why| cannot_read(from, &why))?;
        self.put(path, &content, mode)
    }

    /// Writes `PATH.gz`. The gzip header contains no name and no time.
    pub(super) fn put_compressed(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        self.put(path, content, 0o644)?;
        said(Command::new("gzip").args(["-9n"]).arg(self.root.join(path))).map(drop)
    }

    /// Removes the symbols of a program: they are half of a package's size, and its users do not need them.
    pub(super) fn strip(&self, path: &str) -> Result<(), Failure> {
        let mut strip = Command::new("strip");
        strip.args(["--strip-all", "--remove-section=.comment"]);
        said(strip.arg(self.root.join(path))).map(drop)
    }

    /// All files, relative to the root, sorted.
    pub(super) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(&directory).map_err(|why| cannot_read(&directory, &why))?;
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    directories.push(path);
                } else if let Ok(relative) = path.strip_prefix(&self.root) {
                    found.push(relative.to_owned());
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|why| cannot_write(path, &why))
}
