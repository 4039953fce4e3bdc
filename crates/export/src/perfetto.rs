//! A Perfetto trace. It has counters of waiting by cause, running and throttling: for the host, each cgroup including its
//! descendants, processes and busy threads. It also has the busy time of each CPU, and findings as instant events.
//!
//! A counter shows an interval's figure from the start of the interval. The values add up to the total.

pub mod proto;
mod tracks;

use std::{collections::BTreeMap, sync::Arc};

use cgscope_model::{Group, Interval, Totals, Wait, findings::findings, selection::path_and_ancestors, sum};

use crate::{About, Out, Result, Sink};
use proto::CounterUnit;
use tracks::{Present, Scope, Tracks};

/// The names of counters.
pub mod counters {
    /// Time of completed waits by cause; the cause follows, as in `waited: throttled`.
    pub const WAITED: &str = "waited: ";
    /// Time of completed waits, all causes.
    pub const WAITED_IN_ALL: &str = "waited";
    /// Completed waits.
    pub const WAITS: &str = "waits";
    /// Time on a CPU.
    pub const RAN: &str = "ran";
    /// Waiting tasks at the end of the interval.
    pub const WAITING: &str = "waiting at the end";
    /// The kernel's own sum over CPUs of the time in which the quota kept them from running the cgroup.
    pub const THROTTLED: &str = "cpu.stat throttled";
    /// The kernel's own count of periods in which the quota ran out.
    pub const PERIODS_THROTTLED: &str = "cpu.stat periods throttled";
    /// Time in which a CPU ran a task.
    pub const BUSY: &str = "busy";
    /// Losses of all kinds.
    pub const LOSSES: &str = "losses";
}

pub(crate) struct Perfetto {
    tracks: Tracks,
    about: About,
}

impl Perfetto {
    pub(crate) fn new(out: Out, about: About) -> Result<Self> {
        let tracks = Tracks::new(out, about.hostname.clone(), about.start_unix_ns)?;
        Ok(Self { tracks, about })
    }

    fn host(&mut self, interval: &Interval) -> Result<()> {
        self.group(interval, &Scope::Host, &interval.total())?;
        let losses = sum::total(interval.losses.shown().map(|(_, count)| count));
        self.tracks.count(&Scope::Host, counters::LOSSES, CounterUnit::Count, losses)?;
        for cpu in &interval.cpus {
            if let Some(busy_ns) = cpu.busy_ns {
                let name = format!("{} CPU {:>3}", counters::BUSY, cpu.cpu);
                self.tracks.count(&Scope::Cpus, &name, CounterUnit::TimeNs, busy_ns)?;
            }
        }
        Ok(())
    }

    fn cgroups(&mut self, interval: &Interval) -> Result<()> {
        for (path, group) in interval.by_cgroup() {
            self.group(interval, &Scope::Cgroup(path), &group)?;
        }
        for limits in interval.limits.iter().filter(|limits| limits.quota_us.is_some()) {
            let Some(path) = interval.cgroup_path(limits.id) else { continue };
            let scope = Scope::Cgroup(Some(path.clone()));
            if let Some(ns) = limits.throttled_ns {
                self.tracks.count(&scope, counters::THROTTLED, CounterUnit::TimeNs, ns)?;
            }
            if let Some(periods) = limits.nr_throttled {
                self.tracks.count(&scope, counters::PERIODS_THROTTLED, CounterUnit::Count, periods)?;
            }
        }
        Ok(())
    }

    fn group(&mut self, interval: &Interval, scope: &Scope, group: &Group) -> Result<()> {
        for (cause, _) in group.wait.by_cause.iter() {
            if let Some(ns) = group.wait.by_cause.known(cause, interval.mode) {
                let name = format!("{}{}", counters::WAITED, cause.name());
                self.tracks.count(scope, &name, CounterUnit::TimeNs, ns)?;
            }
        }
        if let Some(pending) = interval.mode.exact(|| group.pending) {
            self.tracks.count(scope, counters::WAITING, CounterUnit::Count, pending)?;
        }
        self.waits(scope, &group.wait, &group.totals)
    }

    fn waits(&mut self, scope: &Scope, wait: &Wait, totals: &Totals) -> Result<()> {
        self.tracks.count(scope, counters::WAITED_IN_ALL, CounterUnit::TimeNs, wait.total_ns)?;
        self.tracks.count(scope, counters::WAITS, CounterUnit::Count, wait.count)?;
        self.tracks.count(scope, counters::RAN, CounterUnit::TimeNs, totals.on_cpu_ns)
    }

    /// Writes counters of processes that ran or waited, and of busy threads.
    fn processes(&mut self, interval: &Interval) -> Result<()> {
        let names: BTreeMap<u32, Arc<str>> =
            interval.naming_tasks().into_iter().map(|(pid, task)| (pid, task.comm.clone())).collect();
        let name = |pid: u32| names.get(&pid).cloned().unwrap_or_default();
        for (pid, group) in interval.by_process() {
            if group.wait.count != 0 || group.totals.on_cpu_ns != 0 {
                self.waits(&Scope::Process(pid, name(pid)), &group.wait, &group.totals)?;
            }
        }
        for task in interval.tasks.iter().filter(|task| task.is_busy(interval.duration_ns)) {
            let reading = &task.reading;
            // The process first: the descriptor of a thread refers to its process.
            self.tracks.scope(&Scope::Process(reading.tgid, name(reading.tgid)))?;
            let thread = Scope::Thread(reading.tgid, reading.serial, reading.tid, reading.comm.clone());
            self.waits(&thread, &task.wait, &task.totals)?;
        }
        Ok(())
    }

    fn findings(&mut self, interval: &Interval) -> Result<()> {
        for finding in findings(interval, &self.about.host) {
            let cgroup = finding.cgroup.clone().map(|path| Scope::Cgroup(Some(path)));
            self.tracks.instant(&cgroup.unwrap_or(Scope::Host), &finding)?;
        }
        Ok(())
    }
}

impl Sink for Perfetto {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.tracks.now_unix_ns = interval.start_unix_ns;
        self.host(interval)?;
        self.cgroups(interval)?;
        self.processes(interval)?;
        self.findings(interval)?;
        let present = Present {
            processes: interval.readings().map(|task| task.tgid).collect(),
            threads: interval.readings().map(|task| task.serial).collect(),
            cgroups: interval.cgroups.iter().flat_map(|(_, path)| path_and_ancestors(path)).collect(),
        };
        self.tracks.end_interval(&present)?;
        self.tracks.now_unix_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.tracks.finish()
    }
}
