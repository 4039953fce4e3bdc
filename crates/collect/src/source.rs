//! Where the readings of tasks come from: the hook in the kernel, or `/proc`.

mod bpf;

use std::time::Instant;

use cgscope_layout::ledger::KERNEL;
use cgscope_model::{ExitedReading, Losses, Mode, PairReading, TaskReading};

use crate::{Failure, cgroups::CgroupTree, kernel_side::KernelSide};

pub(crate) use bpf::BpfSource;

/// What a source tells at one moment.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Ascending by serial.
    pub tasks: Vec<TaskReading>,
    /// Ascending by cgroup.
    pub exited: Vec<ExitedReading>,
    /// Ascending by key.
    pub pairs: Vec<PairReading>,
}

impl Found {
    /// The id of every cgroup that a figure names, some more than once.
    pub fn cgroup_ids(&self) -> impl Iterator<Item = u64> + '_ {
        let tasks = self.tasks.iter().map(|task| task.cgroup_id);
        let exited = self.exited.iter().map(|place| place.cgroup_id);
        let pairs = self.pairs.iter().flat_map(|pair| [pair.victim, pair.culprit]);
        tasks.chain(exited).chain(pairs).filter(|id| *id != KERNEL)
    }
}

/// One of the two.
pub(crate) enum Source {
    /// Every wait by itself.
    Bpf(Box<BpfSource>),
}

impl Source {
    /// Which one it is.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Bpf(_) => Mode::Bpf,
        }
    }

    /// Reads all tasks.
    pub fn read(&mut self) -> Result<Found, Failure> {
        match self {
            Self::Bpf(bpf) => bpf.read(),
        }
    }

    /// Says what it knows of cgroups. To be called after [`read`](Self::read): whatever that names was told of before.
    pub fn tell_of_cgroups(&mut self, tree: &mut CgroupTree, now: Instant) {
        match self {
            Self::Bpf(bpf) => bpf.tell_of_cgroups(tree, now),
        }
    }

    /// Losses since the start.
    pub fn losses(&self) -> Result<Losses, Failure> {
        match self {
            Self::Bpf(bpf) => bpf.losses(),
        }
    }

    /// Gives back what is held for cgroups that are gone. `found` is what was read last.
    pub fn give_back(&mut self, found: &Found, tree: &CgroupTree, now: Instant) -> Result<(), Failure> {
        match self {
            Self::Bpf(bpf) => bpf.give_back(found, tree, now),
        }
    }

    /// The hook, where there is one, to be measured.
    pub fn hook(&self) -> Option<&KernelSide> {
        match self {
            Self::Bpf(bpf) => Some(bpf.side()),
        }
    }

    /// Cgroups of which figures of exited tasks are held, and pairs of a victim and a culprit.
    pub fn held(&self) -> (usize, usize) {
        match self {
            Self::Bpf(bpf) => bpf.held(),
        }
    }
}
