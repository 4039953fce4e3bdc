//! The CPU limits of a cgroup and what they did to it, read from its files: v2, v1 and both mounted together.
//!
//! The parsers are plain functions on text: what is not as the kernel writes it is `None`. [`LimitFiles`] reads below
//! a directory of the caller's choice, and little: what a cgroup is set to changes seldom and is remembered for a few
//! reads, of thousands of cgroups for more of them, and what its limits did is read only where there is a limit. With 10,000
//! cgroups the files are otherwise most of what a Sample costs.

use std::{
    collections::HashMap,
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use cgscope_model::{CgroupReading, limits::weight_of_shares};

use crate::{
    facts::{CgroupMounts, cgroup_mounts, parse_cpu_list},
    memory::{numa_stat, numa_stat_v1},
};

/// How many reads of a cgroup its settings are good for, at the least.
const SETTINGS_EVERY: u64 = 5;

/// The longest text of the files read here is a list of CPUs: 8192 of them, every second one, take 21 KB.
const LONGEST: usize = 32 << 10;

/// Quota and period of `cpu.max`, µs: `max 100000` is no quota. Both `None` for anything else than the kernel writes
/// (`cpu_max_show`, 4.15).
pub fn cpu_max(text: &str) -> (Option<u64>, Option<u64>) {
    let Some((quota, period)) = text.trim().split_once(' ') else { return (None, None) };
    match (quota, quota.parse().ok(), period.parse().ok()) {
        ("max", _, Some(period)) => (None, Some(period)),
        (_, Some(quota), Some(period)) => (Some(quota), Some(period)),
        _ => (None, None),
    }
}

/// Puts the lines of `cpu.stat` into `into`, those of v2 (`..._usec`) and those of v1 (`..._time`, ns). Lines that are
/// not known or not as expected change nothing.
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

/// The time of `cpu.stat.local`, ns. It is called as in `cpu.stat` and means another thing, see
/// [`CgroupReading::local_throttled_ns`].
pub fn cpu_stat_local(text: &str) -> Option<u64> {
    let mut local = CgroupReading::default();
    cpu_stat(text, &mut local);
    local.throttled_ns
}

/// The totals of `cpu.pressure`, ns: `some` and `full`.
pub fn cpu_pressure(text: &str) -> (Option<u64>, Option<u64>) {
    let total = |kind: &str| {
        let mut lines = text.lines().map(|line| line.split(' '));
        let mut words =
            lines.find_map(|mut words| words.next().filter(|word| *word == kind).map(|_| words))?;
        ns(words.find_map(|word| word.strip_prefix("total="))?)
    };
    (total("some"), total("full"))
}

/// How many CPUs a list like `0-3,8` names. `None` also for the empty one, which is no place to run.
pub fn cpu_count(text: &str) -> Option<u32> {
    let count = parse_cpu_list(text)?.len();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// A file that holds one number. -1 is how v1 writes that there is no quota, and no number here.
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
    /// Also read where memory lies, with the settings: of use where there are several nodes, and about as dear as all else together
    /// (the kernel sums it up over all CPUs).
    pub(crate) reads_memory: bool,
    /// Read again the settings of this many cgroups at most (at least 1) between two calls of [`LimitFiles::forget_unread`], by
    /// turns: those of each cgroup with every fifth read only where there are no more than five times as many.
    pub(crate) settings_at_once: u64,
    /// By id: a path may be given to another cgroup while the one before is still asked for.
    known: HashMap<u64, KnownCgroup>,
    /// The turn of the next cgroup that is new.
    turn: u64,
}

/// What is remembered of a cgroup.
#[derive(Debug, Default)]
struct KnownCgroup {
    /// With the settings only.
    settings: CgroupReading,
    reads: u64,
    /// So that cgroups first read together are not all read again together.
    turn: u64,
    /// Since [`LimitFiles::forget_unread`].
    is_read: bool,
    /// The settings are read again with the next read.
    is_due: bool,
    /// As they were last read.
    counters: Option<Counters>,
}

/// What is looked at to tell that a quota has been changed.
#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Instant,
    usage_ns: Option<u64>,
    periods: Option<u64>,
    throttled: Option<u64>,
}

impl Counters {
    /// True if what came until `later` is not what comes of that quota, or it ran out meanwhile.
    fn contradict(&self, later: &Self, limits: &CgroupReading) -> bool {
        let came = |before: Option<u64>, now: Option<u64>| now?.checked_sub(before?);
        if came(self.throttled, later.throttled).is_some_and(|throttled| throttled != 0) {
            return true;
        }
        let (Some(quota_us), Some(period_us)) = (limits.quota_us, limits.period_us) else { return false };
        let Some(used_ns) = came(self.usage_ns, later.usage_ns) else { return false };
        // One period may have begun before, and one may go on.
        let elapsed_us = later.at.duration_since(self.at).as_micros() as u64;
        let periods = elapsed_us / period_us.max(1) + 2;
        let most_us = quota_us.saturating_mul(periods).saturating_add(limits.burst_us.unwrap_or(0));
        let stands_still = came(self.periods, later.periods) == Some(0) && periods > 4;
        used_ns / 1_000 > if stands_still { quota_us } else { most_us }
    }
}

impl LimitFiles {
    /// Of the hierarchies mounted now, told by `proc/self/mountinfo` below `root`. `root` is `/` but in tests.
    pub fn new(root: &Path) -> Self {
        Self { mounts: Mounts::read(root), settings_at_once: u64::MAX, ..Self::default() }
    }

    /// Reads one cgroup by its path under the cpu controller's mount (`/` is the root, then `/a/b`) and its id, the
    /// inode number of that directory.
    ///
    /// The settings (quota, period, burst, weight, CPUs) are read at once, again with the second to sixth read of the
    /// cgroup, by turns, and from then on with every fifth; see `settings_at_once` for many.
    /// Everything else is read every time, but only for a cgroup with a quota of its own, or of any if `whole`.
    ///
    /// `None` where that cgroup is gone: there is no such directory, or it is another one by now. Of one of which nothing had
    /// to be read that is seen with a later read. Also for a path with `..` in it. A cgroup that goes while it is read lacks
    /// what was not read yet.
    pub fn read(&mut self, id: u64, path: &str, whole: bool) -> Option<CgroupReading> {
        let has_effects = |settings: &CgroupReading| whole || settings.quota_us.is_some();
        let kept = self.kept(id);
        if kept.as_ref().is_some_and(|kept| !has_effects(kept)) {
            return kept;
        }
        let path = below_the_mount(path).filter(|path| self.mounts.inode(path) == Some(id));
        let Some(path) = path else {
            self.known.remove(&id);
            return None;
        };
        let is_kept = kept.is_some();
        let mut reading = kept.unwrap_or_else(|| self.settings(id, path));
        if has_effects(&reading) {
            self.read_effects(path, &mut reading);
            if self.has_moved_on(id, &reading, Instant::now()) && is_kept {
                self.read_quota(path, &mut reading);
                if let Some(KnownCgroup { settings, .. }) = self.known.get_mut(&id) {
                    (settings.quota_us, settings.period_us) = (reading.quota_us, reading.period_us);
                    settings.burst_us = reading.burst_us;
                }
            }
        }
        Some(reading)
    }

    /// A quota without which a task could have run ran out in that cgroup: where none is known it is read again with the next read.
    pub fn was_out_of_quota(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id) {
            known.is_due |= known.settings.quota_us.is_none();
        }
    }

    /// Notes the counters of a cgroup, and whether its quota may be another by now: they are not what comes of the one that is
    /// known, or it ran out, and it may have become less.
    fn has_moved_on(&mut self, id: u64, now: &CgroupReading, at: Instant) -> bool {
        let Some(known) = self.known.get_mut(&id) else { return false };
        let counters =
            Counters { at, usage_ns: now.usage_ns, periods: now.nr_periods, throttled: now.nr_throttled };
        let before = known.counters.replace(counters);
        before.is_some_and(|before| before.contradict(&counters, now))
    }

    /// Forgets the cgroups that were not read since the last call. To be called now and then: a cgroup that nobody
    /// asks for again would be remembered for ever.
    pub fn forget_unread(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.is_read));
    }

    /// The settings as they were read; `None`: it is their turn to be read.
    fn kept(&mut self, id: u64) -> Option<CgroupReading> {
        let every = SETTINGS_EVERY.max((self.known.len() as u64).div_ceil(self.settings_at_once));
        let known = self.known.get_mut(&id)?;
        known.reads += 1;
        known.is_read = true;
        if std::mem::take(&mut known.is_due) {
            return None;
        }
        ((known.reads + known.turn) % every != 0).then(|| known.settings.clone())
    }

    fn settings(&mut self, id: u64, path: &str) -> CgroupReading {
        let settings = self.read_settings(id, path);
        match self.known.get_mut(&id) {
            Some(known) => known.settings = settings.clone(),
            None => {
                let (settings, turn) = (settings.clone(), self.turn);
                let known = KnownCgroup { settings, reads: 1, turn, is_read: true, ..Default::default() };
                self.known.insert(id, known);
                self.turn += 1;
            }
        }
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
        settings.weight = if self.mounts.cpu_is_v2 {
            files.number("cpu.weight")
        } else {
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
            if let Some(text) = files.text("cpuset.effective_cpus") {
                return Some(list(text));
            }
            return files.text("cpuset.cpus").map(list);
        }
        let mount = self.mounts.unified.as_deref()?;
        // With cpu in v1, v2 need not have this cgroup, and then its ancestors there say nothing about it.
        if !self.mounts.cpu_is_v2 && !mount.join(path).is_dir() {
            return None;
        }
        for path in Path::new(path).ancestors() {
            if let Some(text) = self.reader.enter(mount, path).text("cpuset.cpus.effective") {
                return Some(list(text));
            }
        }
        None
    }

    fn read_memory(&mut self, path: &str) -> Vec<(u32, u64)> {
        if let Some(mount) = &self.mounts.memory_v1 {
            let page_bytes = rustix::param::page_size() as u64;
            let text = self.reader.enter(mount, path).text("memory.numa_stat");
            return text.map_or_else(Vec::new, |text| numa_stat_v1(text, page_bytes));
        }
        let Some(mount) = &self.mounts.unified else { return Vec::new() };
        self.reader.enter(mount, path).text("memory.numa_stat").map_or_else(Vec::new, numa_stat)
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

/// The path as to be joined to a mount. It may come from a file that anyone wrote: with `..` it could lead anywhere.
fn below_the_mount(path: &str) -> Option<&str> {
    let path = path.trim_start_matches('/');
    path.split('/').all(|name| name != "..").then_some(path)
}

/// Where the files are, below the root.
#[derive(Debug, Default)]
struct Mounts {
    /// The hierarchy of the cpu controller.
    cpu: Option<PathBuf>,
    cpu_is_v2: bool,
    unified: Option<PathBuf>,
    cpuset_v1: Option<PathBuf>,
    memory_v1: Option<PathBuf>,
    /// The same as `cpu` where they are mounted together.
    cpuacct_v1: Option<PathBuf>,
}

impl Mounts {
    fn read(root: &Path) -> Self {
        let mountinfo = std::fs::read(root.join("proc/self/mountinfo")).unwrap_or_default();
        let mountinfo = String::from_utf8_lossy(&mountinfo);
        let mounts = cgroup_mounts(&mountinfo);
        let below = |mount: &Path| root.join(mount.strip_prefix("/").unwrap_or(mount));
        Self {
            cpu: mounts.cpu().map(below),
            cpu_is_v2: mounts.cpu_is_v2(),
            unified: mounts.unified.as_deref().map(below),
            cpuset_v1: mount_v1(&mountinfo, "cpuset").as_deref().map(below),
            memory_v1: mount_v1(&mountinfo, "memory").as_deref().map(below),
            cpuacct_v1: mount_v1(&mountinfo, "cpuacct").as_deref().map(below),
        }
    }

    /// Of the directory of that cgroup.
    fn inode(&self, path: &str) -> Option<u64> {
        let found = self.cpu.as_ref()?.join(path).metadata().ok()?;
        found.is_dir().then(|| found.ino())
    }
}

/// The v1 hierarchy with that controller, chosen among its mounts as the one with cpu is: the lines that have the
/// controller are shown to [`cgroup_mounts`] as if they had cpu. Their last field is the options.
pub(crate) fn mount_v1(mountinfo: &str, controller: &str) -> Option<PathBuf> {
    let has_it = |line: &&str| {
        line.rsplit_once(' ').is_some_and(|(_, options)| options.split(',').any(|one| one == controller))
    };
    let lines = mountinfo.lines().filter(has_it).map(|line| format!("{line},cpu\n"));
    let CgroupMounts { cpu_v1, .. } = cgroup_mounts(&lines.collect::<String>());
    cpu_v1
}

/// Reads files of one directory after the other, all into one buffer.
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

    /// `None` where it is missing, cannot be read, is longer than expected or no text.
    fn text(&mut self, name: &str) -> Option<&str> {
        self.path.push(name);
        let file = File::open(&self.path);
        self.path.pop();
        self.buffer.resize(LONGEST, 0);
        let length = fill(&mut file.ok()?, &mut self.buffer)?;
        std::str::from_utf8(&self.buffer[..length]).ok()
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.text(name).and_then(number)
    }
}

/// Reads to the end. `None` if it failed or the buffer is full: what was cut off cannot be told.
fn fill(file: &mut File, buffer: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]).ok()? {
            0 => return Some(length),
            more => length += more,
        }
    }
    None
}

#[cfg(test)]
mod tests;
