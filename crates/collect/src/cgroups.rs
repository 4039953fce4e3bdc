//! Paths of cgroups by id. The id is the inode number of the cgroup's directory.
//!
//! The BPF side tells what cgroups come and go. What it cannot tell is found by walking the tree: cgroups that were there
//! before, and those of processes for which the kernel runs no tracing programs.

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
#[derive(Debug, Default)]
pub struct CgroupTree {
    pub(crate) mount: PathBuf,
    /// The mount shows the whole hierarchy, so paths in it are the kernel's, and what is not there is nowhere. False as of a container.
    pub(crate) shows_all: bool,
    paths: HashMap<u64, Arc<str>>,
    ids: HashMap<Arc<str>, u64>,
    /// Since when it has been known that they are gone; some never had a path. What a mount does not show is here, too.
    gone: HashMap<u64, Instant>,
    /// Cgroups that were made while we look, and a moment before that, ns of CLOCK_MONOTONIC.
    made: HashMap<u64, u64>,
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
        let mut tree = Self { mount: mount.into(), ..Self::default() };
        tree.shows_all = tree.root_id() == Some(ROOT_ID);
        tree
    }

    /// The id of the root.
    pub fn root_id(&self) -> Option<u64> {
        fs::metadata(&self.mount).ok().map(|root| root.ino())
    }

    /// Takes in what the BPF side tells, which it had not told yet at `since_ns` (CLOCK_MONOTONIC).
    pub(crate) fn hear_since(&mut self, event: Event, since_ns: u64, now: Instant) {
        if let Event::Made(id, _) = &event {
            self.made.insert(*id, since_ns);
        }
        self.hear(event, now);
    }

    /// Takes in what is known of a cgroup.
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
        let walk = Walk::over(&self.mount);
        let mut hidden = 0;
        if walk.is_whole() {
            // What is hidden is taken to be there: its end is told, unless some ends were not.
            let is_hidden = |id: &u64| self.paths.get(id).is_some_and(|path| walk.hides(path));
            for id in self.paths.keys().chain(unknown).filter(|id| !walk.found.contains_key(id)) {
                if !self.has_missed && is_hidden(id) {
                    hidden += 1;
                } else {
                    self.gone.entry(*id).or_insert(now);
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
        self.walked = Some(Walked { at: now, cgroups: found.len() + hidden });
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
                self.made.remove(id);
                let path = self.paths.remove(id);
                if let Some(path) = path.filter(|path| self.ids.get(path) == Some(id)) {
                    self.ids.remove(&path);
                }
            }
            is_kept
        });
    }

    /// A moment before it was made, ns of CLOCK_MONOTONIC; `None`: it may have been there before us.
    pub(crate) fn made_after_ns(&self, id: u64) -> Option<u64> {
        self.made.get(&id).copied()
    }

    /// The cgroups whose path is known and of which no end is.
    pub(crate) fn living(&self) -> impl Iterator<Item = (u64, &Arc<str>)> {
        self.paths.iter().map(|(id, path)| (*id, path)).filter(|(id, _)| !self.gone.contains_key(id))
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

/// The number of the hierarchy of the cpu controller, from `/proc/self/cgroup`. That of v2 is 0 (`cgrp_dfl_root` is the first to get
/// one).
pub(crate) fn hierarchy(text: &str, is_v2: bool) -> Option<u64> {
    let cpu = || text::hierarchy(text.as_bytes(), Some("cpu")).and_then(|(number, _)| text::number(number));
    if is_v2 { Some(0) } else { cpu() }
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
    // What could not be read is not known.
    Walk::over(mount).found
}

#[cfg(test)]
mod tests;
