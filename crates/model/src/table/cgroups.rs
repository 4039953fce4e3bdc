//! The names of the cgroups: their paths, and what container runtimes call them.

use std::sync::Arc;

use crate::{
    Interval, Sample,
    table::{Table, later, merge},
};

/// The table of paths: a row for each cgroup, by id.
#[derive(Debug)]
pub enum Cgroups {}

impl Table for Cgroups {
    type Row = (u64, Arc<str>);
    type Key = u64;
    const ORDER: &'static str = "its cgroups are not in the order of their ids";

    fn key(row: &Self::Row) -> u64 {
        row.0
    }

    fn between(a: &Sample, b: &Sample, into: &mut Interval) {
        into.cgroups = later(&a.cgroups, &b.cgroups, Self::key);
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        merge(&mut into.cgroups, &mut next.cgroups, Self::key, |old, new| *old = new);
    }
}

/// The table of what runtimes call them: a row for each container and each pod. Intervals have [`Names`](crate::Names).
#[derive(Debug)]
pub enum Containers {}

impl Table for Containers {
    type Row = ContainerReading;
    type Key = u64;
    const ORDER: &'static str = "its containers are not in the order of their cgroups";

    fn key(row: &ContainerReading) -> u64 {
        row.cgroup_id
    }

    fn between(a: &Sample, b: &Sample, into: &mut Interval) {
        into.set_names(&a.containers, &b.containers);
    }

    fn append(into: &mut Interval, next: &mut Interval) {
        if *into.names != *next.names {
            Arc::make_mut(&mut into.names).append(&next.names);
        }
    }
}

/// What the container runtime calls the container or the pod of a cgroup. A name is `None` if the runtime does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerReading {
    /// The id of the cgroup: of the container itself, or of the pod around its containers.
    pub cgroup_id: u64,
    /// The container's name; `None` for a pod.
    pub container: Option<Arc<str>>,
    /// The pod's name; `None` outside of Kubernetes.
    pub pod: Option<Arc<str>>,
    /// The pod's namespace.
    pub namespace: Option<Arc<str>>,
}
