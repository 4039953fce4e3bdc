//! The tables of a Sample. Code that treats all tables alike uses the list [`tables!`](crate::tables), which names each once.

/// Declares a table: name, rows, key, and the rule that unordered rows break. Then follow the other functions of [`Table`]. Or
/// the list in [`Interval`] of the same name: how it is made from two Samples, its key, and how a later row is merged.
macro_rules! table {
    (
        $(#[$about:meta])*
        $table:ident: $type:ty, by $key:ty: |$row:ident| $of:expr, $order:literal;
        $list:ident = |$a:ident, $b:ident| $between:expr, by $by:expr, $merged:expr;
        $($functions:tt)*
    ) => {
        table! {
            $(#[$about])*
            $table: $type, by $key: |$row| $of, $order;

            fn between($a: &Sample, $b: &Sample, into: &mut Interval) {
                into.$list = $between;
            }

            fn append(into: &mut Interval, next: &mut Interval) {
                merge(&mut into.$list, &mut next.$list, $by, $merged);
            }

            $($functions)*
        }
    };
    (
        $(#[$about:meta])*
        $table:ident: $type:ty, by $key:ty: |$row:ident| $of:expr, $order:literal;
        $($functions:tt)*
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub enum $table {}

        impl Table for $table {
            type Row = $type;
            type Key = $key;
            const ORDER: &'static str = $order;

            fn key($row: &$type) -> $key {
                $of
            }

            $($functions)*
        }
    };
}

pub mod cgroups;
pub mod chains;
pub mod cpus;
pub mod demand;
pub mod exited;
pub mod interval;
pub mod nodes;
pub mod pairs;
pub mod sample;
pub mod stacks;
pub mod tasks;

use std::collections::HashSet;

use itertools::Itertools;

use crate::{Interval, Sample, TaskReading, selection::SelectionFilter};
pub use cgroups::{Cgroups, Containers, Limits};
pub use chains::Chains;
pub use cpus::Cpus;
pub use demand::Demand;
pub use exited::Exited;
pub use nodes::{Memory, Nodes};
pub use pairs::Pairs;
pub use stacks::Stacks;
pub use tasks::Tasks;

/// A table of a [`Sample`], and the members of an [`Interval`] that derive from it. To add a table: write a file with its row
/// type and `table!`, add a line to [`tables!`](crate::tables), and add members to Sample and Interval.
pub trait Table {
    type Row;
    /// The key of a row. Rows ascend by it.
    type Key: Ord;
    /// The rule that unordered rows break, in words.
    const ORDER: &'static str;

    fn key(row: &Self::Row) -> Self::Key;

    /// Stores the changes between two Samples in an interval. By default, an interval has no part of the table.
    fn between(_a: &Sample, _b: &Sample, _into: &mut Interval) {}

    /// Appends this table's part of the next interval. Nothing else uses that part of `next`.
    fn append(_into: &mut Interval, _next: &mut Interval) {}

    /// Removes everything that is not selected. By default, a selection removes nothing.
    fn select(_: &mut Interval, _: &Selected<'_>) {}
}

pub trait Member: Table {
    fn rows(sample: &Sample) -> &Vec<Self::Row>;
    fn rows_mut(sample: &mut Sample) -> &mut Vec<Self::Row>;
}

/// Calls the macro `$with` with all tables: the member of [`Sample`] and the [`Table`], in the order of
/// recordings. Tables under `live` are not recorded.
#[macro_export]
macro_rules! tables {
    ($with:ident) => {
        $with! {
            recorded {
                tasks: Tasks, exited: Exited, pairs: Pairs, limits: Limits, cgroups: Cgroups, containers: Containers,
                demand: Demand, cpus: Cpus, nodes: Nodes, memory: Memory, chains: Chains,
            }
            live { stacks: Stacks, }
        }
    };
}

macro_rules! each_table {
    (recorded { $($recorded:tt)* } live { $($live:tt)* }) => { each_table! { $($recorded)* $($live)* } };
    ($($name:ident: $table:ident,)*) => {
        $(impl Member for $table {
            fn rows(sample: &Sample) -> &Vec<Self::Row> {
                &sample.$name
            }
            fn rows_mut(sample: &mut Sample) -> &mut Vec<Self::Row> {
                &mut sample.$name
            }
        })*

        pub(crate) fn between(a: &Sample, b: &Sample, into: &mut Interval) {
            // Does not compile if the list lacks a table.
            let Sample {
                unix_ns: _, mono_ns: _, mode: _, sched_ext: _, demand_until_ns: _, has_chains: _, losses: _, cost: _, $($name: _,)*
            } = b;
            $($table::between(a, b, into);)*
        }

        pub(crate) fn append(into: &mut Interval, next: &mut Interval) {
            $($table::append(into, next);)*
        }

        pub(crate) fn select(interval: &mut Interval, selected: &Selected<'_>) {
            $($table::select(interval, selected);)*
        }
    };
}
tables!(each_table);

/// The part of an interval that a selection keeps.
#[derive(Debug)]
pub struct Selected<'a> {
    /// All selectors except ids, which the source has already applied.
    pub filter: &'a SelectionFilter,
    /// Ids of the selected cgroups; `None`: all cgroups.
    pub cgroups: Option<HashSet<u64>>,
}

impl Selected<'_> {
    pub fn has_cgroup(&self, id: u64) -> bool {
        self.cgroups.as_ref().is_none_or(|wanted| wanted.contains(&id))
    }

    pub fn has_task(&self, task: &TaskReading) -> bool {
        self.has_cgroup(task.cgroup_id) && self.filter.wants_task(&task.comm, Some(task.cpu), task.node)
    }
}

/// Merges two lists that ascend by `key`. `both` merges a later element into the earlier element with the same key.
pub(crate) fn merge<T, K: Ord>(
    into: &mut Vec<T>,
    from: &mut Vec<T>,
    key: impl Fn(&T) -> K,
    both: impl Fn(&mut T, T),
) {
    let (mut at, mut new) = (0, Vec::new());
    for row in from.drain(..) {
        at += into[at..].iter().take_while(|old| key(old) < key(&row)).count();
        match into.get_mut(at) {
            Some(old) if key(old) == key(&row) => both(old, row),
            _ => new.push(row),
        }
    }
    if !new.is_empty() {
        into.append(&mut new);
        // Linear: a stable sort merges two ascending lists.
        into.sort_by_key(key);
    }
}

/// Merges the rows of two Samples, which ascend by `key`. The later row wins. Rows only in `a`, as of removed cgroups, stay.
pub(crate) fn later<T: Clone>(a: &[T], b: &[T], key: impl Fn(&T) -> u64) -> Vec<T> {
    let rows = a.iter().merge_join_by(b, |before, now| key(before).cmp(&key(now)));
    rows.map(|row| row.reduce(|_, now| now).clone()).collect()
}
