//! The owners of cgroups. A short-lived cgroup is removed before its tasks' waits are reported. So the owner is looked up when a
//! sample first contains the cgroup, and kept as long as samples contain it.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{Sample, selection::path_and_ancestors};

/// For this long after a cgroup is first seen, its owner is looked up again, at intervals that double: systemd creates a cgroup
/// and then changes its owner. After that, the owner is looked up only if it is needed, at most once in this time.
const SETTLED: Duration = Duration::from_secs(10);

/// The directory of an existing cgroup.
#[derive(Clone, Copy, Debug)]
pub struct Directory {
    /// The inode number, which is the id of the cgroup.
    id: u64,
    uid: u32,
}

impl Directory {
    /// Reads the directory of the cgroup at a path below the mount point.
    pub fn of(mount: &Path, path: &str) -> Option<Self> {
        let metadata = fs::metadata(mount.join(path.trim_start_matches('/'))).ok()?;
        Some(Self { id: metadata.ino(), uid: metadata.uid() })
    }
}

#[derive(Debug, Default)]
pub struct Owners {
    known: HashMap<u64, Owner>,
    /// Owners of the cgroups in which tasks had exited at the last sample, by path. `None`: two cgroups have the same path but
    /// different owners, or the owner is not known.
    of_exited: HashMap<Arc<str>, Option<u32>>,
    round: u64,
}

#[derive(Debug)]
struct Owner {
    /// `None`: the cgroup was removed before the lookup, and only root owns the cgroups around it.
    uid: Option<u32>,
    /// When the owner was first looked up; `last` is the latest time.
    first: Instant,
    last: Instant,
    /// The last round in which a sample contained the cgroup.
    round: u64,
}

impl Owner {
    fn is_due(&self, is_asked_for: bool, now: Instant) -> bool {
        let age = self.last.saturating_duration_since(self.first);
        let rests = age.min(SETTLED);
        (age < SETTLED || is_asked_for) && now.saturating_duration_since(self.last) >= rests
    }
}

impl Owners {
    /// Looks up the owners of a sample's cgroups where they are unknown or due.
    pub fn look(&mut self, sample: &Sample, now: Instant, directory: impl Fn(&str) -> Option<Directory>) {
        // Cgroups that existed before the first sample usually keep their owner.
        let first = if self.known.is_empty() { now.checked_sub(SETTLED).unwrap_or(now) } else { now };
        self.round += 1;
        let exited: HashSet<u64> = sample.exited.iter().map(|exited| exited.cgroup_id).collect();
        self.of_exited.clear();
        for (id, path) in &sample.cgroups {
            let is_exited = exited.contains(id);
            let own = || directory(path).filter(|found| found.id == *id).map(|found| found.uid);
            let owner = self.known.entry(*id).or_insert_with(|| {
                let uid = own().or_else(|| owner_around(path, &directory));
                Owner { uid, first, last: now, round: 0 }
            });
            if owner.round > 0 && owner.is_due(is_exited, now) {
                owner.uid = own().or(owner.uid);
                owner.last = now;
            }
            owner.round = self.round;
            if is_exited {
                let of_path = self.of_exited.entry(path.clone()).or_insert(owner.uid);
                *of_path = of_path.filter(|uid| owner.uid == Some(*uid));
            }
        }
        if self.known.len() > sample.cgroups.len() {
            self.known.retain(|_, owner| owner.round == self.round);
        }
    }

    /// Whether tasks exited in the cgroup at this path, and it belongs to this user.
    pub fn is_owned(&self, path: &str, user: u32) -> bool {
        self.of_exited.get(path) == Some(&Some(user))
    }
}

/// Returns the owner of the nearest existing ancestor of a removed cgroup, unless that is root. A user's cgroups lie within a
/// cgroup delegated to that user.
fn owner_around(path: &str, directory: impl Fn(&str) -> Option<Directory>) -> Option<u32> {
    path_and_ancestors(path).skip(1).find_map(directory).map(|found| found.uid).filter(|uid| *uid != 0)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use cgscope_model::{ExitedReading, Totals};

    use super::*;

    const ALICE: u32 = 1_000;
    const BOB: u32 = 1_001;

    /// Directories, and the number of lookups.
    #[derive(Default)]
    struct Host {
        directories: RefCell<HashMap<String, Directory>>,
        looks: Cell<usize>,
    }

    impl Host {
        fn make(&self, path: &str, id: u64, uid: u32) {
            self.directories.borrow_mut().insert(path.into(), Directory { id, uid });
        }

        fn remove(&self, path: &str) {
            self.directories.borrow_mut().remove(path);
        }

        fn look(&self, owners: &mut Owners, sample: &Sample, now: Instant) {
            owners.look(sample, now, |path| {
                self.looks.set(self.looks.get() + 1);
                self.directories.borrow().get(path).copied()
            });
        }
    }

    /// A sample that contains these cgroups; in some of them tasks have exited.
    fn sample(named: &[(u64, &str)], exited: &[u64]) -> Sample {
        let exited = exited.iter().map(|id| ExitedReading {
            cgroup_id: *id,
            tasks: 1,
            max_ns: 0,
            totals: Totals::default(),
            accounts: None,
            hist: Arc::default(),
        });
        let cgroups = named.iter().map(|(id, path)| (*id, Arc::from(*path))).collect();
        Sample { cgroups, exited: exited.collect(), ..Sample::default() }
    }

    #[test]
    fn a_removed_cgroup_keeps_its_owner() {
        let (host, mut owners, now) = (Host::default(), Owners::default(), Instant::now());
        host.make("/a", 2, ALICE);
        host.look(&mut owners, &sample(&[(2, "/a")], &[]), now);
        host.remove("/a");
        let later = now + Duration::from_secs(60);
        host.look(&mut owners, &sample(&[(2, "/a")], &[2]), later);
        assert!(owners.is_owned("/a", ALICE) && !owners.is_owned("/a", BOB));
        // A new cgroup at the same path has another owner.
        host.make("/a", 3, BOB);
        host.look(&mut owners, &sample(&[(2, "/a")], &[2]), later + Duration::from_secs(60));
        assert!(owners.is_owned("/a", ALICE));
        host.look(&mut owners, &sample(&[(2, "/a"), (3, "/a")], &[2, 3]), later + Duration::from_secs(61));
        assert!(!owners.is_owned("/a", ALICE) && !owners.is_owned("/a", BOB), "one of the two");
        host.look(&mut owners, &sample(&[(3, "/a")], &[3]), later + Duration::from_secs(62));
        assert!(owners.is_owned("/a", BOB) && owners.known.len() == 1);
    }

    #[test]
    fn an_unseen_cgroup_has_the_owner_of_its_nearest_ancestor() {
        let (host, mut owners, now) = (Host::default(), Owners::default(), Instant::now());
        host.make("/", 1, 0);
        host.make("/user", 2, 0);
        host.make("/user/alice", 3, ALICE);
        let named = [(10, "/user/alice/app/short"), (11, "/user/short"), (12, "/user/bob/short")];
        host.look(&mut owners, &sample(&named, &[10, 11, 12]), now);
        assert!(owners.is_owned("/user/alice/app/short", ALICE));
        for path in ["/user/short", "/user/bob/short"] {
            assert!(![0, ALICE, BOB].iter().any(|user| owners.is_owned(path, *user)), "{path}");
        }
    }

    #[test]
    fn a_cgroup_that_changes_its_owner_soon_has_the_new_owner() {
        let (host, mut owners, now) = (Host::default(), Owners::default(), Instant::now());
        host.make("/old", 1, 0);
        host.look(&mut owners, &sample(&[(1, "/old")], &[]), now);
        host.make("/unit", 2, 0);
        let named = [(1, "/old"), (2, "/unit")];
        let at = |ms| now + Duration::from_millis(ms);
        host.look(&mut owners, &sample(&named, &[]), at(100));
        host.make("/unit", 2, ALICE);
        host.look(&mut owners, &sample(&named, &[]), at(200));
        host.remove("/unit");
        host.look(&mut owners, &sample(&named, &[2]), at(300));
        assert!(owners.is_owned("/unit", ALICE));
        // An old cgroup is looked up again if its owner is needed.
        host.make("/old", 1, BOB);
        host.look(&mut owners, &sample(&named, &[1]), at(11_000));
        assert!(owners.is_owned("/old", BOB));
    }

    #[test]
    fn old_cgroups_are_looked_up_once_and_new_ones_a_few_times() {
        let (host, mut owners, now) = (Host::default(), Owners::default(), Instant::now());
        let paths: Vec<String> = (1..=10_000).map(|id| format!("/{id}")).collect();
        let named: Vec<(u64, &str)> = (1..).zip(paths.iter().map(String::as_str)).collect();
        for (id, path) in &named {
            host.make(path, *id, ALICE);
        }
        let whole = sample(&named, &[]);
        let old = sample(&named[..9_999], &[]);
        host.look(&mut owners, &old, now);
        for round in 1..=100 {
            host.look(&mut owners, &whole, now + round * Duration::from_millis(500));
        }
        let looks = host.looks.get();
        assert!((10_000..10_020).contains(&looks), "{looks} in 100 samples");
    }
}
