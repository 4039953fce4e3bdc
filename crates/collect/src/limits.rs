//! Reads the CPU limits of cgroups and their effects, from the files of v2, v1 or both.
//!
//! Parsers are plain functions on text. They return `None` for text in a format that the kernel does not write. [`LimitFiles`]
//! reads as few files as possible, because with 10,000 cgroups these reads would be most of the cost of a sample. Settings rarely
//! change, so one read of the settings serves several samples. Effects are read only for cgroups with a limit.

use std::path::{Path, PathBuf};
use std::{collections::HashMap, os::unix::fs::MetadataExt, sync::Arc, time::Instant};

use cgscope_model::{CgroupReading, weight_of_shares};
use rustix::fs::CWD;

use crate::{
    facts::{self, cgroup_mounts, mount_v1, parse_cpu_list},
    memory::{numa_stat, numa_stat_v1},
    source::coarse::files::read,
};

/// Minimum number of reads of a cgroup between two reads of its settings.
const SETTINGS_EVERY: u64 = 5;

/// Parses the quota (`None` for `max`) and the period in `cpu.max`, µs. Both are `None` if the text does not have the format of
/// `cpu_max_show` (Linux 4.15).
pub fn cpu_max(text: &str) -> (Option<u64>, Option<u64>) {
    let Some((quota, period)) = text.trim().split_once(' ') else { return (None, None) };
    match (quota, quota.parse().ok(), period.parse().ok()) {
        ("max", _, Some(period)) => (None, Some(period)),
        (_, Some(quota), Some(period)) => (Some(quota), Some(period)),
        _ => (None, None),
    }
}

/// Adds the lines of `cpu.stat` from v2 (`..._usec`) or v1 (`..._time`, ns). Skips unknown lines.
pub fn cpu_stat(text: &str, into: &mut CgroupReading) {
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        let field = match name {
            "usage_usec" => &mut into.usage_ns,
            "user_usec" => &mut into.user_ns,
            "system_usec" => &mut into.system_ns,
            "nr_periods" => &mut into.nr_periods,
            "nr_throttled" => &mut into.nr_throttled,
            "throttled_usec" | "throttled_time" => &mut into.throttled_ns,
            "nr_bursts" => &mut into.nr_bursts,
            "burst_usec" | "burst_time" => &mut into.burst_ns,
            _ => continue,
        };
        let value = if name.ends_with("_usec") { ns(value) } else { number(value) };
        *field = value.or(*field);
    }
}

pub fn cpu_stat_local(text: &str) -> Option<u64> {
    let mut local = CgroupReading::default();
    cpu_stat(text, &mut local);
    local.throttled_ns
}

/// Parses the `some` and `full` totals of `cpu.pressure`, ns.
pub fn cpu_pressure(text: &str) -> (Option<u64>, Option<u64>) {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        ns(line.split(' ').find_map(|word| word.strip_prefix("total="))?)
    };
    (total("some "), total("full "))
}

/// Counts the CPUs in a list such as `0-3,8`. Returns `None` for an empty list, because nothing can run there.
pub fn cpu_count(text: &str) -> Option<u32> {
    let count = parse_cpu_list(text)?.len();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// Parses a file that contains only a number. Returns `None` for -1, which means no quota in v1.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn ns(us: &str) -> Option<u64> {
    number(us)?.checked_mul(1000)
}

/// Reads the limits of cgroups.
#[derive(Debug, Default)]
pub struct LimitFiles {
    mounts: Mounts,
    reader: Reader,
    /// Whether to read the memory by node, too. This takes as long as all other files: the kernel sums over all CPUs.
    pub(crate) reads_memory: bool,
    /// Maximum number of cgroups (at least 1) whose settings are re-read between two calls of [`LimitFiles::drop_unread`].
    /// Cgroups take turns. If there are at most five times this many cgroups, every fifth read of a cgroup re-reads its settings.
    pub(crate) settings_at_once: u64,
    known: HashMap<u64, KnownCgroup>,
    turn: u64,
    /// Whether [`LimitFiles::read_deferred`] re-reads settings, instead of [`LimitFiles::read`].
    is_deferring: bool,
    /// Ids and paths of the cgroups whose settings [`LimitFiles::read_deferred`] reads next.
    deferred: Vec<(u64, Box<str>)>,
}

#[derive(Debug, Default)]
struct KnownCgroup {
    settings: CgroupReading,
    reads: u64,
    /// Number of the cgroup. Different numbers spread the re-reads of cgroups that were first read together.
    turn: u64,
    is_read: bool,
    is_due: bool,
    counters: Option<Counters>,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Instant,
    usage_ns: Option<u64>,
    periods: Option<u64>,
    throttled: Option<u64>,
}

impl Counters {
    /// Whether the quota may have changed until `later`: the cgroup used more CPU time than the quota allows, or was throttled.
    fn contradict(&self, later: &Self, limits: &CgroupReading) -> bool {
        let came = |before: Option<u64>, now: Option<u64>| now?.checked_sub(before?);
        if came(self.throttled, later.throttled).is_some_and(|throttled| throttled != 0) {
            return true;
        }
        let (Some(quota_us), Some(period_us)) = (limits.quota_us, limits.period_us) else { return false };
        let Some(used_ns) = came(self.usage_ns, later.usage_ns) else { return false };
        let elapsed_us = later.at.duration_since(self.at).as_micros() as u64;
        let periods = elapsed_us / period_us.max(1) + 2;
        let most_us = quota_us.saturating_mul(periods).saturating_add(limits.burst_us.unwrap_or(0));
        let stands_still = came(self.periods, later.periods) == Some(0) && periods > 4;
        used_ns / 1_000 > if stands_still { quota_us } else { most_us }
    }
}

impl LimitFiles {
    /// Creates a reader for the hierarchies that are mounted now. `root` is `/` except in tests.
    pub fn new(root: &Path) -> Self {
        Self { mounts: Mounts::read(root), settings_at_once: u64::MAX, ..Self::default() }
    }

    /// Reads a cgroup by its id (the inode of its directory) and its path below the cpu controller's mount (`/a/b`).
    ///
    /// The first read includes the settings. Later, cgroups take turns: the settings of a cgroup are re-read once in its second
    /// to sixth read, and then in every fifth read (see `settings_at_once`). Effects are read every time if the cgroup has a
    /// quota or `whole` is set; otherwise never.
    ///
    /// Returns `None` if the cgroup was removed or replaced, and for a path with `..`. A call that need not read any file does
    /// not notice a removal. If the cgroup is removed during the read, the figures that were not read yet are missing.
    pub fn read(&mut self, id: u64, path: &str, whole: bool) -> Option<CgroupReading> {
        let has_effects = |settings: &CgroupReading| whole || settings.quota_us.is_some();
        let kept = self.kept(id, path);
        if kept.as_ref().is_some_and(|kept| !has_effects(kept)) {
            return kept;
        }
        let Some(path) = self.mounts.relative(id, path) else {
            self.known.remove(&id);
            return None;
        };
        let is_kept = kept.is_some();
        let mut reading = kept.unwrap_or_else(|| self.settings(id, path));
        if has_effects(&reading) {
            self.read_effects(path, &mut reading);
            let CgroupReading { usage_ns, nr_periods: periods, nr_throttled: throttled, .. } = reading;
            let counters = Counters { at: Instant::now(), usage_ns, periods, throttled };
            let before = self.known.get_mut(&id).and_then(|known| known.counters.replace(counters));
            if is_kept && before.is_some_and(|before| before.contradict(&counters, &reading)) {
                self.read_quota(path, &mut reading);
                if let Some(KnownCgroup { settings, .. }) = self.known.get_mut(&id) {
                    (settings.quota_us, settings.period_us) = (reading.quota_us, reading.period_us);
                    settings.burst_us = reading.burst_us;
                }
            }
        }
        Some(reading)
    }

    /// Keeps the data of a cgroup that is not read now.
    pub(crate) fn keep(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id) {
            known.is_read = true;
        }
    }

    /// Notes that a quota has throttled a task of this cgroup. If we know of no quota, the next read includes the settings.
    pub fn was_out_of_quota(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id) {
            known.is_due |= known.settings.quota_us.is_none();
        }
    }

    /// Drops cgroups that were not read since the last call. Call this regularly.
    pub fn drop_unread(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.is_read));
    }

    fn kept(&mut self, id: u64, path: &str) -> Option<CgroupReading> {
        let every = SETTINGS_EVERY.max((self.known.len() as u64).div_ceil(self.settings_at_once));
        // Subtract 1, because deferred settings appear one read later.
        let every = every - u64::from(self.is_deferring);
        let known = self.known.get_mut(&id)?;
        known.reads += 1;
        known.is_read = true;
        if std::mem::take(&mut known.is_due) {
            return None;
        }
        if (known.reads + known.turn) % every == 0 {
            if !self.is_deferring {
                return None;
            }
            self.deferred.push((id, path.into()));
        }
        Some(known.settings.clone())
    }

    /// Re-reads the settings that are due. After the first call of this function, [`read`](Self::read) leaves these settings to
    /// this function, so that no sample waits for them. `read` itself still reads the settings of new cgroups, and the settings
    /// that the counters contradict.
    pub(crate) fn read_deferred(&mut self) {
        self.is_deferring = true;
        for (id, path) in std::mem::take(&mut self.deferred) {
            let settings = self.mounts.relative(id, &path).map(|path| self.read_settings(id, path));
            match (settings, self.known.get_mut(&id)) {
                (Some(settings), Some(known)) => known.settings = settings,
                // The cgroup was removed. The next read notices this.
                (None, _) => drop(self.known.remove(&id)),
                (Some(_), None) => {}
            }
        }
    }

    fn settings(&mut self, id: u64, path: &str) -> CgroupReading {
        let settings = self.read_settings(id, path);
        let next = &mut self.turn;
        let known = self.known.entry(id).or_insert_with(|| {
            let turn = std::mem::replace(next, *next + 1);
            KnownCgroup { reads: 1, turn, is_read: true, ..KnownCgroup::default() }
        });
        known.settings = settings.clone();
        settings
    }

    fn read_settings(&mut self, id: u64, path: &str) -> CgroupReading {
        let cpuset = self.read_cpuset(path).filter(|cpuset| cpu_count(cpuset).is_some());
        let memory_by_node = if self.reads_memory { self.read_memory(path) } else { Vec::new() };
        let cpus = cpuset.as_deref().and_then(cpu_count);
        let mut settings = CgroupReading { id, cpus, cpuset, memory_by_node, ..Default::default() };
        self.read_quota(path, &mut settings);
        let Some(cpu) = &self.mounts.cpu else { return settings };
        let files = self.reader.enter(cpu, path);
        settings.idle = files.number("cpu.idle");
        settings.weight = if self.mounts.cpu_is_v2 {
            files.number("cpu.weight")
        } else {
            settings.rt_runtime_us = files.number("cpu.rt_runtime_us");
            files.number("cpu.shares").map(weight_of_shares)
        };
        settings
    }

    fn read_quota(&mut self, path: &str, into: &mut CgroupReading) {
        let Some(cpu) = &self.mounts.cpu else { return };
        let files = self.reader.enter(cpu, path);
        if self.mounts.cpu_is_v2 {
            (into.quota_us, into.period_us) = files.text("cpu.max").map_or((None, None), cpu_max);
            into.burst_us = files.number("cpu.max.burst");
        } else {
            into.quota_us = files.number("cpu.cfs_quota_us");
            into.period_us = files.number("cpu.cfs_period_us");
            into.burst_us = files.number("cpu.cfs_burst_us");
        }
    }

    fn read_cpuset(&mut self, path: &str) -> Option<Arc<str>> {
        let list = |text: &str| Arc::from(text.trim());
        if let Some(mount) = &self.mounts.cpuset_v1 {
            let files = self.reader.enter(mount, path);
            let names = ["cpuset.effective_cpus", "cpuset.cpus"];
            return names.into_iter().find_map(|name| files.text(name).map(list));
        }
        let mount = self.mounts.unified.as_deref()?;
        // If the cpu controller is in v1, this cgroup may be missing in v2. The ancestors of its path in v2 then say nothing
        // about this cgroup.
        if !self.mounts.cpu_is_v2 && !mount.join(path).is_dir() {
            return None;
        }
        let cpus = |path: &Path| self.reader.enter(mount, path).text("cpuset.cpus.effective").map(list);
        Path::new(path).ancestors().find_map(cpus)
    }

    fn read_memory(&mut self, path: &str) -> Vec<(u32, u64)> {
        let Mounts { memory_v1, unified, .. } = &self.mounts;
        let Some(mount) = memory_v1.as_ref().or(unified.as_ref()) else { return Vec::new() };
        let text = self.reader.enter(mount, path).text("memory.numa_stat").unwrap_or_default();
        let page_bytes = rustix::param::page_size() as u64;
        if memory_v1.is_some() { numa_stat_v1(text, page_bytes) } else { numa_stat(text) }
    }

    fn read_effects(&mut self, path: &str, into: &mut CgroupReading) {
        let Some(cpu) = &self.mounts.cpu else { return };
        let files = self.reader.enter(cpu, path);
        if let Some(text) = files.text("cpu.stat") {
            cpu_stat(text, into);
        }
        into.local_throttled_ns = files.text("cpu.stat.local").and_then(cpu_stat_local);
        if self.mounts.cpu_is_v2 {
            let pressure = files.text("cpu.pressure").map_or((None, None), cpu_pressure);
            (into.pressure_some_ns, into.pressure_full_ns) = pressure;
        } else if let Some(cpuacct) = &self.mounts.cpuacct_v1 {
            let files = self.reader.enter(cpuacct, path);
            into.usage_ns = files.number("cpuacct.usage");
            into.user_ns = files.number("cpuacct.usage_user");
            into.system_ns = files.number("cpuacct.usage_sys");
        }
    }
}

#[derive(Debug, Default)]
struct Mounts {
    cpu: Option<PathBuf>,
    cpu_is_v2: bool,
    unified: Option<PathBuf>,
    cpuset_v1: Option<PathBuf>,
    memory_v1: Option<PathBuf>,
    cpuacct_v1: Option<PathBuf>,
}

impl Mounts {
    fn read(root: &Path) -> Self {
        let mountinfo = facts::mountinfo(root);
        let mounts = cgroup_mounts(&mountinfo);
        let below = |mount: PathBuf| facts::below(root, &mount);
        let v1 = |controller| mount_v1(&mountinfo, controller).map(below);
        Self {
            cpu: mounts.cpu().map(|mount| facts::below(root, mount)),
            cpu_is_v2: mounts.cpu_is_v2(),
            cpuset_v1: v1("cpuset"),
            memory_v1: v1("memory"),
            cpuacct_v1: v1("cpuacct"),
            unified: mounts.unified.map(below),
        }
    }

    /// Converts the path of a cgroup to a path relative to the mount. Returns `None` if the cgroup is no longer there. Also
    /// returns `None` for a path with `..`, which could lead anywhere: the path may come from a file that another user wrote.
    fn relative<'p>(&self, id: u64, path: &'p str) -> Option<&'p str> {
        let path = path.trim_start_matches('/');
        if path.split('/').any(|name| name == "..") {
            return None;
        }
        let found = self.cpu.as_ref()?.join(path).metadata().ok()?;
        (found.is_dir() && found.ino() == id).then_some(path)
    }
}

/// Reads files of several directories into one buffer.
#[derive(Debug, Default)]
struct Reader {
    path: PathBuf,
    buffer: Vec<u8>,
}

impl Reader {
    fn enter(&mut self, mount: &Path, path: impl AsRef<Path>) -> &mut Self {
        self.path.clear();
        self.path.push(mount);
        self.path.push(path);
        self
    }

    /// Returns the text of a file. `None` if the file is missing, unreadable, too long or not text.
    fn text(&mut self, name: &str) -> Option<&str> {
        self.path.push(name);
        let text = read(CWD, self.path.as_path(), &mut self.buffer);
        self.path.pop();
        std::str::from_utf8(text?).ok()
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.text(name).and_then(number)
    }
}

#[cfg(test)]
mod tests;
