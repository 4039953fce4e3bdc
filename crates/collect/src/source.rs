//! Sources of readings: the hook in the kernel, or `/proc`.

mod bpf;
pub(crate) mod coarse;
mod exited;

use std::{collections::HashSet, sync::Arc, time::Instant};

use cgscope_model::{CgroupReading, Losses, Mode, Sample, TaskReading, follower::Followed};

use crate::{
    Failure,
    cgroups::CgroupTree,
    kernel_side::KernelSide,
    placement::{Active, NodesOfCpus},
    shared::Changes,
};

pub(crate) use bpf::BpfSource;
pub(crate) use coarse::CoarseSource;

/// A source of readings. The defaults suit a source without a hook.
pub(crate) trait Source: Send {
    fn mode(&self) -> Mode;
    /// Reads tasks, exited tasks, pairs, stacks and the waits of CPUs, each in the order of a [`Sample`].
    fn read(&mut self) -> Result<Sample, Failure>;
    /// Adds what the source knows of cgroups to the tree. Call after [`read`](Self::read), so that it covers all cgroups in that
    /// reading.
    fn report_cgroups(&mut self, tree: &mut CgroupTree, now: Instant);
    fn losses(&self) -> Result<Losses, Failure>;
    /// Returns the tasks that are not the same as in the reading before the latest one.
    fn active(&self) -> &[Active];
    /// Returns the cgroups of the tasks of the latest reading.
    fn cgroups_of_tasks(&self) -> HashSet<u64>;
    /// Keeps the readings at these places for the next reading. `tasks`: those of the latest reading.
    fn keep(&mut self, tasks: &[Arc<TaskReading>], places: &[usize]);

    /// Adds the pressure of cgroups and CPUs to a sample that has its limits and CPUs.
    fn add_pressure(&mut self, _sample: &mut Sample, _tree: Option<&CgroupTree>) {}

    /// Keeps the demand of the cgroups that have a quota in the following readings.
    fn keep_demand(&mut self, _limits: &[CgroupReading], _tree: Option<&CgroupTree>) -> Result<(), Failure> {
        Ok(())
    }

    fn learn_nodes(&mut self, _nodes: &NodesOfCpus) -> Result<(), Failure> {
        Ok(())
    }

    fn give_back(&mut self, _latest: &Sample, _tree: &CgroupTree, _now: Instant) -> Result<(), Failure> {
        Ok(())
    }

    fn hook(&self) -> Option<&KernelSide> {
        None
    }

    /// Returns how many cgroups with exited tasks, and how many pairs of victim and culprit, are kept.
    fn held(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Returns for whom each task of the latest reading is followed, ascending by serial; empty unless readings are shared.
    fn followed(&self) -> &[Followed] {
        &[]
    }

    fn changes(&mut self) -> Option<&mut Changes> {
        None
    }
}
