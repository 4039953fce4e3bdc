//! Finds the paths of cgroups by id. The id of a cgroup is the inode of its directory.
//!
//! The BPF side reports created and removed cgroups. A walk over the tree finds the other cgroups: cgroups that existed before
//! the measurement, and cgroups created by processes for which the kernel runs no tracing programs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::{fd::OwnedFd, unix::fs::MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{ffi::CString, fs, sync::Arc};

use cgscope_ledger::wire::{CgroupEvent, cgroup_event};
use cgscope_model::{
    path::{is_bounded, path_and_ancestors},
    printable,
};
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
};

use crate::source::coarse::text;

/// Minimum time between walks, slightly less than the usual interval. A host can create cgroups faster than we walk the tree.
const WALK_EVERY: Duration = Duration::from_millis(900);
/// Walks take at most 1/`WALK_SHARE` of the time, even if a user renames all the time or creates more cgroups than we keep.
const WALK_SHARE: u32 = 20;
/// Walks can use up to 1/[`WALK_SHARE`] of this time in advance: a rename shows in the next sample even after a slow walk.
const WALK_CREDIT: Duration = Duration::from_secs(10);
/// Time after its removal in which the figures of a cgroup can still change: the last task may be exiting, and some figures may
/// be unread.
const LINGERS: Duration = Duration::from_secs(1);
/// We walk again if the tree has more than twice the cgroups of the last walk plus `MANY`, because we may have missed removals.
const MANY: usize = 1000;
/// The id of the root cgroup in every hierarchy: `kernfs_create_root` creates this node first (Linux 3.14 to 6.18).
const ROOT_ID: u64 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TreeEvent {
    /// A cgroup was created. The path is `None` if it is too long.
    Made(u64, Option<Arc<str>>),
    Removed(u64),
    /// A cgroup was renamed. The cgroup and all its descendants have new paths.
    Renamed,
}

impl TreeEvent {
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

/// The tree of one hierarchy, as known from walks and events.
#[derive(Debug, Default)]
pub struct CgroupTree {
    pub(crate) mount: PathBuf,
    /// Whether the mount shows all cgroups of the hierarchy, at the kernel's paths. False in a container.
    pub(crate) shows_all: bool,
    paths: HashMap<u64, Arc<str>>,
    ids: HashMap<Arc<str>, u64>,
    /// When we noticed the removal of each removed cgroup. This includes cgroups whose path is unknown. If the mount shows only a
    /// part of the hierarchy, this also includes cgroups outside that part.
    removed: HashMap<u64, Instant>,
    /// A moment shortly before the creation of each cgroup that was created since we started, ns of CLOCK_MONOTONIC.
    pub(crate) made: HashMap<u64, u64>,
    suspects: HashSet<u64>,
    /// Cgroups that exist, but cannot be opened at the path that we keep, because we removed unprintable characters from this
    /// path.
    unreadable: HashSet<u64>,
    /// When we last walked the tree, and how many cgroups the tree had then.
    walked: Option<(Instant, usize)>,
    /// Time that must pass after the last walk, so that all walks together stay within [`WALK_SHARE`].
    walk_debt: Duration,
    bound: Bound,
    /// Total length of `paths`, bytes.
    bytes: usize,
    /// Whether the tree may have more cgroups than we keep.
    is_full: bool,
    /// Cgroups with figures that we do not keep, each with the path of its nearest kept ancestor, to which its figures are added.
    pub(crate) merged: HashMap<u64, Arc<str>>,
    /// Sum of the sizes of `merged` over all samples.
    merges: u64,
    is_renamed: bool,
    /// Whether events were lost, so that known cgroups may have been removed.
    pub(crate) has_missed: bool,
}

impl CgroupTree {
    /// Creates the tree of the hierarchy that is mounted at `mount`.
    pub fn new(mount: impl Into<PathBuf>) -> Self {
        let mut tree = Self { mount: mount.into(), ..Self::default() };
        tree.shows_all = tree.root_id() == Some(ROOT_ID);
        tree
    }

    /// Returns the id of the root.
    pub fn root_id(&self) -> Option<u64> {
        fs::metadata(&self.mount).ok().map(|root| root.ino())
    }

    /// Applies an event that happened after `since_ns` (CLOCK_MONOTONIC).
    pub(crate) fn receive_since(&mut self, event: TreeEvent, since_ns: u64, now: Instant) {
        let made = if let TreeEvent::Made(id, _) = &event { Some(*id) } else { None };
        self.receive(event, now);
        if let Some(id) = made.filter(|id| !self.merged.contains_key(id)) {
            self.made.insert(id, since_ns);
        }
    }

    pub(crate) fn receive(&mut self, event: TreeEvent, now: Instant) {
        match event {
            TreeEvent::Made(id, Some(path)) if is_bounded(&path) => {
                self.removed.remove(&id);
                match self.nearest_kept(&path) {
                    Some(above) => _ = self.merged.insert(id, above),
                    None => {
                        self.ids.insert(path.clone(), id);
                        self.keep(id, path);
                    }
                }
            }
            // The path is unknown. If a figure refers to the cgroup, a later walk finds the path, or that it is hidden.
            TreeEvent::Made(..) => {}
            TreeEvent::Removed(id) => {
                self.removed.entry(id).or_insert(now);
            }
            TreeEvent::Renamed => self.is_renamed = true,
        }
    }

    fn keep(&mut self, id: u64, path: Arc<str>) {
        self.bytes += path.len();
        if let Some(before) = self.paths.insert(id, path) {
            self.bytes -= before.len();
        }
    }

    /// Returns the nearest kept ancestor of `path` if the tree is full; otherwise `None`.
    fn nearest_kept(&mut self, path: &str) -> Option<Arc<str>> {
        let Bound { cgroups, bytes } = self.bound;
        self.is_full |= self.paths.len() >= cgroups || self.bytes + path.len() > bytes;
        if !self.is_full {
            return None;
        }
        let mut above = path_and_ancestors(path).skip(1);
        let kept = above.find_map(|above| self.ids.get_key_value(above).map(|(path, _)| path.clone()));
        Some(kept.unwrap_or_else(|| "/".into()))
    }

    pub(crate) fn suspect(&mut self, id: u64) {
        if self.paths.contains_key(&id) && !self.removed.contains_key(&id) && !self.unreadable.contains(&id) {
            self.suspects.insert(id);
        }
    }

    /// Finds the paths of `ids`, and checks known paths. Keeps the path of a removed cgroup as long as figures refer to it.
    pub fn learn(&mut self, ids: impl IntoIterator<Item = u64> + Clone, now: Instant) {
        let is_known = |id: &u64| *id == 0 || self.path(*id).is_some() || self.removed.contains_key(id);
        let unknown: Vec<u64> = ids.clone().into_iter().filter(|id| !is_known(id)).collect();
        self.suspects.retain(|id| !self.removed.contains_key(id));
        let has_passed = |pause| self.walked.is_none_or(|(at, _)| now.duration_since(at) >= pause);
        let may_walk = has_passed(self.walk_debt.saturating_sub(WALK_CREDIT));
        let is_due = may_walk && has_passed(WALK_EVERY);
        let has_grown = self.walked.is_some_and(|(_, cgroups)| self.paths.len() > MANY + 2 * cgroups);
        let is_wanted =
            !unknown.is_empty() || !self.suspects.is_empty() || self.has_missed || has_grown || self.is_full;
        if self.is_renamed && may_walk || is_due && is_wanted {
            self.walk(&ids.into_iter().filter(|id| *id != 0).collect(), &unknown, now);
        }
        if self.is_full {
            for id in unknown {
                if self.path(id).is_none() {
                    self.merged.insert(id, "/".into());
                }
            }
        }
    }

    fn walk(&mut self, ids: &HashSet<u64>, unknown: &[u64], now: Instant) {
        let begun = Instant::now();
        let walk = Walk::over(&self.mount, self.bound);
        let since = self.walked.map_or(Duration::MAX, |(at, _)| now.duration_since(at));
        self.walk_debt = self.walk_debt.saturating_sub(since) + begun.elapsed() * WALK_SHARE;
        self.is_full = walk.is_full;
        let mut hidden = 0;
        if walk.is_full {
            self.keep_only(&walk, ids, now);
        } else if walk.is_whole() {
            // If no events were lost, a hidden cgroup still exists, because the BPF side would have reported its removal.
            let is_hidden = |id: &u64| self.paths.get(id).is_some_and(|path| walk.hides(path));
            let known = self.paths.keys().chain(self.merged.keys());
            for id in known.chain(unknown).filter(|id| !walk.found.contains_key(id)) {
                if !self.has_missed && is_hidden(id) {
                    hidden += 1;
                } else {
                    self.removed.entry(*id).or_insert(now);
                }
            }
            let unmoved = |id: &u64| match walk.found.get(id) {
                Some(path) => self.paths.get(id) == Some(path),
                None => is_hidden(id),
            };
            self.unreadable.extend(self.suspects.drain().filter(unmoved));
            self.made.retain(|id, _| walk.found.contains_key(id) || self.paths.contains_key(id));
        }
        if walk.is_full || walk.is_whole() {
            (self.is_renamed, self.has_missed) = (false, false);
        }
        let found = walk.found;
        self.walked = Some((now, found.len() + hidden));
        self.removed.retain(|id, _| !found.contains_key(id));
        self.merged.retain(|id, _| !found.contains_key(id));
        self.paths.extend(found.iter().map(|(id, path)| (*id, path.clone())));
        let bytes = |paths: &HashMap<u64, Arc<str>>| paths.values().map(|path| path.len()).sum();
        self.bytes = bytes(&self.paths);
        if self.paths.len() > 2 * self.bound.cgroups || self.bytes > 2 * self.bound.bytes {
            // Only a tree whose owner never calls `drop_entries` becomes this large.
            self.paths.retain(|id, _| !self.removed.contains_key(id) || ids.contains(id));
            self.removed.retain(|id, _| ids.contains(id));
            self.bytes = bytes(&self.paths);
        }
        // If a removed and an existing cgroup have the same path, map the path to the existing cgroup.
        self.ids = self.paths.iter().map(|(id, path)| (path.clone(), *id)).collect();
        self.ids.extend(found.into_iter().map(|(id, path)| (path, id)));
    }

    /// Drops all cgroups that the walk did not keep, except removed ones. Their later figures are added to an ancestor.
    fn keep_only(&mut self, walk: &Walk, ids: &HashSet<u64>, now: Instant) {
        let is_found = |id: &u64| walk.found.contains_key(id);
        let removed = &self.removed;
        self.paths.retain(|id, _| is_found(id) || removed.contains_key(id));
        self.made.retain(|id, _| is_found(id) || removed.contains_key(id));
        self.suspects.clear();
        let kept: HashSet<&Arc<str>> = walk.found.values().collect();
        let gone: Vec<&u64> = ids.iter().filter(|id| !is_found(id) && !removed.contains_key(id)).collect();
        for id in gone {
            let seen = walk.left_out.get(id);
            if seen.is_none() && self.has_missed {
                // We may have missed its removal. If the cgroup still exists, its figures stay as long as it has tasks.
                self.removed.entry(*id).or_insert(now);
            }
            let above = seen.or_else(|| self.merged.get(id)).filter(|above| kept.contains(above));
            self.merged.insert(*id, above.cloned().unwrap_or_else(|| "/".into()));
        }
    }

    /// Returns the path of a cgroup below the mount. For a removed cgroup, this is the last known path. For a cgroup that is not
    /// kept, this is the path of the nearest kept ancestor. `None` if we never read a path.
    pub fn path(&self, id: u64) -> Option<&Arc<str>> {
        self.paths.get(&id).or_else(|| self.merged.get(&id))
    }

    /// Adds the number of cgroups that are now merged into an ancestor to a sum over all calls, and returns this sum.
    pub(crate) fn count_merged(&mut self) -> u64 {
        self.merges += self.merged.len() as u64;
        self.merges
    }

    pub(crate) fn is_removed(&self, id: u64) -> bool {
        self.removed_since(id).is_some()
    }

    /// Whether the cgroup was removed so long ago that its figures can no longer change.
    pub(crate) fn was_removed_long_ago(&self, id: u64, now: Instant) -> bool {
        self.removed_since(id).is_some_and(|since| now.duration_since(since) >= LINGERS)
    }

    /// Returns when we noticed the removal of a cgroup. If the mount shows only a part of the hierarchy, a cgroup that we never
    /// saw may be hidden, so it does not count as removed.
    fn removed_since(&self, id: u64) -> Option<Instant> {
        self.removed.get(&id).copied().filter(|_| self.shows_all || self.path(id).is_some())
    }

    pub(crate) fn drop_entries(&mut self, is_named: impl Fn(u64) -> bool, now: Instant) {
        self.removed.retain(|id, since| {
            let is_kept = is_named(*id) || now.duration_since(*since) < LINGERS;
            if !is_kept {
                self.unreadable.remove(id);
                self.made.remove(id);
                self.merged.remove(id);
                let path = self.paths.remove(id);
                self.bytes -= path.as_ref().map_or(0, |path| path.len());
                if let Some(path) = path.filter(|path| self.ids.get(path) == Some(id)) {
                    self.ids.remove(&path);
                }
            }
            is_kept
        });
        self.merged.retain(|id, _| is_named(*id));
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = (u64, &Arc<str>)> {
        self.paths.iter().map(|(id, path)| (*id, path)).filter(|(id, _)| !self.removed.contains_key(id))
    }

    pub(crate) fn len(&self) -> usize {
        let nameless = self.removed.keys().filter(|id| !self.paths.contains_key(id));
        self.paths.len() + nameless.count()
    }

    /// Iterates over the ids of the cgroup's known ancestors.
    pub fn ancestors(&self, id: u64) -> impl Iterator<Item = u64> + '_ {
        let path = self.path(id).map_or("", |path| path);
        let ends = path.char_indices().filter(|(_, c)| *c == '/').map(|(end, _)| end.max(1));
        // If the cgroup is not kept, `path` is the path of its nearest kept ancestor, so the whole path is also an ancestor.
        let last = self.merged.contains_key(&id).then_some(path.len()).filter(|length| *length > 1);
        let ends = ends.chain(last);
        ends.filter_map(|end| self.ids.get(&path[..end]).copied()).filter(move |ancestor| *ancestor != id)
    }

    /// Whether a cgroup exists now at this path.
    pub fn exists(&self, path: &str) -> bool {
        self.mount.join(path.trim_start_matches('/')).is_dir()
    }
}

/// Returns the number of the cpu controller's hierarchy in `/proc/self/cgroup`. v2 has 0, the first number (`cgrp_dfl_root`).
pub(crate) fn hierarchy(text: &str, is_v2: bool) -> Option<u64> {
    let cpu = || text::hierarchy(text.as_bytes(), Some("cpu")).and_then(|(number, _)| text::number(number));
    if is_v2 { Some(0) } else { cpu() }
}

/// Returns the paths of all readable cgroups below `mount`, by id.
pub fn all_paths(mount: &Path) -> HashMap<u64, Arc<str>> {
    Walk::over(mount, Bound::default()).found
}

#[cfg(test)]
mod tests;

/// Maximum number of kept cgroups, and maximum total length of their paths, bytes. Any user can create cgroups, and each cgroup
/// costs every reader of samples some KiB.
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

/// Number of bytes of a path for which the walk uses one extra turn. Most paths are shorter and use no extra turn.
const USUAL_BYTES: usize = 256;
/// Number of names that we may always read from a directory, even if many earlier names are still unread.
const LEAST_NAMES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) found: HashMap<u64, Arc<str>>,
    /// Directories whose children we can never see: the directory is unreadable or too deep, or the names are too long.
    pub(super) hidden: HashSet<Arc<str>>,
    /// Cgroups that the walk saw but did not keep because of the [`Bound`], each with the path of its nearest kept ancestor.
    pub(super) left_out: HashMap<u64, Arc<str>>,
    /// Total length of the paths in `found`, bytes.
    pub(super) bytes: usize,
    pub(super) is_full: bool,
    /// Number of directory names whose directories we have not opened yet.
    unread: usize,
    bound: Bound,
    /// Whether an error may have hidden cgroups outside the directories in `hidden`.
    is_cut_short: bool,
}

/// A directory that we have read, and its unfinished children.
struct Directory {
    /// Path below the mount, without a leading `/`.
    path: Vec<u8>,
    above: usize,
    unread: Vec<(u64, CString)>,
    /// Indices of the opened children that are not finished. The next child to continue is first.
    open: VecDeque<usize>,
    /// Number of turns that this directory must skip, because a long path below it took several turns.
    owed: usize,
}

impl Walk {
    /// Reads the cgroups below `mount`. If there are more cgroups than the bound allows, each sibling can keep the same number of
    /// descendants. Places that a sibling does not need go to the other siblings.
    pub(super) fn over(mount: &Path, bound: Bound) -> Self {
        let mut walk = Self { bound, ..Self::default() };
        let Ok(root) = openat(CWD, mount, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty()) else {
            walk.is_cut_short = true;
            return walk;
        };
        let mut directories = Vec::new();
        walk.read(&root, &mut directories, Vec::new(), 0);
        while let Some((above, (id, name))) = next(&mut directories) {
            walk.unread -= 1;
            let mut below = directories[above].path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend(name.to_bytes());
            let shown = shown(&below);
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
            if !is_bounded(&shown) {
                walk.hidden.insert(self::shown(&directories[above].path));
                continue;
            }
            match openat(&root, below.as_slice(), DIRECTORY, Mode::empty()) {
                Ok(directory) => walk.read(&directory, &mut directories, below, above),
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

    /// Whether the walk found everything except the hidden parts. If not even the root was found, the hierarchy is no longer
    /// mounted.
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

    /// Reads the directory with this path below the mount. `above` is the index of its parent directory.
    fn read(&mut self, fd: &OwnedFd, directories: &mut Vec<Directory>, path: Vec<u8>, above: usize) {
        let found = fstat(fd).and_then(|stat| {
            self.keep(stat.st_ino, shown(&path));
            subdirectories(fd, (2 * self.bound.cgroups).saturating_sub(self.unread).max(LEAST_NAMES))
        });
        let (unread, is_cut) = match found {
            Ok(found) => found,
            Err(error) => return self.missed(error, shown(&path)),
        };
        self.is_full |= is_cut;
        self.unread += unread.len();
        if !unread.is_empty() {
            let at = directories.len();
            if let Some(above) = directories.get_mut(above) {
                above.open.push_back(at);
            }
            directories.push(Directory { path, above, unread, open: VecDeque::new(), owed: 0 });
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

/// Takes the next cgroup to read, and the index of its parent directory. Directories with the same parent take turns.
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
                // When we entered this directory, it moved to the back of its parent's queue. It is finished, so remove it.
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

/// Returns up to `most` subdirectories, and whether there are more. Reads the whole list at once: deep walks need few buffers.
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
