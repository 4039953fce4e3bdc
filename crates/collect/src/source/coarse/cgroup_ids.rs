//! Looks up cgroup ids for the paths in `/proc/PID/cgroup`.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::text;
use cgscope_model::printable;

use crate::{
    cgroups::{CgroupTree, TreeEvent},
    facts::{self, CgroupMounts},
};

/// The cgroups found in one reading.
#[derive(Debug, Default)]
pub struct CgroupIds {
    mount: PathBuf,
    /// The part of the hierarchy that the mount shows: `/`, or a container's cgroup.
    shows: Vec<u8>,
    is_v2: bool,
    /// Ids by path below the mount. Kept for only one reading, because later a path may belong to another cgroup.
    met: HashMap<Vec<u8>, Option<u64>>,
}

impl CgroupIds {
    /// Creates a lookup for the cpu controller's hierarchy. `root` is `/` except in tests.
    pub fn new(root: &Path, mounts: &CgroupMounts, mountinfo: &str) -> Option<Self> {
        let mount = mounts.cpu()?;
        let shows = facts::shown_at(mountinfo, mount)?.into_bytes();
        let mount = facts::below(root, mount);
        Some(Self { mount, shows, is_v2: mounts.cpu_is_v2(), met: HashMap::new() })
    }

    /// Drops the cgroups of the last reading. Call before each reading.
    pub fn begin(&mut self) {
        self.met.clear();
    }

    /// Returns the id of the cgroup in a `/proc/PID/cgroup`; `None` if it was removed, or the mount does not show it.
    pub fn id(&mut self, text: &[u8]) -> Option<u64> {
        let path = text::cgroup_path(text, self.is_v2)?;
        let below = if self.shows == b"/" { path } else { path.strip_prefix(&*self.shows)? };
        let path = match below {
            [] => b"/",
            [b'/', ..] => below,
            // The path is not below the mounted part of the tree: `/docker/ab` is not in `/docker/a`.
            _ => return None,
        };
        if let Some(id) = self.met.get(path) {
            return *id;
        }
        // Ancestors are needed for their quotas.
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

    /// Adds the found cgroups to the tree, so that it need not be walked.
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
