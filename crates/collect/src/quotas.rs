//! Reads the quotas of all cgroups at two moments. The difference shows how a command was throttled, in whatever cgroup it ran.

use std::{collections::HashMap, path::Path, sync::Arc};

use cgscope_model::{CgroupReading, command_run::NamedProcess};

use crate::{cgroups, facts::CgroupMounts, limits::LimitFiles, own_cgroup::processes_below};

/// A cgroup with a quota: its path and its figures.
pub type QuotaReading = (Arc<str>, CgroupReading);

/// Reads the quotas of cgroups.
#[derive(Debug)]
pub struct QuotaFiles {
    /// The mounted cgroup hierarchies.
    pub mounts: CgroupMounts,
    files: LimitFiles,
    known: HashMap<u64, Arc<str>>,
}

impl QuotaFiles {
    /// Creates a reader for this host.
    pub fn of_this_host() -> Self {
        let host = Path::new("/");
        Self { mounts: CgroupMounts::read(host), files: LimitFiles::new(host), known: HashMap::new() }
    }

    /// Finds and reads new cgroups with a quota.
    pub fn find(&mut self) -> Vec<QuotaReading> {
        let paths = self.mounts.cpu().map(cgroups::all_paths).unwrap_or_default();
        let new = paths.iter().filter(|(id, _)| !self.known.contains_key(id));
        let new: Vec<_> = new.filter_map(|(id, path)| read(&mut self.files, *id, path)).collect();
        self.known.extend(new.iter().map(|(path, reading)| (reading.id, path.clone())));
        new
    }

    /// Reads the known cgroups again. Each cgroup takes some tens of microseconds.
    pub fn read(&mut self) -> Vec<QuotaReading> {
        self.known.iter().filter_map(|(id, path)| read(&mut self.files, *id, path)).collect()
    }

    /// Returns the processes in a cgroup of the cpu controller's hierarchy and in its descendants.
    pub fn processes(&self, path: &str) -> Vec<NamedProcess> {
        let directory = self.mounts.cpu().map(|mount| mount.join(path.trim_start_matches('/')));
        directory.map_or_else(Vec::new, |directory| processes_below(&directory))
    }
}

fn read(files: &mut LimitFiles, id: u64, path: &Arc<str>) -> Option<QuotaReading> {
    let reading = files.read(id, path, false).filter(|reading| reading.quota_us.is_some())?;
    Some((path.clone(), reading))
}
