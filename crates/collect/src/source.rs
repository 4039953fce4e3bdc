//! Sources of readings: the hook in the kernel, or `/proc`.

mod bpf;
pub(crate) mod coarse;

use std::{collections::HashSet, sync::Arc, time::Instant};

use cgscope_model::{Losses, Sample, TaskReading, follower::Followed};

use crate::{
    Failure, Held,
    cgroups::CgroupTree,
    kernel_side::KernelSide,
    placement::{Active, NodesOfCpus},
};

pub(crate) use bpf::BpfSource;
pub use bpf::Changes;
pub(crate) use coarse::CoarseSource;

/// A source of readings. The default methods suit a source without a hook.
pub(crate) trait Source: Send {
    /// Reads tasks, exited tasks, pairs, stacks and the waits of CPUs, each in the order of a [`Sample`]. Applies and clears
    /// `changes`, unless the source cannot follow tasks for single viewers.
    fn read(&mut self, changes: &mut Changes) -> Result<Sample, Failure>;
    /// Reports new and removed cgroups to the tree. Call this after [`read`](Self::read), which may refer to new cgroups.
    fn report_cgroups(&mut self, tree: &mut CgroupTree, now: Instant);
    fn losses(&self) -> Result<Losses, Failure>;
    /// Returns the tasks that changed between the last two readings.
    fn active(&self) -> &[Active];
    fn cgroups_of_tasks(&self) -> HashSet<u64>;
    fn learn_nodes(&mut self, nodes: &NodesOfCpus) -> Result<(), Failure>;
    /// Replaces the stored readings at these indices by those in `tasks`, which holds all tasks of the latest reading.
    fn keep(&mut self, tasks: &[Arc<TaskReading>], places: &[usize]);

    /// Completes a sample that already has its limits and CPUs, and prepares for the next sample.
    fn complete(&mut self, _sample: &mut Sample, _tree: Option<&CgroupTree>) -> Result<(), Failure> {
        Ok(())
    }

    fn hook(&self) -> Option<&KernelSide> {
        None
    }

    fn count_held(&self, _held: &mut Held) {}

    /// Returns which viewers follow each task of the latest reading, ascending by serial. Empty unless readings are shared.
    fn followed(&self) -> Vec<Followed> {
        Vec::new()
    }
}
