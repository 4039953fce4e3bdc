//! `/proc` as a source. This source reports sums of waits, for hosts where BPF is not available.
//!
//! Each reading reads only one small file of each thread, `schedstat`. If this file has not changed, the thread has neither run
//! nor completed a wait, so we do not read its other files.

pub(crate) mod files;
pub(crate) mod follow;
#[cfg(test)]
mod tests;
pub mod text;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::Arc,
    time::Instant,
};

use cgscope_ledger::{Loss, wire::serial};
use cgscope_model::{
    Accounts, ByCause, Cause, CpuTimes, Hist, Losses, Sample, TaskReading, Totals, doctor::Facts, printable,
};

use super::{Changes, Source};
use crate::{
    Failure, Options,
    cgroups::CgroupTree,
    clock::{Ticks, monotonic_ns},
    facts::{self, CgroupMounts},
    placement::{Active, NodesOfCpus},
};
use files::{CgroupIds, ProcFiles};
use follow::Follow;
use text::Schedstat;

/// Number of readings after which we re-read the cgroup of an idle task, which can also be moved.
const CGROUP_EVERY: u64 = 16;

struct KnownThread {
    schedstat: Schedstat,
    start_ticks: u64,
    is_dead: bool,
    seen: u64,
    changed: u64,
    /// Shared with all samples since the last change.
    reading: Arc<TaskReading>,
}

pub(crate) struct CoarseSource {
    files: ProcFiles,
    cgroups: Option<CgroupIds>,
    follow: Follow,
    nodes: BTreeMap<u32, u32>,
    ticks: Ticks,
    known: HashMap<u32, KnownThread>,
    /// The tasks that ran or waited between the last two readings.
    active: Vec<Active>,
    no_waits: Arc<Hist>,
    accounts: bool,
    number: u64,
    read_ns: Option<u64>,
    /// Whether we can count forks: true if `/proc` shows every task that [`text::forks`] counts.
    counts_forks: bool,
    forks: Forks,
    losses: Losses,
}

impl Source for CoarseSource {
    fn read(&mut self, _: &mut Changes) -> Result<Sample, Failure> {
        let now_ns = monotonic_ns();
        self.number += 1;
        self.active.clear();
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.begin();
        }
        let forks = self.files.of_host("stat").and_then(text::forks);
        let pids = self.follow.processes(&mut self.files, forks);
        for pid in pids.map_err(|error| Failure::of_interval("/proc", &error))? {
            let Some((threads, tids)) = self.files.threads(pid) else { continue };
            for tid in tids {
                if self.follow.wants(pid, tid) {
                    let _ = self.read_thread(threads.as_fd(), pid, tid);
                }
            }
        }
        self.known.retain(|_, known| {
            let is_there = known.seen == self.number;
            self.losses.add(Loss::TaskEndUnseen, u64::from(!is_there && !known.is_dead));
            is_there
        });
        let unseen = self.forks.unseen(forks);
        if self.counts_forks {
            self.losses.add(Loss::TaskUnseen, unseen);
        }
        self.read_ns = Some(now_ns);
        // Include a task that has just exited, with its last figures.
        let shown = self.known.values().filter(|known| !known.is_dead || known.changed == self.number);
        let mut tasks: Vec<Arc<TaskReading>> = shown.map(|known| known.reading.clone()).collect();
        tasks.sort_unstable_by_key(|task| task.serial);
        Ok(Sample { tasks, ..Sample::default() })
    }

    fn active(&self) -> &[Active] {
        &self.active
    }

    fn cgroups_of_tasks(&self) -> HashSet<u64> {
        self.known.values().map(|known| known.reading.cgroup_id).collect()
    }

    fn keep(&mut self, tasks: &[Arc<TaskReading>], places: &[usize]) {
        for task in places.iter().map(|place| &tasks[*place]) {
            let known = self.known.get_mut(&task.tid).filter(|known| known.reading.serial == task.serial);
            known.into_iter().for_each(|known| known.reading = task.clone());
        }
    }

    fn learn_nodes(&mut self, nodes: &NodesOfCpus) -> Result<(), Failure> {
        self.nodes = nodes.clone();
        Ok(())
    }

    fn report_cgroups(&mut self, tree: &mut CgroupTree, now: Instant) {
        if let Some(cgroups) = &self.cgroups {
            cgroups.report(tree, now);
        }
    }

    fn losses(&self) -> Result<Losses, Failure> {
        Ok(self.losses.clone())
    }
}

impl CoarseSource {
    pub(crate) fn start(
        options: &Options,
        mounts: &CgroupMounts,
        nodes: BTreeMap<u32, u32>,
    ) -> Result<Box<dyn Source>, Failure> {
        let root = Path::new("/");
        let facts = facts::gather(root);
        let mut files = opened(root, &facts)?;
        let ticks = Ticks::of_this_host();
        let since_ticks = ticks.at(monotonic_ns());
        let follow = Follow::new(&options.selection, since_ticks, &mut files);
        let counts_forks = matches!(follow, Follow::All)
            && facts.initial_pid_namespace == Some(true)
            && facts.hides_processes == Some(false);
        Ok(Box::new(Self {
            files,
            cgroups: CgroupIds::new(root, mounts),
            follow,
            nodes,
            ticks,
            known: HashMap::new(),
            active: Vec::new(),
            no_waits: Arc::default(),
            accounts: options.accounts.is_some(),
            number: 0,
            read_ns: None,
            counts_forks,
            forks: Forks::default(),
            losses: Losses::default(),
        }))
    }

    /// Whether the thread is known and has not run since the last reading. If so, only its cgroup can have changed, which we
    /// re-read at times.
    fn has_rested(&mut self, threads: BorrowedFd<'_>, pid: u32, tid: u32, schedstat: Schedstat) -> bool {
        let is_as_it_was =
            |known: &&mut KnownThread| known.schedstat == schedstat && known.reading.tgid == pid;
        let Some(known) = self.known.get_mut(&tid).filter(is_as_it_was) else { return false };
        known.seen = self.number;
        if (self.number + u64::from(tid)).is_multiple_of(CGROUP_EVERY) {
            let id = cgroup_id(&mut self.files, self.cgroups.as_mut(), threads, tid);
            if let Some(cgroup_id) = id.filter(|id| *id != known.reading.cgroup_id) {
                Arc::make_mut(&mut known.reading).cgroup_id = cgroup_id;
            }
        }
        true
    }

    fn read_thread(&mut self, threads: BorrowedFd<'_>, pid: u32, tid: u32) -> Option<()> {
        let schedstat = self.files.of_thread(threads, tid, "schedstat").and_then(text::schedstat)?;
        if self.has_rested(threads, pid, tid, schedstat) {
            return Some(());
        }
        let stat = self.files.of_thread(threads, tid, "stat").and_then(text::stat)?;
        let (start_ticks, is_dead, cpu, state) = (stat.start_ticks, stat.is_dead(), stat.cpu, stat.state);
        let before = self.known.get(&tid).filter(|known| known.start_ticks == start_ticks);
        let accounts = self.accounts.then(|| {
            let before = before.and_then(|known| known.reading.accounts.as_ref()).map(|before| before.cpu);
            let cpu = cpu_times(&stat, schedstat.on_cpu_ns, self.ticks, &before.unwrap_or_default());
            // `/proc` shows neither what blocks a task, nor how it spent the time between the last reading and its exit.
            Arc::new(Accounts { cpu, ..Accounts::default() })
        });
        let comm = comm_of(stat.comm, before);
        let Schedstat { on_cpu_ns, run_delay_ns, waits } = schedstat;
        let (voluntary, involuntary) =
            self.files.of_thread(threads, tid, "status").and_then(text::switches)?;
        let cgroup_id = cgroup_id(&mut self.files, self.cgroups.as_mut(), threads, tid);
        let start_ns = before.map_or_else(|| self.start_ns(start_ticks), |known| known.reading.start_ns);
        let reading = Arc::new(TaskReading {
            accounts,
            serial: before.map_or_else(|| serial(tid, start_ns), |known| known.reading.serial),
            tid,
            tgid: pid,
            comm,
            start_ns,
            // If the cgroup was removed while the task exited, use the task's last known cgroup.
            cgroup_id: cgroup_id.or(before.map(|known| known.reading.cgroup_id)).unwrap_or_default(),
            cpu,
            node: self.nodes.get(&cpu).copied(),
            state,
            scheduling: before.and_then(|known| known.reading.scheduling),
            totals: Totals {
                waits,
                wait_ns: run_delay_ns,
                run_delay_ns,
                on_cpu_ns,
                voluntary,
                involuntary,
                by_cause: ByCause::only(Cause::Unattributed, run_delay_ns),
                ..Totals::default()
            },
            hist: self.no_waits.clone(),
            ..TaskReading::default()
        });
        self.forks.new += u64::from(before.is_none());
        self.active.push(Active::between(before.map(|known| &*known.reading), &reading));
        let (seen, changed) = (self.number, self.number);
        let known = KnownThread { schedstat, start_ticks, is_dead, seen, changed, reading };
        if let Some(old) = self.known.insert(tid, known)
            && old.start_ticks != start_ticks
        {
            self.losses.add(Loss::TaskEndUnseen, u64::from(!old.is_dead));
        }
        Some(())
    }

    /// Returns the start of a task, ns. If the coarse ticks leave open whether the task started before the last reading, we
    /// assume that it started afterwards.
    fn start_ns(&self, ticks: u64) -> u64 {
        let start_ns = self.ticks.monotonic_ns(ticks);
        match self.read_ns {
            Some(read_ns) if start_ns + self.ticks.length_ns > read_ns => start_ns.max(read_ns),
            _ => start_ns,
        }
    }
}

/// Returns the user and system time, no less than `before`. Scales the coarse ticks of `/proc` to the exact run time.
pub(crate) fn cpu_times(stat: &text::Stat<'_>, ran_ns: u64, ticks: Ticks, before: &CpuTimes) -> CpuTimes {
    let [user_ns, system_ns, guest_ns] =
        [stat.user_ticks, stat.system_ticks, stat.guest_ticks].map(|count| ticks.ns(count));
    CpuTimes::scaled(user_ns, system_ns, guest_ns, ran_ns, before)
}

fn comm_of(comm: &[u8], before: Option<&KnownThread>) -> Arc<str> {
    let comm = String::from_utf8_lossy(comm);
    match before {
        Some(known) if *known.reading.comm == *comm => known.reading.comm.clone(),
        _ => printable(&comm),
    }
}

fn cgroup_id(
    files: &mut ProcFiles,
    cgroups: Option<&mut CgroupIds>,
    threads: BorrowedFd<'_>,
    tid: u32,
) -> Option<u64> {
    cgroups?.id(files.of_thread(threads, tid, "cgroup")?)
}

#[derive(Debug, Default)]
struct Forks {
    /// Number of forks on this host until the last reading.
    forks: Option<u64>,
    new: u64,
    /// Number of new tasks that we have seen but `forks` does not include yet, because they were forked during the reading.
    early: u64,
}

impl Forks {
    /// Returns the number of unseen tasks since the last reading. The caller must read `forks` before it reads the tasks.
    fn unseen(&mut self, forks: Option<u64>) -> u64 {
        let seen = std::mem::take(&mut self.new) + self.early;
        let before = std::mem::replace(&mut self.forks, forks);
        let Some(made) = forks.zip(before).map(|(now, before)| now.saturating_sub(before)) else { return 0 };
        self.early = seen.saturating_sub(made);
        made.saturating_sub(seen)
    }
}

/// Opens `/proc`. Fails if `/proc` is unreadable, or the kernel keeps no sums of waits.
fn opened(root: &Path, facts: &Facts) -> Result<ProcFiles, Failure> {
    if facts.sched_info == Some(false) {
        return Err(Failure::of_mode(
            "the kernel keeps no sums of waits (/proc/self/schedstat is absent or zero)",
            "they cannot be measured in the coarse mode either",
            "boot a kernel built with CONFIG_TASK_DELAY_ACCT=y or CONFIG_SCHEDSTATS=y, and without `nodelayacct`",
        ));
    }
    ProcFiles::open(&root.join("proc")).map_err(|error| {
        Failure::of_mode(
            format!("/proc cannot be read ({error})"),
            "nothing can be measured",
            "mount -t proc proc /proc",
        )
    })
}
