//! Nested quotas: two cgroups share the quota of their parent, and one of the two also has its own quota.

use super::{
    super::{Limit, Measured, REGULAR, Recorded, count, limited},
    MEASURED_S, RECORDED_S,
    cell::{Answered, Cell, text},
};
use crate::load::{Cgroup, Load};

/// The limits of the parent and of the child. On v1, a child's limit cannot exceed its parent's limit.
const RECORDED: [Limit; 2] = [Limit::of(800), Limit::of(250)];
const OF_CHILD: [Limit; 2] = [Limit::of(180), Limit::of(320)];
const OF_PARENT: [Limit; 2] = [Limit::of(600), Limit::of(1_000)];

/// A parent cgroup with two children. One child has its own quota and serves requests. The other child has no quota of its own
/// and runs a busy loop.
struct Family {
    // Fields are dropped in this order: first the loads, last the parent.
    _loads: [Load; 2],
    child: Cgroup,
    _other: Cgroup,
    parent: Cgroup,
}

impl Family {
    fn new([of_parent, of_child]: [Limit; 2]) -> Self {
        let parent = limited(of_parent);
        let (child, other) = (parent.child("web"), parent.child("batch"));
        of_child.apply(&child);
        let loads = [REGULAR.start(&child), Load::busy_loop(Some(&other))];
        Self { _loads: loads, child, _other: other, parent }
    }
}

fn measure(limits: [Limit; 2], of_parent: bool) -> Measured {
    let family = Family::new(limits);
    count(if of_parent { &family.parent } else { &family.child }, MEASURED_S)
}

/// Makes one recording. Returns cells for other quotas of the child, followed by cells for other quotas of the parent.
pub(super) fn cells() -> Vec<Cell> {
    let (of_parent, of_child) = {
        let family = Family::new(RECORDED);
        let recorded = Recorded::of(&family.parent, RECORDED_S);
        let child = recorded.about(&family.child);
        (recorded, child)
    };
    let both = |[parent, child]: [Limit; 2]| format!("{} in {}", text(child), text(parent));
    let cell = |name, recorded: &Recorded, simulated: Limit, limits, is_parent| {
        Cell::new(name, [RECORDED, limits].map(both), &recorded.ask_for(simulated), |row| {
            Some(Answered::new(row, measure(limits, is_parent)))
        })
    };
    let children = OF_CHILD
        .map(|simulated| cell("nested, the child", &of_child, simulated, [RECORDED[0], simulated], false));
    let parents = OF_PARENT
        .map(|simulated| cell("nested, the parent", &of_parent, simulated, [simulated, RECORDED[1]], true));
    children.into_iter().chain(parents).collect()
}
