//! The walk over the directories of a hierarchy.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
};

use cgscope_model::{printable, selection::path_and_ancestors};
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

/// How deep the walk goes: a directory is held open for each level. What is deeper is hidden.
const DEEPEST: usize = 256;

/// The longest path that is kept, as the longest that the kernel opens. What has a longer one is hidden: anyone whom a
/// part of the tree was delegated to could have us keep a megabyte for each cgroup.
const LONGEST_PATH: usize = libc::PATH_MAX as usize;

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Paths under the mount by id.
    pub(super) found: HashMap<u64, Arc<str>>,
    /// The paths of directories below which nothing can be seen now or later: they are unreadable, or it is too deep.
    pub(super) hidden: HashSet<Arc<str>>,
    /// There may be more than was found, beside what is hidden.
    is_cut_short: bool,
}

impl Walk {
    /// Over the hierarchy mounted at `mount`. A cgroup removed meanwhile is no error: what is left is walked.
    pub(super) fn over(mount: &Path) -> Self {
        let mut walk = Self::default();
        match openat(CWD, mount, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty()) {
            Ok(root) => walk.enter(root, "/", 0),
            Err(_) => walk.is_cut_short = true,
        }
        walk
    }

    /// Everything was found but what is hidden. Without its root the hierarchy is not mounted any more, and nothing is known of it.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_cut_short && !self.found.is_empty()
    }

    /// True if that path is below a directory that hides what is in it.
    pub(super) fn hides(&self, path: &str) -> bool {
        !self.hidden.is_empty() && path_and_ancestors(path).skip(1).any(|above| self.hidden.contains(above))
    }

    fn enter(&mut self, directory: OwnedFd, path: &str, depth: usize) {
        let entries = fstat(&directory).and_then(|stat| {
            self.found.insert(stat.st_ino, printable(path));
            subdirectories(&directory)
        });
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.missed(error, path),
        };
        for (id, name) in entries {
            let below = format!("{}/{}", path.trim_end_matches('/'), name.to_string_lossy());
            if depth == DEEPEST || below.len() >= LONGEST_PATH {
                self.hidden.insert(printable(path));
                continue;
            }
            match openat(&directory, &*name, DIRECTORY, Mode::empty()) {
                Ok(directory) => self.enter(directory, &below, depth + 1),
                Err(error) => {
                    // It is there all the same.
                    if is_refused(error) {
                        self.found.insert(id, printable(&below));
                    }
                    self.missed(error, &below);
                }
            }
        }
    }

    fn missed(&mut self, error: Errno, path: &str) {
        if is_refused(error) {
            self.hidden.insert(printable(path));
        } else if !is_removed(error) {
            self.is_cut_short = true;
        }
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// All at once: a walk that is deep does not hold a buffer of entries for each level.
fn subdirectories(directory: &OwnedFd) -> Result<Vec<(u64, CString)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = match entry {
            Err(error) if is_removed(error) => break,
            other => other?,
        };
        let is_child = ![c".", c".."].contains(&entry.file_name());
        if is_child && entry.file_type() == FileType::Directory {
            found.push((entry.ino(), entry.file_name().to_owned()));
        }
    }
    Ok(found)
}

/// It will be the next time, too.
fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM)
}

fn is_removed(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}
