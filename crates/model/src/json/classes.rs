//! The part of the interval object that shows what keeps each target from being faster. Only on request.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CgroupObject, IntervalObject};
use crate::{
    BlockedTime,
    class::{Classes, Classified},
};

/// The class of a target, and its blocked time: ns by kind, without kinds of 0 ns.
///
/// For a cgroup and the whole, this is the time of threads that exist at the end. The whole also includes exited threads with
/// stacks.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "as above")]
pub struct ClassObject {
    pub class: Classified,
    pub blocked_on: Option<BTreeMap<&'static str, u64>>,
}

impl ClassObject {
    fn new(class: Classified, blocked: Option<&BlockedTime>) -> Self {
        let by_kind = |blocked: &BlockedTime| {
            blocked.iter().filter(|(_, ns)| *ns != 0).map(|(kind, ns)| (kind.name(), ns)).collect()
        };
        Self { class, blocked_on: blocked.map(by_kind) }
    }
}

impl IntervalObject<'_> {
    /// Adds `class` and `blocked_on` to each task, each cgroup and the whole; `blocked_on` is null if blocked time is
    /// unknown. `classes` must belong to the same interval.
    pub fn with_classes(mut self, classes: &Classes<'_>) -> Self {
        let Classes { interval, tree, blocked, .. } = *classes;
        let of_task = |task| ClassObject::new(classes.thread(task), blocked.of_task(task));
        self.tasks.classes = interval.tasks.iter().map(of_task).collect();
        let known = CgroupObject::known(tree).into_iter().map(|node| {
            let time = blocked.known_of_tasks(interval, tree.tasks_below(node));
            ClassObject::new(classes.cgroup(node), time.as_ref())
        });
        let unknown = tree.unknown.iter().map(|_| {
            let time = blocked.known_of_tasks(interval, tree.tasks_unknown());
            ClassObject::new(classes.unknown_cgroup(), time.as_ref())
        });
        for (object, class) in self.cgroups.iter_mut().zip(unknown.chain(known)) {
            object.class = Some(class);
        }
        self.class = Some(ClassObject::new(classes.total(), blocked.known_total(interval).as_ref()));
        self
    }
}
