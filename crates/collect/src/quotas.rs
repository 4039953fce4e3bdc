//! The quotas of all cgroups at one moment, and again at a later one: what a command did to them while it ran, whichever of them
//! it came to be in.

use std::{collections::HashMap, path::Path, sync::Arc};

use cgscope_model::CgroupReading;

use crate::{
    cgroups,
    facts::CgroupMounts,
    limits::LimitFiles,
    own_cgroup::{Process, processes_below},
};

/// A cgroup with a quota, and what its files tell.
pub type QuotaReading = (Arc<str>, CgroupReading);

/// Reads the quotas of cgroups.
#[derive(Debug)]
pub struct QuotaFiles {
    mounts: CgroupMounts,
    files: LimitFiles,
    /// Those that had a quota, by id.
    known: HashMap<u64, Arc<str>>,
}

impl QuotaFiles {
    /// Of this host.
    pub fn new() -> Self {
        let host = Path::new("/");
        Self { mounts: CgroupMounts::read(host), files: LimitFiles::new(host), known: HashMap::new() }
    }

    /// The hierarchy of the cpu controller is v2.
    pub fn is_v2(&self) -> bool {
        self.mounts.cpu_is_v2()
    }

    /// Looks for cgroups with a quota that are not known yet, and returns what the files of these tell now.
    pub fn find(&mut self) -> Vec<QuotaReading> {
        let paths = self.mounts.cpu().map(cgroups::all_paths).unwrap_or_default();
        let new = paths.iter().filter(|(id, _)| !self.known.contains_key(id));
        let new: Vec<_> = new.filter_map(|(id, path)| read(&mut self.files, *id, path)).collect();
        self.known.extend(new.iter().map(|(path, reading)| (reading.id, path.clone())));
        new
    }

    /// What the files of those that are known tell now. Takes some tens of microseconds for each.
    pub fn read(&mut self) -> Vec<QuotaReading> {
        self.known.iter().filter_map(|(id, path)| read(&mut self.files, *id, path)).collect()
    }

    /// The processes that are in a cgroup of the cpu controller now, or below it.
    pub fn processes(&self, path: &str) -> Vec<Process> {
        let directory = self.mounts.cpu().map(|mount| mount.join(path.trim_start_matches('/')));
        directory.map_or_else(Vec::new, |directory| processes_below(&directory))
    }
}

fn read(files: &mut LimitFiles, id: u64, path: &Arc<str>) -> Option<QuotaReading> {
    let reading = files.read(id, path, false).filter(|reading| reading.quota_us.is_some())?;
    Some((path.clone(), reading))
}

impl Default for QuotaFiles {
    fn default() -> Self {
        Self::new()
    }
}
