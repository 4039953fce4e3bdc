//! Where the readings of tasks come from: the hook in the kernel, or `/proc`.

mod bpf;
pub(crate) mod coarse;

use std::{sync::Arc, time::Instant};

use cgscope_layout::ledger::KERNEL;
use cgscope_model::{
    CpuReading, ExitedReading, Losses, Mode, PairReading, REST, REST_NAME, StackReading, TaskReading,
    access::Access,
};

use crate::{Failure, cgroups::CgroupTree, kernel_side::KernelSide, placement::NodesOfCpus, shared::Changes};

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

/// A source of readings. The defaults are those of one without a hook.
pub(crate) trait Source: Send {
    /// What it can see.
    fn mode(&self) -> Mode;
    /// Reads all tasks.
    fn read(&mut self) -> Result<Found, Failure>;
    /// Says what it knows of cgroups. To be called after [`read`](Self::read): it covers all cgroups named there.
    fn tell_of_cgroups(&mut self, tree: &mut CgroupTree, now: Instant);
    /// Losses since the start.
    fn losses(&self) -> Result<Losses, Failure>;

    /// Takes over the nodes of CPUs, of which some came or went.
    fn learn_nodes(&mut self, _nodes: &NodesOfCpus) -> Result<(), Failure> {
        Ok(())
    }

    /// Gives back what is held for removed cgroups. `found` is what was read last.
    fn give_back(&mut self, _found: &Found, _tree: &CgroupTree, _now: Instant) -> Result<(), Failure> {
        Ok(())
    }

    /// The hook, to be measured.
    fn hook(&self) -> Option<&KernelSide> {
        None
    }

    /// Cgroups of which figures of exited tasks are held, and pairs of a victim and a culprit.
    fn held(&self) -> (usize, usize) {
        (0, 0)
    }

    /// The owner of each task of the latest reading, ascending by serial; empty where readings are not shared.
    fn access(&self) -> &[Access] {
        &[]
    }

    /// Which viewers' processes to follow from the next reading on.
    fn changes(&mut self) -> Option<&mut Changes> {
        None
    }
}
