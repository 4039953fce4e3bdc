//! Domains: parts of the BPF side, each with its own maps. After the tasks are read, each domain adds figures to a sample.

pub(crate) mod chains;
pub(crate) mod cpus;
pub(crate) mod culprits;
mod demand;
mod pressure;
pub(crate) mod stacks;
mod waits;

use std::collections::BTreeMap;

use cgscope_ledger::{
    pressure::KeptPressure,
    wire::{Config, names},
};
use cgscope_model::{Losses, Sample};

use crate::{
    Failure, Held, Options,
    cgroups::CgroupTree,
    domain::{cpus::NodePlaces, stacks::UnderWay},
    kernel_side::KernelSide,
    known::KnownTasks,
    stream::Buffer,
};

/// What we know before we load the BPF side.
pub(crate) struct Setup<'a> {
    pub(crate) options: &'a Options,
    pub(crate) config: &'a Config,
    /// Number of possible CPUs.
    pub(crate) cpus: u32,
    pub(crate) cgroups: usize,
}

/// A sample that is not yet complete, and the data from which the domains complete it.
pub(crate) struct Draft {
    /// Empty between the calls of the domains.
    pub(crate) sample: Sample,
    pub(crate) side: KernelSide,
    pub(crate) config: Config,
    pub(crate) buffer: Buffer,
    pub(crate) tasks: KnownTasks,
    /// Node of each CPU.
    pub(crate) nodes: BTreeMap<u32, u32>,
    pub(crate) node_places: NodePlaces,
    /// The latest run queue clock of any CPU up to the last reading of tasks, ns.
    pub(crate) clock_ns: u64,
    /// Stacks of the tasks that are blocked now. They are reported with the tasks, and [`stacks`] adds them to the sample.
    pub(crate) under_way: Vec<UnderWay>,
    /// Pressure from the table of exited tasks, by cgroup id. [`waits`] reads it, and [`pressure`] adds it to the sums.
    pub(crate) kept_pressure: Vec<(u64, KeptPressure)>,
    pub(crate) losses: Losses,
}

pub(crate) trait Domain: Send {
    /// Starts the domain. Also returns the number of entries of its map. Returns `None` if the domain is not requested. By default,
    /// a domain is always requested, and its map has an entry for each CPU.
    fn start(setup: &Setup<'_>) -> Option<(Self, u32)>
    where
        Self: Sized + Default,
    {
        Some((Self::default(), setup.cpus))
    }

    /// Reads the domain's maps, right after the tasks.
    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure>;

    /// Completes the sample, and prepares the maps for the next sample. The sample already has its limits and CPUs.
    fn complete(&mut self, _draft: &mut Draft, _tree: Option<&CgroupTree>) -> Result<(), Failure> {
        Ok(())
    }

    /// Sets the numbers of items that the domain keeps between samples.
    fn count_held(&self, _held: &mut Held) {}
}

/// The requested domains, in the order in which we read them.
#[derive(Default)]
pub(crate) struct Domains {
    pub(crate) started: Vec<Box<dyn Domain>>,
    /// Number of entries of each map, by map name.
    pub(crate) maps: Vec<(&'static str, u32)>,
}

impl Domains {
    pub(crate) fn start(setup: &Setup<'_>) -> Self {
        let mut domains = Self::default();
        domains.add::<stacks::Stacks>(names::STACKS, setup);
        domains.add::<waits::Waits>(names::PAIRS, setup);
        domains.add::<pressure::CgroupPressures>(names::PRESSURES, setup);
        domains.add::<demand::Demands>(names::DEMAND, setup);
        domains.add::<cpus::CpuCounts>(names::CPUS, setup);
        domains.add::<chains::Chains>(names::CHAIN_PAIRS, setup);
        domains
    }

    fn add<D: Domain + Default + 'static>(&mut self, map: &'static str, setup: &Setup<'_>) {
        let (domain, entries) = D::start(setup).unzip();
        // A map with one entry takes almost no memory.
        self.maps.push((map, entries.unwrap_or(1)));
        self.started.extend(domain.map(|domain| Box::new(domain) as Box<dyn Domain>));
    }
}
