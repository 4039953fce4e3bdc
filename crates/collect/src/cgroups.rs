//! Paths of cgroups by id. The id is the inode number of the cgroup's directory.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::collector::printable;

/// At most so often (a little less than the usual interval) the tree is walked for ids that are not known: a host may make cgroups faster than we could walk.
const WALK_EVERY: Duration = Duration::from_millis(900);

/// The tree of one hierarchy, as last walked.
#[derive(Debug)]
pub struct CgroupTree {
    mount: PathBuf,
    paths: HashMap<u64, Arc<str>>,
    ids: HashMap<Arc<str>, u64>,
    /// Ids that a walk did not find: gone before, or outside of what this mount shows.
    gone: HashSet<u64>,
    walked: Option<Instant>,
}

impl CgroupTree {
    /// Of the hierarchy mounted at `mount`.
    pub fn new(mount: impl Into<PathBuf>) -> Self {
        Self {
            mount: mount.into(),
            paths: HashMap::new(),
            ids: HashMap::new(),
            gone: HashSet::new(),
            walked: None,
        }
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The id of the root.
    pub fn root_id(&self) -> Option<u64> {
        fs::metadata(&self.mount).ok().map(|root| root.ino())
    }

    /// Makes sure that the paths of `ids` are known, as far as they still exist. A path once seen is kept: the cgroup
    /// may be gone while its figures are still shown.
    pub fn learn(&mut self, ids: impl IntoIterator<Item = u64>, now: Instant) {
        let is_known = |id: &u64| *id == 0 || self.paths.contains_key(id) || self.gone.contains(id);
        let unknown: Vec<u64> = ids.into_iter().filter(|id| !is_known(id)).collect();
        let due = self.walked.is_none_or(|walked| now.duration_since(walked) >= WALK_EVERY);
        if !unknown.is_empty() && due {
            self.walked = Some(now);
            // A cgroup removed while we walk is no error: what is left is walked.
            let mut found = HashMap::new();
            let _ = walk(&self.mount, "/", &mut found);
            self.ids.extend(found.iter().map(|(id, path)| (path.clone(), *id)));
            self.paths.extend(found);
            // An id is never given again: whoever was not found never will be.
            self.gone.extend(unknown.into_iter().filter(|id| !self.paths.contains_key(id)));
        }
    }

    /// The path under the mount; `None` if it was gone before it could be read.
    pub fn path(&self, id: u64) -> Option<&Arc<str>> {
        self.paths.get(&id)
    }

    /// The ids of a cgroup's ancestors, as far as they are known.
    pub fn ancestors(&self, id: u64) -> impl Iterator<Item = u64> + '_ {
        let path = self.paths.get(&id).map_or("", |path| path);
        let ends = path.char_indices().filter(|(_, c)| *c == '/').map(|(end, _)| end.max(1));
        ends.filter_map(|end| self.ids.get(&path[..end]).copied()).filter(move |ancestor| *ancestor != id)
    }

    /// True if there is such a cgroup now.
    pub fn exists(&self, path: &str) -> bool {
        self.mount.join(path.trim_start_matches('/')).is_dir()
    }
}

fn walk(directory: &Path, path: &str, found: &mut HashMap<u64, Arc<str>>) -> io::Result<()> {
    found.insert(fs::metadata(directory)?.ino(), printable(path));
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name();
            let parent = path.trim_end_matches('/');
            let _ = walk(&entry.path(), &format!("{parent}/{}", name.to_string_lossy()), found);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_under_the_mount_and_outlive_their_cgroup() {
        let mount = std::env::temp_dir().join(format!("cgscope-tree-{}", std::process::id()));
        fs::create_dir_all(mount.join("a/b")).unwrap();
        let inode = |path: &str| fs::metadata(mount.join(path)).unwrap().ino();
        let (root, b) = (inode(""), inode("a/b"));
        let mut tree = CgroupTree::new(&mount);
        let start = Instant::now();
        tree.learn([b], start);
        assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"));
        assert_eq!(tree.path(root).map(|p| &**p), Some("/"));
        assert_eq!(tree.ancestors(b).collect::<Vec<_>>(), [root, inode("a")]);
        assert_eq!(tree.ancestors(root).count(), 0);
        assert!(tree.exists("/a/b") && tree.exists("a") && !tree.exists("/c"));

        // In this order: a disk, unlike a hierarchy of cgroups, gives a number that is free to the next directory.
        fs::create_dir(mount.join("c")).unwrap();
        let c = inode("c");
        fs::remove_dir(mount.join("a/b")).unwrap();
        tree.learn([c], start);
        assert_eq!(tree.path(c), None, "not walked again so soon");
        tree.learn([c], start + WALK_EVERY);
        assert_eq!(tree.path(c).map(|p| &**p), Some("/c"));
        fs::remove_dir_all(&mount).unwrap();
        assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"));
    }
}
