//! Reads files of `/proc` into one buffer.

use std::fs::{self, File};
use std::os::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    unix::{ffi::OsStrExt, fs::MetadataExt},
};
use std::path::{Path, PathBuf};
use std::{collections::HashMap, ffi::OsStr, fmt::Write as _, io, mem::MaybeUninit, sync::Arc};

use cgscope_model::printable;
use rustix::{
    fs::{Mode, OFlags, RawDir, openat},
    io::Errno,
    path::Arg,
};

use super::text;
use crate::{
    cgroups::{CgroupTree, TreeEvent},
    facts::{self, CgroupMounts},
};

/// Bytes of directory entries per system call.
const ENTRIES: usize = 32 << 10;
/// Maximum length of a file, bytes. Only `/proc/stat` can be nearly as long: it grows with the number of interrupts.
const LONGEST: usize = 1 << 20;

/// A mounted `/proc`.
pub struct ProcFiles {
    proc: OwnedFd,
    entries: Vec<MaybeUninit<u8>>,
    path: String,
    buffer: Vec<u8>,
}

impl ProcFiles {
    /// Opens the `/proc` mounted at this path.
    pub fn open(proc: &Path) -> io::Result<Self> {
        Ok(Self {
            proc: File::open(proc)?.into(),
            entries: vec![MaybeUninit::uninit(); ENTRIES],
            path: String::new(),
            buffer: Vec::new(),
        })
    }

    /// Reads the ids of all processes, ascending.
    pub fn processes(&mut self) -> io::Result<Vec<u32>> {
        let directory = openat(&self.proc, ".", DIRECTORY, Mode::empty())?;
        let mut pids = numbers(directory.as_fd(), &mut self.entries)?;
        pids.sort_unstable();
        Ok(pids)
    }

    /// Opens the directory of a process's threads, and reads the thread ids. `None` if the process has exited or is hidden.
    pub fn threads(&mut self, pid: u32) -> Option<(OwnedFd, Vec<u32>)> {
        self.path.clear();
        let _ = write!(self.path, "{pid}/task");
        let directory = openat(&self.proc, self.path.as_str(), DIRECTORY, Mode::empty()).ok()?;
        let tids = numbers(directory.as_fd(), &mut self.entries).ok()?;
        Some((directory, tids))
    }

    /// Reads a file of a thread; `threads` comes from [`threads`](Self::threads).
    pub fn of_thread(&mut self, threads: BorrowedFd<'_>, tid: u32, name: &str) -> Option<&[u8]> {
        self.path.clear();
        let _ = write!(self.path, "{tid}/{name}");
        read(threads, &self.path, &mut self.buffer)
    }

    /// Reads a file of a process.
    pub fn of_process(&mut self, pid: u32, name: &str) -> Option<&[u8]> {
        self.path.clear();
        let _ = write!(self.path, "{pid}/{name}");
        read(self.proc.as_fd(), &self.path, &mut self.buffer)
    }

    /// Reads a file of the host.
    pub fn of_host(&mut self, name: &str) -> Option<&[u8]> {
        read(self.proc.as_fd(), name, &mut self.buffer)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn numbers(directory: BorrowedFd<'_>, entries: &mut [MaybeUninit<u8>]) -> Result<Vec<u32>, Errno> {
    let mut found = Vec::new();
    let mut list = RawDir::new(directory, entries);
    while let Some(entry) = list.next() {
        found.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Reads a file into the buffer. `None` if the file is missing, unreadable or too long.
pub(crate) fn read<'b>(
    directory: BorrowedFd<'_>,
    path: impl Arg,
    buffer: &'b mut Vec<u8>,
) -> Option<&'b [u8]> {
    let file = openat(directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut length = 0;
    loop {
        match rustix::io::read(&file, &mut buffer[length..]) {
            Ok(more) => length += more,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        // Each file is one record (`single_open`), so a short read reaches the end. Another read would take a third more time.
        if length < buffer.len() {
            return Some(&buffer[..length]);
        }
        if length >= LONGEST {
            return None;
        }
        buffer.resize((2 * length).max(8 << 10), 0);
    }
}

/// The cgroups found in the current reading.
#[derive(Debug, Default)]
pub struct CgroupIds {
    mount: PathBuf,
    /// The part of the hierarchy that the mount shows: `/`, or a container's cgroup.
    shows: Vec<u8>,
    is_v2: bool,
    /// Ids by path below the mount. Valid for one reading, because a path may later belong to another cgroup.
    met: HashMap<Vec<u8>, Option<u64>>,
}

impl CgroupIds {
    /// Creates a lookup in the cpu controller's hierarchy. `root` is `/` except in tests.
    pub fn new(root: &Path, mounts: &CgroupMounts) -> Option<Self> {
        let mount = mounts.cpu()?;
        let shows = facts::shown_at(&facts::mountinfo(root), mount)?.into_bytes();
        let mount = facts::below(root, mount);
        Some(Self { mount, shows, is_v2: mounts.cpu_is_v2(), met: HashMap::new() })
    }

    /// Drops the cgroups of the last reading. Call this before each reading.
    pub fn begin(&mut self) {
        self.met.clear();
    }

    /// Returns the id of the cgroup in `/proc/PID/cgroup`. `None` if the cgroup was removed, or the mount does not show it.
    pub fn id(&mut self, text: &[u8]) -> Option<u64> {
        let path = text::cgroup_path(text, self.is_v2)?;
        let below = if self.shows == b"/" { path } else { path.strip_prefix(&*self.shows)? };
        let path = match below {
            [] => b"/",
            [b'/', ..] => below,
            // The path is not below the mounted directory: `/docker/ab` is not in `/docker/a`.
            _ => return None,
        };
        if let Some(id) = self.met.get(path) {
            return *id;
        }
        // Look up the ancestors, too, because their quotas apply.
        for end in path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end.max(1)) {
            if !self.met.contains_key(&path[..end]) {
                self.meet(&path[..end]);
            }
        }
        self.meet(path)
    }

    fn meet(&mut self, path: &[u8]) -> Option<u64> {
        let directory = self.mount.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
        let id = fs::metadata(directory).ok().filter(fs::Metadata::is_dir).map(|found| found.ino());
        self.met.insert(path.to_vec(), id);
        id
    }

    /// Adds the found cgroups to the tree, so that the tree needs no walk.
    pub fn report(&self, tree: &mut CgroupTree, now: std::time::Instant) {
        for (path, id) in &self.met {
            let Some(id) = *id else { continue };
            let path: Arc<str> = printable(&String::from_utf8_lossy(path));
            if tree.path(id) != Some(&path) || tree.is_removed(id) {
                tree.receive(TreeEvent::Made(id, Some(path)), now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(mount: &Path, shows: &str) -> CgroupIds {
        CgroupIds { mount: mount.into(), shows: shows.into(), is_v2: true, met: HashMap::new() }
    }

    #[test]
    fn a_path_is_relative_to_the_mounted_part() {
        let mount = std::env::temp_dir().join(format!("cgscope-ids-{}", std::process::id()));
        fs::create_dir_all(mount.join("a/b")).unwrap();
        let inode = |path: &str| Some(fs::metadata(mount.join(path)).unwrap().ino());
        let mut whole = ids(&mount, "/");
        assert_eq!(whole.id(b"0::/a/b\n"), inode("a/b"));
        assert_eq!(whole.id(b"0::/\n"), inode(""));
        assert_eq!((whole.id(b"0::/a/c\n"), whole.id(b"1:cpu:/a\n")), (None, None));
        let mut part = ids(&mount, "/docker/x");
        assert_eq!(part.id(b"0::/docker/x/a\n"), inode("a"));
        assert_eq!(part.id(b"0::/docker/x\n"), inode(""));
        assert_eq!(part.id(b"0::/docker/xa\n"), None, "a namesake");
        assert_eq!(part.id(b"0::/system.slice\n"), None, "not shown here");

        let mut tree = CgroupTree::new(&mount);
        whole.report(&mut tree, std::time::Instant::now());
        let b = inode("a/b").unwrap();
        assert_eq!(tree.path(b).map(|path| &**path), Some("/a/b"));
        assert_eq!(tree.ancestors(b).collect::<Vec<_>>(), [inode("").unwrap(), inode("a").unwrap()]);
        fs::remove_dir_all(&mount).unwrap();
    }
}
