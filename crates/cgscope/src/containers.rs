//! Names of containers and pods from the runtimes of this host, for samples and selections.

use std::{path::Path, sync::Arc};

use cgscope_collect::{NameContainers, cgroups::all_paths, facts::CgroupMounts};
use cgscope_model::{Names, Selection};
use cgscope_runtimes::{Lookup, Runtimes};

use crate::exit::{Error, Result};

/// Returns the name lookup for a collector. `say` receives a sentence if a runtime fails.
pub fn lookup(runtimes: Runtimes, say: impl Fn(String) + Send + 'static) -> NameContainers {
    let mut lookup = Lookup::new(runtimes, Box::new(say));
    Box::new(move |cgroups| lookup.name(cgroups))
}

pub fn runtimes(config: &str) -> Result<Runtimes> {
    Runtimes::new(config).map_err(Error::could_not_run)
}

/// Returns all cgroups that exist now, with the names of the containers and pods among them.
pub fn on_host(runtimes: Runtimes) -> (Vec<(u64, Arc<str>)>, Names) {
    let mounts = CgroupMounts::read(Path::new("/"));
    let mut cgroups: Vec<_> = mounts.cpu().map(all_paths).unwrap_or_default().into_iter().collect();
    cgroups.sort_unstable_by_key(|(id, _)| *id);
    let containers = Lookup::new(runtimes, Box::new(drop)).name(&cgroups);
    let names = Names::new(&cgroups, &containers);
    (cgroups, names)
}

/// Checks that the selected pod and container exist, and that each name is unambiguous.
pub fn check(names: &Names, selection: &Selection, cgroups: &[(u64, Arc<str>)]) -> Result<()> {
    let (pod, container) = (selection.pod.as_deref(), selection.container.as_deref());
    names.check(pod, container, cgroups.iter().map(|(_, path)| path)).map_err(Error::could_not_run)
}
