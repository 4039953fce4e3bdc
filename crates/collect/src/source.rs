//! Where the readings of tasks come from: the hook in the kernel, or `/proc`.

mod bpf;
pub(crate) mod coarse;

use std::{sync::Arc, time::Instant};

use cgscope_layout::ledger::KERNEL;
use cgscope_model::{
    CpuReading, ExitedReading, Losses, Mode, PairReading, REST, REST_NAME, StackReading, TaskReading,
};

use crate::{Failure, cgroups::CgroupTree, kernel_side::KernelSide, placement::NodesOfCpus};

pub(crate) use bpf::BpfSource;
pub(crate) use coarse::CoarseSource;

/// What a source tells at one moment.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Ascending by serial.
    pub tasks: Vec<TaskReading>,
    /// Ascending by cgroup.
    pub exited: Vec<ExitedReading>,
    /// Ascending by key.
    pub pairs: Vec<PairReading>,
    /// Ascending by CPU.
    pub cpus: Vec<CpuReading>,
    /// Ascending by key.
    pub stacks: Vec<StackReading>,
}

impl Found {
    /// The id of every cgroup that a figure names, some more than once.
    pub fn cgroup_ids(&self) -> impl Iterator<Item = u64> + '_ {
        let tasks = self.tasks.iter().map(|task| task.cgroup_id);
        let exited = self.exited.iter().map(|place| place.cgroup_id);
        let pairs = self.pairs.iter().flat_map(|pair| [pair.victim, pair.culprit]);
        tasks.chain(exited).chain(pairs).filter(|id| ![KERNEL, REST].contains(id))
    }

    /// What culprits are called that are no single cgroup, where there are such.
    pub fn rest_name(&self) -> Option<(u64, Arc<str>)> {
        let has_rest = self.pairs.iter().any(|pair| pair.culprit == REST);
        has_rest.then(|| (REST, REST_NAME.into()))
    }
}

/// One of the two.
pub(crate) enum Source {
    /// Every wait by itself.
    Bpf(Box<BpfSource>),
    /// Sums of waits.
    Coarse(Box<CoarseSource>),
}

impl Source {
    /// Which one it is.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Bpf(_) => Mode::Bpf,
            Self::Coarse(_) => Mode::Coarse,
        }
    }

    /// Reads all tasks.
    pub fn read(&mut self) -> Result<Found, Failure> {
        match self {
            Self::Bpf(bpf) => bpf.read(),
            Self::Coarse(coarse) => coarse.read(),
        }
    }

    /// Takes over the nodes of CPUs, of which some came or went.
    pub fn learn_nodes(&mut self, nodes: &NodesOfCpus) -> Result<(), Failure> {
        match self {
            Self::Bpf(bpf) => bpf.learn_nodes(nodes),
            // The collector knows them.
            Self::Coarse(_) => Ok(()),
        }
    }

    /// Says what it knows of cgroups. To be called after [`read`](Self::read): whatever that names was told of before.
    pub fn tell_of_cgroups(&mut self, tree: &mut CgroupTree, now: Instant) {
        match self {
            Self::Bpf(bpf) => bpf.tell_of_cgroups(tree, now),
            Self::Coarse(coarse) => coarse.tell_of_cgroups(tree, now),
        }
    }

    /// Losses since the start.
    pub fn losses(&self) -> Result<Losses, Failure> {
        match self {
            Self::Bpf(bpf) => bpf.losses(),
            Self::Coarse(coarse) => Ok(coarse.losses().clone()),
        }
    }

    /// Gives back what is held for cgroups that are gone. `found` is what was read last.
    pub fn give_back(&mut self, found: &Found, tree: &CgroupTree, now: Instant) -> Result<(), Failure> {
        match self {
            Self::Bpf(bpf) => bpf.give_back(found, tree, now),
            Self::Coarse(_) => Ok(()),
        }
    }

    /// The hook, where there is one, to be measured.
    pub fn hook(&self) -> Option<&KernelSide> {
        match self {
            Self::Bpf(bpf) => Some(bpf.side()),
            Self::Coarse(_) => None,
        }
    }

    /// Cgroups of which figures of exited tasks are held, and pairs of a victim and a culprit.
    pub fn held(&self) -> (usize, usize) {
        match self {
            Self::Bpf(bpf) => bpf.held(),
            Self::Coarse(_) => (0, 0),
        }
    }
}
