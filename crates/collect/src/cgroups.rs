//! Paths of cgroups by id. The id is the inode of the cgroup's directory.
//!
//! The BPF side reports created and removed cgroups. A walk over the tree finds the others: cgroups that existed before, and
//! cgroups of processes for which the kernel runs no tracing programs.

mod walk;

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_layout::wire::{CgroupEvent, cgroup_event};
use cgscope_model::printable;

use crate::source::coarse::text;
use walk::Walk;

/// Minimum time between walks, slightly less than the usual interval. It is needed because a host can create cgroups faster than
/// we walk them.
const WALK_EVERY: Duration = Duration::from_millis(900);
/// How long the figures of a removed cgroup may still change: its last task may be exiting, and not all figures may have been
/// read.
const LINGERS: Duration = Duration::from_secs(1);
/// Walk the tree again when it has twice as many cgroups as at the last walk, plus this many: removals may have been missed.
const MANY: usize = 1000;
/// The id of every hierarchy's root: the first node that `kernfs_create_root` creates (Linux 3.14 to 6.18).
const ROOT_ID: u64 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TreeEvent {
    /// A cgroup was created. The path is `None` if it was too long.
    Made(u64, Option<Arc<str>>),
    Removed(u64),
    /// A cgroup was renamed; it and everything below it have a new path.
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
    /// Whether the mount shows the whole hierarchy, so that its paths are the kernel's and a cgroup that it lacks does not exist.
    /// False in a container.
    pub(crate) shows_all: bool,
    paths: HashMap<u64, Arc<str>>,
    ids: HashMap<Arc<str>, u64>,
    /// Removed cgroups, some without a known path, and when the removal was noticed. If the mount shows only a part of the
    /// hierarchy, the cgroups outside that part are here, too.
    removed: HashMap<u64, Instant>,
    /// Cgroups created since we started, each with a moment before its creation, ns of CLOCK_MONOTONIC.
    made: HashMap<u64, u64>,
    suspects: HashSet<u64>,
    /// Cgroups that exist, but not at the path that we keep: that path lacks unprintable characters.
    unreadable: HashSet<u64>,
    /// When the tree was last walked, and how many cgroups it had.
    walked: Option<(Instant, usize)>,
    is_renamed: bool,
    /// Whether events were lost, so that known cgroups may have been removed.
    pub(crate) has_missed: bool,
}

impl CgroupTree {
    /// Creates the tree of the hierarchy mounted at `mount`.
    pub fn new(mount: impl Into<PathBuf>) -> Self {
        let mut tree = Self { mount: mount.into(), ..Self::default() };
        tree.shows_all = tree.root_id() == Some(ROOT_ID);
        tree
    }

    /// Returns the id of the root.
    pub fn root_id(&self) -> Option<u64> {
        fs::metadata(&self.mount).ok().map(|root| root.ino())
    }

    /// Adds an event that the BPF side had not yet reported at `since_ns` (CLOCK_MONOTONIC).
    pub(crate) fn receive_since(&mut self, event: TreeEvent, since_ns: u64, now: Instant) {
        if let TreeEvent::Made(id, _) = &event {
            self.made.insert(*id, since_ns);
        }
        self.receive(event, now);
    }

    pub(crate) fn receive(&mut self, event: TreeEvent, now: Instant) {
        match event {
            TreeEvent::Made(id, Some(path)) => {
                self.removed.remove(&id);
                self.ids.insert(path.clone(), id);
                self.paths.insert(id, path);
            }
            // A walk finds the path when a figure refers to the cgroup.
            TreeEvent::Made(_, None) => {}
            TreeEvent::Removed(id) => {
                self.removed.entry(id).or_insert(now);
            }
            TreeEvent::Renamed => self.is_renamed = true,
        }
    }

    pub(crate) fn suspect(&mut self, id: u64) {
        if self.paths.contains_key(&id) && !self.removed.contains_key(&id) && !self.unreadable.contains(&id) {
            self.suspects.insert(id);
        }
    }

    /// Finds the paths of `ids`, and checks known paths. A path is kept as long as figures refer to it, even if the cgroup is
    /// removed.
    pub fn learn(&mut self, ids: impl IntoIterator<Item = u64>, now: Instant) {
        let is_known = |id: &u64| *id == 0 || self.paths.contains_key(id) || self.removed.contains_key(id);
        let unknown: Vec<u64> = ids.into_iter().filter(|id| !is_known(id)).collect();
        self.suspects.retain(|id| !self.removed.contains_key(id));
        let is_due = self.walked.is_none_or(|(at, _)| now.duration_since(at) >= WALK_EVERY);
        let has_grown = self.walked.is_some_and(|(_, cgroups)| self.paths.len() > MANY + 2 * cgroups);
        let is_wanted = !unknown.is_empty() || !self.suspects.is_empty() || self.has_missed || has_grown;
        if self.is_renamed || is_due && is_wanted {
            self.walk(&unknown, now);
        }
    }

    fn walk(&mut self, unknown: &[u64], now: Instant) {
        let walk = Walk::over(&self.mount);
        let mut hidden = 0;
        if walk.is_whole() {
            // Assume that hidden cgroups exist: the BPF side reports their removal, unless events were lost.
            let is_hidden = |id: &u64| self.paths.get(id).is_some_and(|path| walk.hides(path));
            for id in self.paths.keys().chain(unknown).filter(|id| !walk.found.contains_key(id)) {
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
            (self.is_renamed, self.has_missed) = (false, false);
        }
        let found = walk.found;
        self.walked = Some((now, found.len() + hidden));
        self.removed.retain(|id, _| !found.contains_key(id));
        self.paths.extend(found.iter().map(|(id, path)| (*id, path.clone())));
        // If two cgroups have the same path, the existing one is used.
        self.ids = self.paths.iter().map(|(id, path)| (path.clone(), *id)).collect();
        self.ids.extend(found.into_iter().map(|(id, path)| (path, id)));
    }

    /// Returns the path below the mount; for a removed cgroup, its last path. `None` if it was never read.
    pub fn path(&self, id: u64) -> Option<&Arc<str>> {
        self.paths.get(&id)
    }

    pub(crate) fn is_removed(&self, id: u64) -> bool {
        self.removed_since(id).is_some()
    }

    /// Whether the cgroup was removed so long ago that no more figures are expected.
    pub(crate) fn was_removed_long_ago(&self, id: u64, now: Instant) -> bool {
        self.removed_since(id).is_some_and(|since| now.duration_since(since) >= LINGERS)
    }

    /// If the mount shows only a part of the hierarchy, it may hide the cgroup. Then only a cgroup that was once seen counts as
    /// removed.
    fn removed_since(&self, id: u64) -> Option<Instant> {
        self.removed.get(&id).copied().filter(|_| self.shows_all || self.paths.contains_key(&id))
    }

    pub(crate) fn drop_entries(&mut self, is_named: impl Fn(u64) -> bool, now: Instant) {
        self.removed.retain(|id, since| {
            let is_kept = is_named(*id) || now.duration_since(*since) < LINGERS;
            if !is_kept {
                self.unreadable.remove(id);
                self.made.remove(id);
                let path = self.paths.remove(id);
                if let Some(path) = path.filter(|path| self.ids.get(path) == Some(id)) {
                    self.ids.remove(&path);
                }
            }
            is_kept
        });
    }

    /// Returns a moment before the cgroup was created, ns of CLOCK_MONOTONIC; `None` if it may have existed before we started.
    pub(crate) fn made_after_ns(&self, id: u64) -> Option<u64> {
        self.made.get(&id).copied()
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = (u64, &Arc<str>)> {
        self.paths.iter().map(|(id, path)| (*id, path)).filter(|(id, _)| !self.removed.contains_key(id))
    }

    pub(crate) fn len(&self) -> usize {
        let nameless = self.removed.keys().filter(|id| !self.paths.contains_key(id));
        self.paths.len() + nameless.count()
    }

    /// Iterates over the ids of the known ancestors.
    pub fn ancestors(&self, id: u64) -> impl Iterator<Item = u64> + '_ {
        let path = self.paths.get(&id).map_or("", |path| path);
        let ends = path.char_indices().filter(|(_, c)| *c == '/').map(|(end, _)| end.max(1));
        ends.filter_map(|end| self.ids.get(&path[..end]).copied()).filter(move |ancestor| *ancestor != id)
    }

    /// Whether the cgroup exists now.
    pub fn exists(&self, path: &str) -> bool {
        self.mount.join(path.trim_start_matches('/')).is_dir()
    }
}

/// Returns the number of the cpu controller's hierarchy from `/proc/self/cgroup`; v2 is 0 (`cgrp_dfl_root` gets the first
/// number).
pub(crate) fn hierarchy(text: &str, is_v2: bool) -> Option<u64> {
    let cpu = || text::hierarchy(text.as_bytes(), Some("cpu")).and_then(|(number, _)| text::number(number));
    if is_v2 { Some(0) } else { cpu() }
}

/// The last figures of cgroups that were removed long ago. They are freed when two samples in a row agree.
#[derive(Debug, Default)]
pub(crate) struct Remains(HashMap<u64, u64>);

impl Remains {
    /// Takes a sum of rising figures for each id. Returns the ids to free.
    pub(crate) fn settled(&mut self, figures: HashMap<u64, u64>) -> HashSet<u64> {
        let before = std::mem::replace(&mut self.0, figures);
        let settled: HashSet<u64> =
            self.0.iter().filter(|(id, sum)| before.get(id) == Some(sum)).map(|(id, _)| *id).collect();
        self.0.retain(|id, _| !settled.contains(id));
        settled
    }
}

/// Returns the paths of all readable cgroups below `mount`, by id.
pub fn all_paths(mount: &Path) -> HashMap<u64, Arc<str>> {
    Walk::over(mount).found
}

#[cfg(test)]
mod tests;
