//! A walk over the directories of a hierarchy.

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

/// Maximum depth: each level holds a directory open. Deeper cgroups are hidden.
const DEEPEST: usize = 256;
/// Maximum length of a path: the longest that the kernel opens. Longer paths are hidden, because the owner of a subtree could
/// make us keep a megabyte per cgroup.
const LONGEST_PATH: usize = libc::PATH_MAX as usize;

#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) found: HashMap<u64, Arc<str>>,
    /// Directories whose children can never be seen: unreadable, or too deep.
    pub(super) hidden: HashSet<Arc<str>>,
    /// Whether something besides the hidden parts may be missing.
    is_cut_short: bool,
}

impl Walk {
    pub(super) fn over(mount: &Path) -> Self {
        let mut walk = Self::default();
        match openat(CWD, mount, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty()) {
            Ok(root) => walk.enter(root, "/", 0),
            Err(_) => walk.is_cut_short = true,
        }
        walk
    }

    /// Whether everything but the hidden parts was found. A missing root means that the hierarchy is no longer mounted.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_cut_short && !self.found.is_empty()
    }

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

/// Collects the entries at once, so that a deep walk does not hold a buffer for each level.
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

/// Whether the error is permanent.
fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM)
}

fn is_removed(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}
