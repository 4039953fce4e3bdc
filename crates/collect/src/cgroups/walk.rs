//! A walk over the directories of a hierarchy.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ffi::CString,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
};

use cgscope_model::{
    printable,
    selection::{DEEPEST, is_bounded, path_and_ancestors},
};
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

/// The most cgroups that are kept, and the most bytes of their paths: any user may make cgroups, and each costs all readers of
/// samples some KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) cgroups: usize,
    pub(super) bytes: usize,
}

impl Default for Bound {
    fn default() -> Self {
        Self { cgroups: 32_768, bytes: 8 << 20 }
    }
}

/// A path of up to this length, bytes, takes one turn.
const USUAL_BYTES: usize = 256;
/// The fewest names that are read of a directory, however many are unread.
const LEAST_NAMES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) found: HashMap<u64, Arc<str>>,
    /// Directories whose children can never be seen: unreadable, too deep, or with names that are too long.
    pub(super) hidden: HashSet<Arc<str>>,
    /// Cgroups that are not kept because of the [`Bound`], as far as they were seen, with the nearest one that is.
    pub(super) left_out: HashMap<u64, Arc<str>>,
    /// Bytes of the paths in `found`.
    pub(super) bytes: usize,
    pub(super) is_full: bool,
    /// Names that were read and not followed so far.
    unread: usize,
    bound: Bound,
    /// Whether something besides the hidden parts may be missing.
    is_cut_short: bool,
}

/// A directory that was read, and what is left of it.
#[derive(Debug)]
struct Directory {
    /// Below the mount, without the first `/`.
    path: Vec<u8>,
    depth: usize,
    above: usize,
    unread: Vec<(u64, CString)>,
    /// Its directories that have something left; the next one first.
    open: VecDeque<usize>,
    /// The turns that it leaves out, because a long path took several.
    owed: usize,
}

impl Walk {
    /// Reads the cgroups below `mount`. If there are more than the bound, cgroups with the same parent get the same number of places
    /// for what is below them, as far as they have so much.
    pub(super) fn over(mount: &Path, bound: Bound) -> Self {
        let mut walk = Self { bound, ..Self::default() };
        let root = match openat(CWD, mount, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty()) {
            Ok(root) => root,
            Err(_) => {
                walk.is_cut_short = true;
                return walk;
            }
        };
        let mut directories = Vec::new();
        walk.read(&root, &mut directories, Directory::new(Vec::new(), 0, 0));
        while let Some((above, (id, name))) = next(&mut directories) {
            walk.unread -= 1;
            let Directory { path, depth, .. } = &directories[above];
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend(name.to_bytes());
            let (shown, depth) = (shown(&below), depth + 1);
            if walk.found.len() >= bound.cgroups || walk.bytes + shown.len() > bound.bytes {
                walk.is_full = true;
                directories[above].unread.push((id, name));
                break;
            }
            let mut owes = above;
            while owes != 0 {
                directories[owes].owed += shown.len() / USUAL_BYTES;
                owes = directories[owes].above;
            }
            if depth > DEEPEST || !is_bounded(&shown) {
                walk.hidden.insert(self::shown(&directories[above].path));
                continue;
            }
            match openat(&root, below.as_slice(), DIRECTORY, Mode::empty()) {
                Ok(directory) => walk.read(&directory, &mut directories, Directory::new(below, depth, above)),
                Err(error) => {
                    if is_refused(error) {
                        walk.keep(id, shown.clone());
                    }
                    walk.missed(error, shown);
                }
            }
        }
        if walk.is_full {
            for directory in &directories {
                let path = shown(&directory.path);
                walk.left_out.extend(directory.unread.iter().map(|(id, _)| (*id, path.clone())));
            }
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

    fn keep(&mut self, id: u64, path: Arc<str>) {
        self.bytes += path.len();
        self.found.insert(id, path);
    }

    fn read(&mut self, fd: &OwnedFd, directories: &mut Vec<Directory>, mut directory: Directory) {
        let unread = fstat(fd).and_then(|stat| {
            self.keep(stat.st_ino, shown(&directory.path));
            subdirectories(fd, (2 * self.bound.cgroups).saturating_sub(self.unread).max(LEAST_NAMES))
        });
        let unread = unread.map(|(unread, is_cut)| {
            self.is_full |= is_cut;
            self.unread += unread.len();
            unread
        });
        match unread {
            Ok(unread) if unread.is_empty() => {}
            Ok(unread) => {
                let at = directories.len();
                if let Some(above) = directories.get_mut(directory.above) {
                    above.open.push_back(at);
                }
                directory.unread = unread;
                directories.push(directory);
            }
            Err(error) => self.missed(error, shown(&directory.path)),
        }
    }

    fn missed(&mut self, error: Errno, path: Arc<str>) {
        if is_refused(error) {
            self.hidden.insert(path);
        } else if !is_removed(error) {
            self.is_cut_short = true;
        }
    }
}

impl Directory {
    fn new(path: Vec<u8>, depth: usize, above: usize) -> Self {
        Self { path, depth, above, unread: Vec::new(), open: VecDeque::new(), owed: 0 }
    }
}

/// Takes the next cgroup to read, with the directory that it is in. Directories with the same parent take turns.
fn next(directories: &mut [Directory]) -> Option<(usize, (u64, CString))> {
    let mut at = 0;
    loop {
        let directory = directories.get_mut(at)?;
        if let Some(unread) = directory.unread.pop() {
            return Some((at, unread));
        }
        match directory.open.pop_front() {
            Some(next) => {
                directory.open.push_back(next);
                match directories[next].owed.checked_sub(1) {
                    Some(owed) => directories[next].owed = owed,
                    None => at = next,
                }
            }
            None if at == 0 => return None,
            None => {
                at = directory.above;
                // It was moved to the end on the way down.
                directories[at].open.pop_back();
            }
        }
    }
}

fn shown(path: &[u8]) -> Arc<str> {
    printable(&format!("/{}", String::from_utf8_lossy(path)))
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Collects at most `most` entries at once, so that a deep walk does not hold a buffer for each level. Also returns whether there
/// are more.
fn subdirectories(directory: &OwnedFd, most: usize) -> Result<(Vec<(u64, CString)>, bool), Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = match entry {
            Err(error) if is_removed(error) => break,
            other => other?,
        };
        let is_child = ![c".", c".."].contains(&entry.file_name());
        if is_child && entry.file_type() == FileType::Directory {
            if found.len() == most {
                return Ok((found, true));
            }
            found.push((entry.ino(), entry.file_name().to_owned()));
        }
    }
    Ok((found, false))
}

/// Whether the error is permanent.
fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM)
}

fn is_removed(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NODEV)
}
