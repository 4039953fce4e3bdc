//! Scheduling policies of tasks, and what restricts tasks to some CPUs: affinity masks and cpusets.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use cgscope_model::{Cpuset, Scheduling, TaskReading, placement::cpu_list};

use crate::{
    facts::{self, cgroup_mounts, mount_v1, parse_cpu_list},
    source::coarse::text,
};

/// Tasks that ran or waited less than this since the last sample are skipped, percent: they put no load on a node.
const BUSY_PERCENT: u64 = 1;
/// Maximum number of tasks read per sample, the busiest first. `sched_getaffinity` and `sched_getscheduler` take about 0.3 µs
/// each, and the files of a bound task about 20 µs. That is at most 5 ms, and only in every fifth sample.
const TASKS: usize = 256;
/// Number of samples for which a task's mask is valid.
const GOOD_FOR: u64 = 5;
/// More than the largest NR_CPUS. The kernel refuses a mask that is too short, and fills only a part of a longer one.
const MOST_CPUS: usize = 8192;
/// A flag of `sched_getscheduler`: children do not inherit the policy (2.6.32).
const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
/// A task flag since 3.10: the affinity cannot be set.
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// A task that ran, waited or changed since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    /// See [`TaskReading::serial`].
    pub(crate) serial: u64,
    /// Run and wait time since then, without the current wait, ns.
    pub(crate) since_ns: u64,
    /// Run time since then, ns; 0 if it was not known then.
    pub(crate) ran_ns: u64,
}

impl Active {
    /// Compares two readings of a task.
    pub(crate) fn between(before: Option<&TaskReading>, now: &TaskReading) -> Self {
        let active_ns = |task: &TaskReading| task.totals.on_cpu_ns.saturating_add(task.totals.wait_ns);
        let since_ns = active_ns(now).saturating_sub(before.map_or(0, active_ns));
        let before_ns = before.map_or(u64::MAX, |before| before.totals.on_cpu_ns);
        Self { serial: now.serial, since_ns, ran_ns: now.totals.on_cpu_ns.saturating_sub(before_ns) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Affinities {
    sample: u64,
    before_ns: u64,
    /// The tasks that were read lately, with the number of the sample.
    looks: HashMap<u64, (u64, Look)>,
}

#[derive(Clone, Debug)]
struct Look {
    cpus_allowed: Option<Arc<str>>,
    cpuset: Option<Arc<Cpuset>>,
    scheduling: Option<Scheduling>,
}

impl Affinities {
    /// Returns the places of the tasks that it changed. `tasks`: ascending by serial.
    pub(super) fn look_at(
        &mut self,
        tasks: &mut [Arc<TaskReading>],
        active: &[Active],
        mono_ns: u64,
        mut cpusets: CpusetFiles<'_>,
    ) -> Vec<usize> {
        self.sample += 1;
        let busy_ns = mono_ns.saturating_sub(self.before_ns) / 100 * BUSY_PERCENT;
        self.before_ns = mono_ns;
        let mut busy: Vec<(u64, usize)> = Vec::new();
        for Active { serial, since_ns, .. } in active {
            let Some(at) = place_of(tasks, *serial) else { continue };
            let since_ns = since_ns.saturating_add(tasks[at].pending_ns().unwrap_or(0));
            if since_ns >= busy_ns.max(1) {
                busy.push((since_ns, at));
            }
        }
        busy.sort_unstable_by(|a, b| b.cmp(a));
        for (_, at) in busy.into_iter().take(TASKS) {
            let (serial, tid) = (tasks[at].serial, tasks[at].tid);
            if self.looks.get(&serial).is_none_or(|(at, _)| self.sample - at >= GOOD_FOR) {
                self.looks.insert(serial, (self.sample, cpusets.look(tid)));
            }
        }
        self.apply(tasks)
    }

    fn apply(&mut self, tasks: &mut [Arc<TaskReading>]) -> Vec<usize> {
        let mut changed = Vec::new();
        let sample = self.sample;
        self.looks.retain(|serial, (at, look)| {
            let Some(place) = place_of(tasks, *serial) else { return false };
            let is_valid = sample - *at < GOOD_FOR;
            let task = &mut tasks[place];
            // A policy is valid for longer than a mask: policies rarely change, and earlier waits are judged by them.
            let cpus_allowed = look.cpus_allowed.clone().filter(|_| is_valid);
            let has = task.placement.as_ref().and_then(|placement| placement.cpus_allowed.as_ref());
            if task.scheduling != look.scheduling || has != cpus_allowed.as_ref() {
                let task = Arc::make_mut(task);
                task.scheduling = look.scheduling;
                if cpus_allowed.is_some() || task.placement.is_some() {
                    let placement = Arc::make_mut(task.placement.get_or_insert_default());
                    placement.cpus_allowed = cpus_allowed;
                    placement.cpuset = look.cpuset.clone().filter(|_| is_valid);
                }
                changed.push(place);
            }
            is_valid
        });
        changed
    }
}

fn place_of(tasks: &[Arc<TaskReading>], serial: u64) -> Option<usize> {
    tasks.binary_search_by_key(&serial, |task| task.serial).ok()
}

pub(super) struct CpusetFiles<'a> {
    pub(super) root: &'a Path,
    pub(super) online: &'a [u32],
    /// The mount point, and whether it is v2. Looked up for the first bound task.
    pub(super) mount: Option<Option<(PathBuf, bool)>>,
    pub(super) narrowing: HashMap<String, Option<Arc<Cpuset>>>,
    pub(super) masks: HashMap<String, Arc<str>>,
}

impl CpusetFiles<'_> {
    fn look(&mut self, tid: u32) -> Look {
        let mask = affinity(tid);
        let is_narrow = mask.as_ref().is_some_and(|mask| self.online.iter().any(|cpu| !mask.contains(cpu)));
        let scheduling = policy(tid).map(|policy| Scheduling {
            policy,
            is_bound: is_narrow && is_bound(self.root, tid).unwrap_or(false),
        });
        let cpuset = if is_narrow { self.cpuset_of(tid) } else { None };
        let cpus_allowed = mask.map(|mask| {
            let list = cpu_list(&mask);
            self.masks.entry(list.clone()).or_insert_with(|| list.into()).clone()
        });
        Look { cpus_allowed, cpuset, scheduling }
    }

    fn cpuset_of(&mut self, tid: u32) -> Option<Arc<Cpuset>> {
        let root = self.root;
        let (mount, is_v2) = self.mount.get_or_insert_with(|| cpuset_mount(root)).clone()?;
        let cgroups = fs::read(self.root.join(format!("proc/{tid}/cgroup"))).ok()?;
        let path = cpuset_path(&String::from_utf8_lossy(&cgroups), is_v2)?;
        let online = self.online;
        self.narrowing.entry(path).or_insert_with_key(|path| narrowing(&mount, is_v2, path, online)).clone()
    }
}

fn affinity(tid: u32) -> Option<Vec<u32>> {
    let mut mask = [0u64; MOST_CPUS / 64];
    // SAFETY: the kernel writes at most the given length.
    let length = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr().cast::<u8>())
    };
    (length > 0).then(|| {
        let bits = (0..MOST_CPUS).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1);
        bits.map(|cpu| cpu as u32).collect()
    })
}

fn policy(tid: u32) -> Option<u32> {
    // Not called through the C library, because musl refuses.
    // SAFETY: no pointers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
    u32::try_from(policy).ok().map(|policy| policy & !SCHED_RESET_ON_FORK)
}

/// Whether the thread's affinity cannot be set. Reads the thread's own `stat`: a process's `stat` sums over threads.
fn is_bound(root: &Path, tid: u32) -> Option<bool> {
    let stat = fs::read(root.join(format!("proc/{tid}/task/{tid}/stat"))).ok()?;
    Some(text::stat(&stat)?.flags & PF_NO_SETAFFINITY != 0)
}

fn cpuset_mount(root: &Path) -> Option<(PathBuf, bool)> {
    let mountinfo = facts::mountinfo(root);
    let v1 = mount_v1(&mountinfo, "cpuset").map(|mount| (mount, false));
    let (mount, is_v2) = v1.or_else(|| Some((cgroup_mounts(&mountinfo).unified?, true)))?;
    Some((facts::below(root, &mount), is_v2))
}

/// Returns the path of a task's cpuset in `/proc/PID/cgroup`; in v2 this is the task's cgroup.
pub(super) fn cpuset_path(cgroups: &str, is_v2: bool) -> Option<String> {
    let (_, path) = text::hierarchy(cgroups.as_bytes(), (!is_v2).then_some("cpuset"))?;
    let path = std::str::from_utf8(path).ok()?;
    (!path.split('/').any(|name| name == "..")).then(|| path.to_owned())
}

/// Returns the cpuset at `path` if it lacks online CPUs. It is named after the highest cgroup with the same CPUs.
pub(super) fn narrowing(mount: &Path, is_v2: bool, path: &str, online: &[u32]) -> Option<Arc<Cpuset>> {
    let names: &[&str] =
        if is_v2 { &["cpuset.cpus.effective"] } else { &["cpuset.effective_cpus", "cpuset.cpus"] };
    // A v2 cgroup without the controller has no such file: its parent's cpuset applies.
    let cpus = |at: &Path| {
        let directory = mount.join(at);
        let text = names.iter().find_map(|name| fs::read_to_string(directory.join(name)).ok())?;
        parse_cpu_list(&text)
    };
    let mut found: Option<(&Path, Vec<u32>)> = None;
    for at in Path::new(path.trim_start_matches('/')).ancestors() {
        match (cpus(at), &found) {
            (Some(cpus), None) => found = Some((at, cpus)),
            (Some(cpus), Some((_, same))) if cpus == *same => found = Some((at, cpus)),
            (Some(_), Some(_)) => break,
            (None, _) => {}
        }
    }
    let (at, cpus) = found?;
    if online.iter().all(|cpu| cpus.contains(cpu)) {
        return None;
    }
    let path = format!("/{}", at.display()).into();
    Some(Arc::new(Cpuset { path, cpus: cpu_list(&cpus).into() }))
}
