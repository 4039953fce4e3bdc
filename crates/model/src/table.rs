//! The tables of a Sample. The list [`tables!`](crate::tables) names each of them once; whatever treats all tables alike goes through it.

pub mod cgroups;
pub mod cpus;
pub mod demand;
pub mod exited;
pub mod interval;
pub mod nodes;
pub mod pairs;
pub mod sample;
pub mod stacks;
pub mod tasks;

use std::{collections::HashSet, iter};

use crate::{Interval, Sample, TaskReading, selection::SelectionFilter};
pub use cgroups::{Cgroups, Containers, Limits};
pub use cpus::Cpus;
pub use demand::Demand;
pub use exited::Exited;
pub use nodes::{Memory, Nodes};
pub use pairs::Pairs;
pub use stacks::Stacks;
pub use tasks::Tasks;

/// A table of a [`Sample`], and what an [`Interval`] has of it.
///
/// To add one: a file with its rows and this trait, its line in [`tables!`](crate::tables), and its members of Sample and Interval.
pub trait Table {
    /// A row of a Sample.
    type Row;
    /// The key by which the rows ascend.
    type Key: Ord;
    /// The rule that unordered rows break, in words.
    const ORDER: &'static str;

    /// The key of a row.
    fn key(row: &Self::Row) -> Self::Key;

    /// Gives the interval what happened between two Samples.
    fn between(a: &Sample, b: &Sample, into: &mut Interval);

    /// Adds what the next interval has of the table to an interval. Nothing else uses that part of `next`.
    fn append(into: &mut Interval, next: &mut Interval);

    /// Removes what is not selected. Default: a selection leaves nothing out.
    fn select(_: &mut Interval, _: &Selected<'_>) {}
}

/// Where a table is in a [`Sample`].
pub trait Member: Table {
    /// Its rows.
    fn rows(sample: &Sample) -> &Vec<Self::Row>;
    /// Its rows.
    fn rows_mut(sample: &mut Sample) -> &mut Vec<Self::Row>;
}

/// Calls `$with` with all tables: the member of [`Sample`](crate::Sample) and the [`Table`], in the order in which recordings have them. What
/// is `live` is not recorded.
#[macro_export]
macro_rules! tables {
    ($with:ident) => {
        $with! {
            recorded {
                tasks: Tasks,
                exited: Exited,
                pairs: Pairs,
                limits: Limits,
                cgroups: Cgroups,
                containers: Containers,
                demand: Demand,
                cpus: Cpus,
                nodes: Nodes,
                memory: Memory,
            }
            live { stacks: Stacks, }
        }
    };
}

macro_rules! each_table {
    (recorded { $($name:ident: $table:ident,)* } live { $($other:ident: $live:ident,)* }) => {
        each_table! { members $($name: $table,)* $($other: $live,)* }

        pub(crate) fn between(a: &Sample, b: &Sample, into: &mut Interval) {
            // Does not compile if a table is missing in the list.
            let Sample {
                unix_ns: _, mono_ns: _, mode: _, sched_ext: _, demand_until_ns: _, losses: _, cost: _,
                $($name: _,)* $($other: _,)*
            } = b;
            $($table::between(a, b, into);)*
            $($live::between(a, b, into);)*
        }

        pub(crate) fn append(into: &mut Interval, next: &mut Interval) {
            $($table::append(into, next);)*
            $($live::append(into, next);)*
        }

        pub(crate) fn select(interval: &mut Interval, selected: &Selected<'_>) {
            $($table::select(interval, selected);)*
            $($live::select(interval, selected);)*
        }
    };
    (members $($name:ident: $table:ident,)*) => {
        $(impl Member for $table {
            fn rows(sample: &Sample) -> &Vec<Self::Row> {
                &sample.$name
            }
            fn rows_mut(sample: &mut Sample) -> &mut Vec<Self::Row> {
                &mut sample.$name
            }
        })*
    };
}
tables!(each_table);

/// What a selection keeps of an interval.
#[derive(Debug)]
pub struct Selected<'a> {
    /// All selectors except ids, which the source has already applied.
    pub filter: &'a SelectionFilter,
    /// The ids of the selected cgroups; `None`: all.
    pub cgroups: Option<HashSet<u64>>,
}

impl Selected<'_> {
    /// True if tasks of this cgroup are selected.
    pub fn has_cgroup(&self, id: u64) -> bool {
        self.cgroups.as_ref().is_none_or(|wanted| wanted.contains(&id))
    }

    /// True if a task is selected.
    pub fn has_task(&self, task: &TaskReading) -> bool {
        self.has_cgroup(task.cgroup_id) && self.filter.wants_task(&task.comm, Some(task.cpu), task.node)
    }
}

/// Merges two lists in ascending order of `key`; `both` merges the later element into the earlier one.
pub(crate) fn merge<T, K: Ord>(
    into: &mut Vec<T>,
    from: &mut Vec<T>,
    key: impl Fn(&T) -> K,
    both: impl Fn(&mut T, T),
) {
    let mut later = std::mem::take(from).into_iter().peekable();
    let mut merged = Vec::with_capacity(into.len() + later.len());
    for mut old in into.drain(..) {
        while let Some(new) = later.next_if(|new| key(new) < key(&old)) {
            merged.push(new);
        }
        if let Some(new) = later.next_if(|new| key(new) == key(&old)) {
            both(&mut old, new);
        }
        merged.push(old);
    }
    merged.extend(later);
    *into = merged;
}

/// Merges the rows of two Samples, which ascend by `key`: a row that is only in `a` is of something that is gone; the later row wins.
pub(crate) fn later<T: Clone>(a: &[T], b: &[T], key: impl Fn(&T) -> u64) -> Vec<T> {
    let mut rows = Vec::with_capacity(b.len());
    let mut earlier = a.iter().peekable();
    for now in b {
        rows.extend(iter::from_fn(|| earlier.next_if(|before| key(before) < key(now))).cloned());
        earlier.next_if(|before| key(before) == key(now));
        rows.push(now.clone());
    }
    rows.extend(earlier.cloned());
    rows
}
