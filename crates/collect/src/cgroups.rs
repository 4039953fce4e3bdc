//! Paths of cgroups by id. The id is the inode number of the cgroup's directory.
//!
//! The BPF side tells what cgroups come and go. What it cannot tell is found by walking the tree: cgroups that were there
//! before, and those of processes for which the kernel runs no tracing programs.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_layout::wire::{CgroupEvent, cgroup_event};
use cgscope_model::printable;

/// At most so often (a little less than the usual interval) the tree is walked for what is not known: a host may make
/// cgroups faster than we could walk.
const WALK_EVERY: Duration = Duration::from_millis(900);

/// So long after its end a cgroup is still thought to change: its last task may have been on its way out, and what names
/// the cgroup may not have been read yet.
const LINGERS: Duration = Duration::from_secs(1);

/// The tree is walked anew when it has more than twice as many cgroups as it had then, and so many: some may have gone
/// unseen.
const MANY: usize = 1000;

/// The root of every hierarchy has this id: it is the first node that `kernfs_create_root` makes (Linux 3.14 to 6.18).
const ROOT_ID: u64 = 1;

/// What the BPF side tells of a cgroup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It is new; without a path that was too long.
    Made(u64, Option<Arc<str>>),
    /// It is gone.
    Removed(u64),
    /// It, and with it all below it, has another path.
    Renamed,
}

impl Event {
    /// As in the ring buffer; `None` for what is no event.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, path) = bytes.split_at_checked(CgroupEvent::HEAD)?;
        let (kind, rest) = head.split_first_chunk()?;
        let (is_cut, id) = rest.split_first_chunk()?;
        let id = u64::from_ne_bytes(id.try_into().ok()?);
        match u32::from_ne_bytes(*kind) {
            cgroup_event::MADE => {
                let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
                let is_whole = u32::from_ne_bytes(*is_cut) == 0 && path.starts_with(b"/");
                Some(Self::Made(id, is_whole.then(|| printable(&String::from_utf8_lossy(path)))))
            }
            cgroup_event::REMOVED => Some(Self::Removed(id)),
            cgroup_event::RENAMED => Some(Self::Renamed),
            _ => None,
        }
    }
}

/// The tree of one hierarchy, as last walked and told of.
#[derive(Debug)]
pub struct CgroupTree {
    mount: PathBuf,
    /// The mount shows the whole hierarchy, so paths in it are the kernel's, and what is not there is nowhere.
    shows_all: bool,
    paths: HashMap<u64, Arc<str>>,
    ids: HashMap<Arc<str>, u64>,
    /// Since when it has been known that they are gone; some never had a path. What a mount does not show is here, too.
    gone: HashMap<u64, Instant>,
    /// Not found where they should be.
    suspects: HashSet<u64>,
    /// They are there, but no file is found by their path: it has characters that are not printed.
    unreadable: HashSet<u64>,
    walked: Option<Walked>,
    /// Paths are no longer what they were.
    is_renamed: bool,
    /// Something was not told.
    has_missed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Walked {
    at: Instant,
    cgroups: usize,
}

impl CgroupTree {
    /// Of the hierarchy mounted at `mount`.
    pub fn new(mount: impl Into<PathBuf>) -> Self {
        let mut tree = Self {
            mount: mount.into(),
            shows_all: false,
            paths: HashMap::new(),
            ids: HashMap::new(),
            gone: HashMap::new(),
            suspects: HashSet::new(),
            unreadable: HashSet::new(),
            walked: None,
            is_renamed: false,
            has_missed: false,
        };
        tree.shows_all = tree.root_id() == Some(ROOT_ID);
        tree
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The id of the root.
    pub fn root_id(&self) -> Option<u64> {
        fs::metadata(&self.mount).ok().map(|root| root.ino())
    }

    /// False for a mount of a part of the hierarchy, as of a container: what the BPF side tells has other paths.
    pub(crate) fn shows_all(&self) -> bool {
        self.shows_all
    }

    /// Takes in what the BPF side tells.
    pub(crate) fn hear(&mut self, event: Event, now: Instant) {
        match event {
            Event::Made(id, Some(path)) => {
                self.gone.remove(&id);
                self.ids.insert(path.clone(), id);
                self.paths.insert(id, path);
            }
            // It is looked for when something names it.
            Event::Made(_, None) => {}
            Event::Removed(id) => {
                self.gone.entry(id).or_insert(now);
            }
            Event::Renamed => self.is_renamed = true,
        }
    }

    /// Some events are lost: what is known may be gone.
    pub(crate) fn has_missed_events(&mut self) {
        self.has_missed = true;
    }

    /// Not found by its path.
    pub(crate) fn suspect(&mut self, id: u64) {
        if self.paths.contains_key(&id) && !self.gone.contains_key(&id) && !self.unreadable.contains(&id) {
            self.suspects.insert(id);
        }
    }

    /// Makes sure that the paths of `ids` are known, as far as they still exist, and that those known are right. A path
    /// once seen is kept while figures name it: the cgroup may be gone.
    pub fn learn(&mut self, ids: impl IntoIterator<Item = u64>, now: Instant) {
        let is_known = |id: &u64| *id == 0 || self.paths.contains_key(id) || self.gone.contains_key(id);
        let unknown: Vec<u64> = ids.into_iter().filter(|id| !is_known(id)).collect();
        self.suspects.retain(|id| !self.gone.contains_key(id));
        let is_due = self.walked.is_none_or(|walked| now.duration_since(walked.at) >= WALK_EVERY);
        let has_grown = self.walked.is_some_and(|walked| self.paths.len() > MANY + 2 * walked.cgroups);
        let is_wanted = !unknown.is_empty() || !self.suspects.is_empty() || self.has_missed || has_grown;
        if self.is_renamed || is_due && is_wanted {
            self.walk(&unknown, now);
        }
    }

    fn walk(&mut self, unknown: &[u64], now: Instant) {
        // A cgroup removed while we walk is no error: what is left is walked.
        let mut found = HashMap::new();
        // Without its root it is not mounted any more, and nothing is known of what is in it.
        let is_whole = walk(&self.mount, "/", &mut found).is_ok() && !found.is_empty();
        self.walked = Some(Walked { at: now, cgroups: found.len() });
        if is_whole {
            for id in self.paths.keys().chain(unknown).filter(|id| !found.contains_key(id)) {
                self.gone.entry(*id).or_insert(now);
            }
            let unmoved = |id: &u64| found.get(id).is_some_and(|path| self.paths.get(id) == Some(path));
            self.unreadable.extend(self.suspects.drain().filter(unmoved));
            (self.is_renamed, self.has_missed) = (false, false);
        }
        self.gone.retain(|id, _| !found.contains_key(id));
        self.paths.extend(found.iter().map(|(id, path)| (*id, path.clone())));
        // Of two with one path the one that is there counts.
        self.ids = self.paths.iter().map(|(id, path)| (path.clone(), *id)).collect();
        self.ids.extend(found.into_iter().map(|(id, path)| (path, id)));
    }

    /// The path under the mount, the last one of a cgroup that is gone; `None` if it was gone before it could be read.
    pub fn path(&self, id: u64) -> Option<&Arc<str>> {
        self.paths.get(&id)
    }

    /// True if it is known to be gone.
    pub(crate) fn is_gone(&self, id: u64) -> bool {
        self.gone_since(id).is_some()
    }

    /// True if it has been gone for so long that nothing is expected of it any more.
    pub(crate) fn is_long_gone(&self, id: u64, now: Instant) -> bool {
        self.gone_since(id).is_some_and(|since| now.duration_since(since) >= LINGERS)
    }

    /// What never was in a mount of a part may be elsewhere.
    fn gone_since(&self, id: u64) -> Option<Instant> {
        self.gone.get(&id).copied().filter(|_| self.shows_all || self.paths.contains_key(&id))
    }

    /// Forgets the cgroups that are gone and that nothing names any more.
    pub(crate) fn forget(&mut self, is_named: impl Fn(u64) -> bool, now: Instant) {
        self.gone.retain(|id, since| {
            let is_kept = is_named(*id) || now.duration_since(*since) < LINGERS;
            if !is_kept {
                self.unreadable.remove(id);
                let path = self.paths.remove(id);
                if let Some(path) = path.filter(|path| self.ids.get(path) == Some(id)) {
                    self.ids.remove(&path);
                }
            }
            is_kept
        });
    }

    /// How many are known, the gone included.
    pub(crate) fn len(&self) -> usize {
        let nameless = self.gone.keys().filter(|id| !self.paths.contains_key(id));
        self.paths.len() + nameless.count()
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

/// The number of the hierarchy of the cpu controller, from `/proc/self/cgroup`: `4:cpu,cpuacct:/path`. That of v2 is 0
/// (`cgrp_dfl_root` is the first to get one).
pub(crate) fn hierarchy(text: &str, is_v2: bool) -> Option<u64> {
    if is_v2 {
        return Some(0);
    }
    let mut lines = text.lines().map(|line| line.splitn(3, ':'));
    lines.find_map(|mut fields| {
        let (number, controllers) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|one| one == "cpu").then(|| number.parse().ok())?
    })
}

/// What was last read of cgroups that are long gone: given back when two Samples in a row read the same.
#[derive(Debug, Default)]
pub(crate) struct Remains(HashMap<u64, u64>);

impl Remains {
    /// Takes the figures of a Sample, by id the sum of some that only rise. Returns the ids to be given back.
    pub(crate) fn settled(&mut self, figures: HashMap<u64, u64>) -> HashSet<u64> {
        let before = std::mem::replace(&mut self.0, figures);
        let settled: HashSet<u64> =
            self.0.iter().filter(|(id, sum)| before.get(id) == Some(sum)).map(|(id, _)| *id).collect();
        self.0.retain(|id, _| !settled.contains(id));
        settled
    }
}

/// The path of every cgroup below `mount` now, as under it, by id.
pub(crate) fn all_paths(mount: &Path) -> HashMap<u64, Arc<str>> {
    let mut found = HashMap::new();
    // What could not be read is not known.
    let _ = walk(mount, "/", &mut found);
    found
}

/// Fails where there may be more than was found.
fn walk(directory: &Path, path: &str, found: &mut HashMap<u64, Arc<str>>) -> io::Result<()> {
    let is_removed = |error: &io::Error| {
        error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
    };
    let entries = match fs::metadata(directory).and_then(|data| Ok((data.ino(), fs::read_dir(directory)?))) {
        Err(error) if is_removed(&error) => return Ok(()),
        Err(error) => return Err(error),
        Ok((id, entries)) => {
            found.insert(id, printable(path));
            entries
        }
    };
    let mut result = Ok(());
    for entry in entries {
        let entry = match entry {
            Err(error) if is_removed(&error) => break,
            other => other?,
        };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let name = entry.file_name();
            let parent = path.trim_end_matches('/');
            let below = walk(&entry.path(), &format!("{parent}/{}", name.to_string_lossy()), found);
            result = result.and(below);
        }
    }
    result
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

        assert!(tree.is_gone(b) && !tree.is_gone(c) && !tree.is_gone(root));
        tree.forget(|id| id == b, start + 2 * (WALK_EVERY + LINGERS));
        assert!(tree.path(b).is_some(), "figures name it");
        tree.forget(|_| false, start + 2 * (WALK_EVERY + LINGERS));
        assert_eq!((tree.path(b), tree.len()), (None, 3));
    }

    fn made(id: u64, path: &str) -> Event {
        Event::Made(id, Some(path.into()))
    }

    #[test]
    fn what_is_told_needs_no_walk_and_is_forgotten_when_nothing_names_it() {
        let mut tree = CgroupTree::new("/nowhere");
        tree.shows_all = true;
        let start = Instant::now();
        tree.hear(made(7, "/a"), start);
        tree.hear(made(8, "/a/b"), start);
        tree.hear(Event::Removed(8), start);
        tree.learn([7, 8], start);
        assert!(tree.walked.is_none());
        assert_eq!(tree.path(8).map(|p| &**p), Some("/a/b"));
        assert_eq!(tree.ancestors(8).collect::<Vec<_>>(), [7]);
        assert!(tree.is_gone(8) && !tree.is_gone(7));
        assert!(!tree.is_long_gone(8, start) && tree.is_long_gone(8, start + LINGERS));

        // Another of the same name, before the first is forgotten.
        tree.hear(made(9, "/a/b"), start);
        tree.forget(|_| false, start);
        assert!(tree.path(8).is_some(), "what names it may not have been read yet");
        tree.forget(|_| false, start + LINGERS);
        assert_eq!((tree.path(8), tree.len()), (None, 2));
        assert_eq!(tree.ids.get("/a/b"), Some(&9));
    }

    #[test]
    fn a_rename_and_lost_events_make_it_walk() {
        let mount = std::env::temp_dir().join(format!("cgscope-renamed-{}", std::process::id()));
        fs::create_dir_all(mount.join("a/b")).unwrap();
        let b = fs::metadata(mount.join("a/b")).unwrap().ino();
        let mut tree = CgroupTree::new(&mount);
        let start = Instant::now();
        tree.learn([b], start);
        fs::rename(mount.join("a"), mount.join("z")).unwrap();
        tree.learn([b], start);
        assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"), "nothing was told");
        tree.hear(Event::Renamed, start);
        tree.learn([b], start);
        assert_eq!(tree.path(b).map(|p| &**p), Some("/z/b"), "at once");
        assert!(tree.ids.contains_key("/z") && !tree.ids.contains_key("/a"));

        tree.suspect(b);
        tree.learn([], start + WALK_EVERY);
        assert!(!tree.is_gone(b));
        tree.suspect(b);
        assert!(tree.suspects.is_empty(), "it is there all the same: no more walks for it");

        // Made before the others go: one made later may get the number of one of them.
        let anew = mount.with_extension("anew");
        fs::create_dir(&anew).unwrap();
        fs::remove_dir_all(&mount).unwrap();
        tree.has_missed_events();
        tree.learn([], start + WALK_EVERY);
        tree.learn([], start + 2 * WALK_EVERY);
        assert!(!tree.is_gone(b), "not mounted any more");
        fs::rename(&anew, &mount).unwrap();
        tree.learn([], start + 2 * WALK_EVERY);
        assert!(!tree.is_gone(b), "not walked again so soon");
        tree.learn([], start + 3 * WALK_EVERY);
        fs::remove_dir(&mount).unwrap();
        assert!(tree.is_gone(b));
    }

    #[test]
    fn in_a_mount_of_a_part_what_is_not_found_may_be_elsewhere() {
        let mount = std::env::temp_dir().join(format!("cgscope-part-{}", std::process::id()));
        fs::create_dir(&mount).unwrap();
        let mut tree = CgroupTree::new(&mount);
        tree.learn([5], Instant::now());
        fs::remove_dir(&mount).unwrap();
        assert!(!tree.is_gone(5));
        tree.shows_all = true;
        assert!(tree.is_gone(5));
    }

    #[test]
    fn an_event_is_read_as_the_kernel_side_writes_it() {
        let event = |kind: u32, is_cut: u32, path: &[u8]| {
            let head = [kind.to_ne_bytes(), is_cut.to_ne_bytes()].concat();
            [&head, &77u64.to_ne_bytes()[..], path].concat()
        };
        assert_eq!(Event::parse(&event(1, 0, b"/a/b\0\0\0")), Some(made(77, "/a/b")));
        assert_eq!(Event::parse(&event(1, 0, b"/\x1b[2J\xff\0")), Some(made(77, "/\u{fffd}[2J\u{fffd}")));
        assert_eq!(Event::parse(&event(1, 1, b"/a/b\0")), Some(Event::Made(77, None)));
        assert_eq!(Event::parse(&event(1, 0, b"")), Some(Event::Made(77, None)));
        assert_eq!(Event::parse(&event(2, 0, b"")), Some(Event::Removed(77)));
        assert_eq!(Event::parse(&event(3, 0, b"")), Some(Event::Renamed));
        assert_eq!(Event::parse(&event(4, 0, b"")), None);
        assert_eq!(Event::parse(&event(1, 0, b"")[..15]), None);
    }

    #[test]
    fn the_number_of_the_hierarchy_is_that_of_the_cpu_controller() {
        let text = "12:cpuset:/x\n4:cpu,cpuacct:/a:b\n1:name=systemd:/\n0::/\n";
        assert_eq!(hierarchy(text, false), Some(4));
        assert_eq!(hierarchy(text, true), Some(0));
        assert_eq!(hierarchy("2:cpuacct:/\n0::/\n", false), None);
    }

    #[test]
    fn what_is_left_is_given_back_once_it_was_read_twice_unchanged() {
        let mut remains = Remains::default();
        let mut settled = |figures: &[(u64, u64)]| {
            let mut settled: Vec<u64> =
                remains.settled(figures.iter().copied().collect()).into_iter().collect();
            settled.sort_unstable();
            settled
        };
        assert!(settled(&[(1, 10), (2, 20)]).is_empty());
        assert_eq!(settled(&[(1, 11), (2, 20)]), [2]);
        assert_eq!(settled(&[(1, 11)]), [1]);
        assert!(settled(&[(1, 11)]).is_empty(), "begins anew");
    }
}
