//! Reads cgroup files of a command, just before its release and as soon as it has ended.

use std::cell::RefCell;

use cgscope_collect::{
    own_cgroup::{OwnCgroup, Process, name_of_living},
    quotas::{QuotaFiles, QuotaReading},
};
use cgscope_model::{
    CgroupReading, Interval, QuotaUse,
    command_run::{CpuUse, HeldBy, Outlived, places, quotas_of},
};

/// Maximum number of quotas to report.
const QUOTAS: usize = 3;

#[derive(Debug, Default)]
struct Reading {
    own: Option<CgroupReading>,
    quotas: Vec<QuotaReading>,
    /// Processes in the command's own cgroup.
    left: Vec<Process>,
}

pub struct Watch {
    own: RefCell<Option<OwnCgroup>>,
    quotas: RefCell<QuotaFiles>,
    before: RefCell<Reading>,
    after: RefCell<Reading>,
}

pub struct Seen {
    pub cpu: Option<CpuUse>,
    pub own_cgroup: Option<String>,
    /// Waits are also known for the command's own cgroup alone (cgroup v2 only).
    pub own_is_distinct: bool,
    /// The quotas that limited the command.
    pub quotas: Vec<HeldBy>,
    pub outlived: Vec<Outlived>,
}

impl Watch {
    /// `own` is the cgroup of the command, if it has one.
    pub fn new(own: Option<OwnCgroup>) -> Self {
        Self {
            own: own.into(),
            quotas: QuotaFiles::of_this_host().into(),
            before: RefCell::default(),
            after: RefCell::default(),
        }
    }

    /// Finds all existing quotas, which takes a while.
    pub fn prepare(&self) {
        self.quotas.borrow_mut().find();
    }

    /// Reads the state just before the command is released.
    pub fn begin(&self) {
        *self.before.borrow_mut() = self.read();
    }

    /// Reads the state as soon as the command has ended.
    pub fn end(&self) {
        let mut reading = self.read();
        reading.quotas.extend(self.quotas.borrow_mut().find());
        *self.after.borrow_mut() = reading;
    }

    fn read(&self) -> Reading {
        let own = self.own.borrow();
        // First read the figures that our own reading changes.
        Reading {
            own: own.as_ref().map(OwnCgroup::stat),
            quotas: self.quotas.borrow_mut().read(),
            left: own.as_ref().map(OwnCgroup::processes).unwrap_or_default(),
        }
    }

    /// The result for the whole run. `left` are the processes in the last sample.
    pub fn seen(&self, interval: &Interval, left: &[Outlived]) -> Seen {
        let (before, after, own) = (self.before.borrow(), self.after.borrow(), self.own.borrow());
        // A process may have ended: `/proc` lists it until it is reaped.
        let left = left.iter().filter(|one| name_of_living(one.pid).is_some());
        let outlived = outlived(&after.left, left);
        Seen {
            cpu: cpu(before.own.as_ref(), after.own.as_ref()),
            own_cgroup: own.as_ref().map(|own| own.path().into()),
            own_is_distinct: own.is_some() && self.quotas.borrow().is_v2(),
            quotas: self.held_by(interval, &before.quotas, &after.quotas, &outlived),
            outlived,
        }
    }

    fn held_by(
        &self,
        interval: &Interval,
        before: &[QuotaReading],
        after: &[QuotaReading],
        ours: &[Outlived],
    ) -> Vec<HeldBy> {
        let earlier = |id| before.iter().find(|(_, reading)| reading.id == id).map(|(_, reading)| reading);
        let all = after
            .iter()
            .map(|(path, reading)| QuotaUse::new(path.clone(), earlier(reading.id), reading.clone()));
        let held = quotas_of(&places(interval), all).into_iter().take(QUOTAS);
        let others = |path: &str| {
            let there = self.quotas.borrow().processes(path);
            let others = there.into_iter().filter(|there| !ours.iter().any(|ours| ours.pid == there.pid));
            others.map(named).collect()
        };
        held.map(|quota| HeldBy { others: others(&quota.path), quota }).collect()
    }

    /// Removes the cgroup. Returns a sentence if that fails.
    pub fn remove(&self) -> Option<String> {
        let own = self.own.borrow_mut().take()?;
        own.remove().err().map(|failure| failure.to_string())
    }
}

fn named(process: Process) -> Outlived {
    Outlived { pid: process.pid, comm: process.comm }
}

/// Processes in the cgroup, and processes that we followed from fork to fork, each once.
fn outlived<'a>(in_cgroup: &[Process], followed: impl IntoIterator<Item = &'a Outlived>) -> Vec<Outlived> {
    let mut all: Vec<Outlived> = in_cgroup.iter().cloned().map(named).collect();
    all.extend(followed.into_iter().cloned());
    all.sort_by_key(|process| process.pid);
    all.dedup_by_key(|process| process.pid);
    all
}

fn cpu(before: Option<&CgroupReading>, after: Option<&CgroupReading>) -> Option<CpuUse> {
    let CgroupReading { usage_ns, user_ns, system_ns, .. } = after?.since(before);
    Some(CpuUse { usage_ns: usage_ns?, user_ns: user_ns?, system_ns: system_ns? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_outlived_the_command_is_listed_once() {
        let in_cgroup = [Process { pid: 7, comm: "a".into() }];
        let followed = [7, 5].map(|pid| Outlived { pid, comm: "b".into() });
        let all = outlived(&in_cgroup, &followed);
        assert_eq!(
            all.iter().map(|one| (one.pid, one.comm.as_str())).collect::<Vec<_>>(),
            [(5, "b"), (7, "a")]
        );
    }

    #[test]
    fn cpu_time_is_the_difference_between_two_readings() {
        let stat = |ns| CgroupReading {
            usage_ns: Some(3 * ns),
            user_ns: Some(2 * ns),
            system_ns: Some(ns),
            ..CgroupReading::default()
        };
        let cpu = cpu(Some(&stat(10)), Some(&stat(50)));
        assert_eq!(cpu, Some(CpuUse { usage_ns: 120, user_ns: 80, system_ns: 40 }));
        assert_eq!(super::cpu(None, None), None);
        assert_eq!(super::cpu(Some(&stat(1)), Some(&CgroupReading::default())), None, "it could not be read");
    }
}
