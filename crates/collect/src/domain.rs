//! Measuring domains of the BPF side. Each has its own maps, and adds a part to a sample. The tasks are read before.

pub(crate) mod cpus;
pub(crate) mod culprits;
mod demand;
mod pressure;
pub(crate) mod stacks;
mod waits;

use std::collections::BTreeMap;

use cgscope_ledger::{pressure::KeptPressure, wire::Config};
use cgscope_model::{Losses, Sample};

use crate::{
    Failure, Held, Options,
    cgroups::CgroupTree,
    domain::{cpus::NodePlaces, stacks::UnderWay},
    kernel_side::KernelSide,
    known::KnownTasks,
    stream::Buffer,
};

/// What is known before the BPF side is loaded.
pub(crate) struct Setup<'a> {
    pub(crate) options: &'a Options,
    pub(crate) config: &'a Config,
    /// Number of possible CPUs.
    pub(crate) cpus: u32,
    /// Number of cgroups on the host.
    pub(crate) cgroups: usize,
}

/// A sample while it is taken.
pub(crate) struct Draft<'a> {
    pub(crate) sample: Sample,
    pub(crate) side: &'a mut KernelSide,
    pub(crate) config: &'a Config,
    pub(crate) buffer: &'a mut Buffer,
    /// The tasks as last read.
    pub(crate) tasks: &'a mut KnownTasks,
    /// CPU to node.
    pub(crate) nodes: &'a BTreeMap<u32, u32>,
    pub(crate) node_places: &'a NodePlaces,
    /// The latest clock of a run queue when the tasks were read, ns.
    pub(crate) clock_ns: u64,
    /// The stacks of tasks that are blocked now: the reading of tasks has them, and [`stacks`] takes them.
    pub(crate) under_way: Vec<UnderWay>,
    /// The pressure that is kept with the exited tasks of a cgroup: [`waits`] reads it, and [`pressure`] takes it.
    pub(crate) kept_pressure: Vec<(u64, KeptPressure)>,
    pub(crate) losses: &'a mut Losses,
}

pub(crate) trait Domain: Send {
    /// The entries of maps whose number depends on the host or on the options.
    fn maps(setup: &Setup<'_>) -> Vec<(&'static str, u32)>
    where
        Self: Sized;

    /// `None`: not requested.
    fn start(setup: &Setup<'_>) -> Option<Self>
    where
        Self: Sized;

    /// Reads its maps right after the tasks.
    fn read(&mut self, draft: &mut Draft<'_>) -> Result<(), Failure>;

    /// Completes the sample, which has its limits and CPUs by now, and prepares the maps for the next sample.
    fn complete(&mut self, _draft: &mut Draft<'_>, _tree: Option<&CgroupTree>) -> Result<(), Failure> {
        Ok(())
    }

    /// Adds the number of items that it keeps between samples.
    fn count_held(&self, _held: &mut Held) {}
}

/// The requested domains, in the order in which they are read.
#[derive(Default)]
pub(crate) struct Domains {
    pub(crate) started: Vec<Box<dyn Domain>>,
    /// The number of entries of maps, by name.
    pub(crate) maps: Vec<(&'static str, u32)>,
}

impl Domains {
    pub(crate) fn start(setup: &Setup<'_>) -> Self {
        let mut domains = Self::default();
        domains.add::<stacks::Stacks>(setup);
        domains.add::<waits::Waits>(setup);
        domains.add::<pressure::CgroupPressures>(setup);
        domains.add::<demand::Demands>(setup);
        domains.add::<cpus::CpuCounts>(setup);
        domains
    }

    fn add<D: Domain + 'static>(&mut self, setup: &Setup<'_>) {
        self.maps.extend(D::maps(setup));
        self.started.extend(D::start(setup).map(|domain| Box::new(domain) as Box<dyn Domain>));
    }
}
