//! Adds user and system time from `/proc` to samples that the daemon took on this host.

use std::{collections::HashMap, io, path::Path, sync::Arc};

use cgscope_model::{Accounts, CpuTimes, Sample, TaskReading};

use crate::{
    clock::Ticks,
    source::coarse::{cpu_times, files::ProcFiles, text},
};

/// Adds the split into user and system time to samples.
pub struct TimeSplit {
    files: ProcFiles,
    ticks: Ticks,
    /// Splits of the last sample, by serial.
    known: HashMap<u64, KnownSplit>,
    number: u64,
}

struct KnownSplit {
    on_cpu_ns: u64,
    /// `None` if the first sample of the task had no split. The task never gets a split later, because the first split would put
    /// all earlier time into one interval.
    accounts: Option<Arc<Accounts>>,
    reported_in: u64,
}

impl TimeSplit {
    /// Creates a reader for this host. Fails if `/proc` cannot be read.
    pub fn new() -> io::Result<Self> {
        let files = ProcFiles::open(Path::new("/proc"))?;
        Ok(Self { files, ticks: Ticks::of_this_host(), known: HashMap::new(), number: 0 })
    }

    /// Adds the split to every task of the sample that `/proc` shows with the same id and start time. Call this as soon as the
    /// sample arrives, because the split is read at the time of the call, and then scaled to the run time in the sample.
    pub fn add(&mut self, sample: &mut Sample) {
        self.number += 1;
        for task in &mut sample.tasks {
            let accounts = self.accounts(task);
            if task.accounts != accounts {
                Arc::make_mut(task).accounts = accounts;
            }
        }
        self.known.retain(|_, known| known.reported_in == self.number);
    }

    fn accounts(&mut self, task: &TaskReading) -> Option<Arc<Accounts>> {
        let on_cpu_ns = task.totals.on_cpu_ns;
        let before = self.known.get(&task.serial).map(|known| (known.on_cpu_ns, known.accounts.clone()));
        let accounts = match before {
            Some((ran_ns, accounts)) if accounts.is_none() || ran_ns == on_cpu_ns => accounts,
            before => {
                let cpu = before.and_then(|(_, accounts)| accounts).map(|accounts| accounts.cpu);
                // If the task has exited by now, the split is unknown, not zero.
                self.read(task, &cpu.unwrap_or_default())
            }
        };
        let known = KnownSplit { on_cpu_ns, accounts: accounts.clone(), reported_in: self.number };
        self.known.insert(task.serial, known);
        accounts
    }

    fn read(&mut self, task: &TaskReading, before: &CpuTimes) -> Option<Arc<Accounts>> {
        let stat =
            self.files.of_process(task.tgid, &format!("task/{}/stat", task.tid)).and_then(text::stat)?;
        if !self.ticks.is_start(stat.start_ticks, task.start_ns) {
            return None;
        }
        let cpu = cpu_times(&stat, task.totals.on_cpu_ns, self.ticks, before);
        Some(Arc::new(Accounts { cpu, ..Accounts::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_model::Totals;

    /// Returns a sample of the calling thread with this run time.
    fn me(on_cpu_ns: u64, serial: u64) -> Sample {
        let stat = std::fs::read("/proc/thread-self/stat").unwrap();
        let start_ticks = text::stat(&stat).unwrap().start_ticks;
        let ticks = Ticks::of_this_host();
        let task = TaskReading {
            serial,
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            tgid: std::process::id(),
            start_ns: ticks.monotonic_ns(start_ticks),
            totals: Totals { on_cpu_ns, ..Totals::default() },
            ..TaskReading::default()
        };
        Sample { tasks: vec![Arc::new(task)], ..Sample::default() }
    }

    #[test]
    fn user_and_system_time_sum_to_the_time_on_a_cpu() {
        let mut split = TimeSplit::new().unwrap();
        let cpu = |split: &mut TimeSplit, on_cpu_ns| {
            let mut sample = me(on_cpu_ns, 7);
            split.add(&mut sample);
            sample.tasks[0].accounts.clone().unwrap()
        };
        let first = cpu(&mut split, 1_000_000);
        assert_eq!(first.cpu.user_ns + first.cpu.system_ns, 1_000_000);
        assert_eq!(first.blocked, None, "only the hook measures that");
        let same = cpu(&mut split, 1_000_000);
        assert!(Arc::ptr_eq(&first, &same), "the task has not run");
        let later = cpu(&mut split, 3_000_000).cpu;
        assert_eq!(later.user_ns + later.system_ns, 3_000_000);
        assert!(later.user_ns >= first.cpu.user_ns && later.system_ns >= first.cpu.system_ns);
    }

    #[test]
    fn a_task_with_a_reused_id_never_gets_a_split() {
        let mut split = TimeSplit::new().unwrap();
        let mut other = me(1_000_000, 7);
        Arc::make_mut(&mut other.tasks[0]).start_ns += 3_600_000_000_000;
        split.add(&mut other);
        assert_eq!(other.tasks[0].accounts, None, "another with that id");
        let mut same = me(2_000_000, 7);
        split.add(&mut same);
        assert_eq!(same.tasks[0].accounts, None, "its earlier time is unknown");
        split.add(&mut Sample::default());
        let mut anew = me(2_000_000, 7);
        split.add(&mut anew);
        assert!(anew.tasks[0].accounts.is_some(), "it left, so its figures restart");
    }
}
