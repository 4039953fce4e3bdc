//! Converts the members of a sample to rows. Column names are member names. A member that is added to the model must be added
//! here too, or this crate does not compile. New files then have one more column.

use std::{borrow::Borrow, sync::Arc};

use cgscope_ledger::{CAUSES, Cause, chains::Waker};
use cgscope_model::{
    Accounts, Autogroup, BeforeMove, Blame, BlockedKind, ByCause, CgroupReading, ChainReading,
    ContainerReading, Cost, CpuReading, CpuWaits, Cpuset, DemandReading, ExitedReading, Hist, Losses, Mode,
    NodeReading, PairReading, Pending, Placement, ProcessMemory, Sample, SchedExt, Scheduling, TaskReading,
    TaskState, Totals,
    path::is_bounded,
    table::{self, Member, Table},
};

use crate::cells::{Cells, Columns, Field, Row, Texts, single_numbers, value_at};

/// A type of row in a table. Rows ascend by key.
pub(crate) trait Keyed: Field + Clone + PartialEq + Send + 'static {
    type Key: Ord + Send;
    /// The rule, in words, that is broken if the rows do not ascend by key.
    const ORDER: &'static str = "";
    fn key(&self) -> Self::Key;
    /// Memory to which a row refers, bytes, if no other sample shares this memory.
    const SHARED_BYTES: usize = 0;
    /// Whether both rows share the same memory. If they do not, they can still be equal.
    fn is_shared(&self, _: &Self) -> bool {
        false
    }
    /// Returns the histogram that the next version of the row shares if it has not changed.
    fn hist(&self) -> Option<&Arc<Hist>> {
        None
    }
    fn hists(&self) -> impl Iterator<Item = &Hist> {
        self.hist().map(AsRef::as_ref).into_iter()
    }
    fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>>;
    fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample)
    where
        Self: 'a;
}

macro_rules! members {
    ($($type:ident { $($member:ident),* $(,)? })*) => {$(
        impl Field for $type {
            fn columns(columns: &mut Columns) {
                // The closures below only show the compiler the types of the members. They never run.
                fn of<T: Field>(_: fn(&$type) -> &T, columns: &mut Columns) {
                    T::columns(columns);
                }
                $(columns.member(stringify!($member), |columns| of(|row| &row.$member, columns));)*
            }
            fn put(&self, cells: &mut Cells, texts: &mut Texts) {
                let Self { $($member),* } = self;
                $($member.put(cells, texts);)*
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                Some(Self { $($member: Field::take(row)?),* })
            }
        }
    )*};
}

members! {
    TaskReading {
        serial, tid, tgid, comm, start_ns, moved_ns, before_move, cgroup_id, cpu, node, on_cpu, state, pending, placement, scheduling, max_ns,
        totals, accounts, hist,
    }
    BeforeMove { totals, accounts, hist }
    Pending { ns, booked_ns, by_cause }
    Scheduling { policy, is_bound }
    Placement { node_migrations, ran_ns, preferred_node, cpus_allowed, cpuset, parent, autogroup }
    Cpuset { path, cpus }
    Autogroup { number, nice }
    ExitedReading { cgroup_id, tasks, max_ns, totals, accounts, hist }
    PairReading { victim, culprit, blame, tid, comm, ns }
    CgroupReading {
        id, quota_us, period_us, burst_us, weight, idle, rt_runtime_us, cpus, cpuset, memory_by_node, usage_ns, user_ns, system_ns, nr_periods,
        nr_throttled, throttled_ns, nr_bursts, burst_ns, local_throttled_ns, pressure_some_ns, pressure_full_ns,
        made_after_ns, contention_ns, throttled_pressure_ns, pressure_uncertain_ns,
    }
    CpuReading { cpu, node, is_isolated, busy_ns, idle_ns, waits, contention_ns, throttled_pressure_ns }
    CpuWaits { max_ns, by_cause, hist, came_from }
    ContainerReading { cgroup_id, container, pod, namespace }
    DemandReading { cgroup_id, slot_shift, first, ran, wanted, useful, throttled, runnable }
    NodeReading { node, memory_bytes, free_bytes }
    ProcessMemory { tgid, by_node, policies }
    Cost { switches, hook_ns_per_run, cpu_ns, rss_bytes }
    SchedExt { scheduler, takes_all }
    ChainReading {
        sleeper, sleeper_tid, kind, waker, waker_cgroup, waker_tid, comm, count, slept_ns, ran_ns, by_cause, waker_slept_ns, unknown_ns,
        estimated_ns,
    }
    Whole { mode, losses, cost, sched_ext, demand_until_ns, has_chains }
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        members! { Totals { $($name,)* by_cause } }
    };
}
cgscope_ledger::totals!(totals);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Whole {
    pub(crate) mode: Mode,
    pub(crate) losses: Losses,
    pub(crate) cost: Cost,
    pub(crate) sched_ext: Option<SchedExt>,
    pub(crate) demand_until_ns: Option<u64>,
    pub(crate) has_chains: bool,
}

pub(crate) type NamedCgroup = (u64, Arc<str>);

/// A task. Samples in which the task is the same share its memory.
pub(crate) type TaskRow = Arc<TaskReading>;

impl Field for NamedCgroup {
    fn columns(columns: &mut Columns) {
        columns.member("id", u64::columns);
        columns.member("path", <Arc<str>>::columns);
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        self.0.put(cells, texts);
        self.1.put(cells, texts);
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let (id, path): (u64, Arc<str>) = (Field::take(row)?, Field::take(row)?);
        is_bounded(&path).then_some((id, path))
    }
}

macro_rules! keyed {
    ($($row:ident in $table:ident { $($more:tt)* })*) => {
        $(impl Keyed for $row {
            type Key = <table::$table as Table>::Key;
            const ORDER: &'static str = table::$table::ORDER;
            fn key(&self) -> Self::Key {
                table::$table::key(self)
            }
            fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>> {
                table::$table::rows(sample).iter()
            }
            fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample) {
                *table::$table::rows_mut(sample) = rows.cloned().collect();
            }
            $($more)*
        })*
    };
}

keyed! {
    TaskRow in Tasks {
        const SHARED_BYTES: usize = size_of::<TaskReading>();
        fn is_shared(&self, other: &Self) -> bool {
            Arc::ptr_eq(self, other)
        }
        fn hist(&self) -> Option<&Arc<Hist>> {
            Some(&self.hist)
        }
        fn hists(&self) -> impl Iterator<Item = &Hist> {
            let before = self.before_move.iter().map(|before| &*before.hist);
            std::iter::once(&*self.hist).chain(before)
        }
    }
    ExitedReading in Exited {
        fn hist(&self) -> Option<&Arc<Hist>> {
            Some(&self.hist)
        }
    }
    PairReading in Pairs {}
    CgroupReading in Limits {}
    NamedCgroup in Cgroups {}
    ContainerReading in Containers {}
    DemandReading in Demand {}
    CpuReading in Cpus {
        fn hists(&self) -> impl Iterator<Item = &Hist> {
            self.waits.iter().map(|waits| &*waits.hist)
        }
    }
    NodeReading in Nodes {}
    ProcessMemory in Memory {}
    ChainReading in Chains {}
}

macro_rules! order {
    (recorded { $($member:ident: $table:ident,)* } live { $($live:tt)* }) => {
        /// Returns the ordering rule that `sample` breaks, in words.
        pub(crate) fn out_of_order(sample: &Sample) -> Option<&'static str> {
            $(if !sample.$member.is_sorted_by(|a, b| table::$table::key(a) < table::$table::key(b)) {
                return Some(table::$table::ORDER);
            })*
            None
        }
    };
}
cgscope_model::tables!(order);

/// The rule, in words, that a sample with an invalid histogram breaks. The model depends on this rule.
pub(crate) const BAD_HISTOGRAM: &str = "a histogram in it has unknown or unordered buckets";

impl Keyed for Whole {
    type Key = ();
    fn key(&self) {}
    fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>> {
        std::iter::once(Self {
            mode: sample.mode,
            losses: sample.losses.clone(),
            cost: sample.cost,
            sched_ext: sample.sched_ext.clone(),
            demand_until_ns: sample.demand_until_ns,
            has_chains: sample.has_chains,
        })
    }
    fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample) {
        if let Some(whole) = rows.last() {
            (sample.mode, sample.losses, sample.cost) = (whole.mode, whole.losses.clone(), whole.cost);
            sample.sched_ext = whole.sched_ext.clone();
            (sample.demand_until_ns, sample.has_chains) = (whole.demand_until_ns, whole.has_chains);
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Skipped;

impl Field for Skipped {
    fn columns(_: &mut Columns) {}
    fn put(&self, _: &mut Cells, _: &mut Texts) {}
    fn take(_: &mut Row<'_>) -> Option<Self> {
        Some(Self)
    }
}

impl Keyed for Skipped {
    type Key = ();
    fn key(&self) {}
    fn of(_: &Sample) -> impl Iterator<Item: Borrow<Self>> {
        std::iter::empty::<Self>()
    }
    fn give<'a>(_: impl Iterator<Item = &'a Self>, _: &mut Sample) {}
}

/// Implements [`Field`] for optional values: a flag, then the members of the value or of a default value.
macro_rules! optional {
    ($($held:ty | $type:ty,)*) => {$(
        impl Field for Option<$held> {
            fn columns(columns: &mut Columns) {
                columns.member("known", bool::columns);
                <$type>::columns(columns);
            }
            fn put(&self, cells: &mut Cells, texts: &mut Texts) {
                self.is_some().put(cells, texts);
                match self {
                    Some(value) => value.put(cells, texts),
                    None => <$type>::default().put(cells, texts),
                }
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                let is_known = bool::take(row)?;
                let value = <$type>::take(row)?;
                Some(is_known.then(|| value.into()))
            }
        }
    )*};
}

optional!(
    Arc<BeforeMove> | BeforeMove,
    Arc<Pending> | Pending,
    Arc<Placement> | Placement,
    Arc<Cpuset> | Cpuset,
    Scheduling | Scheduling,
    Autogroup | Autogroup,
    SchedExt | SchedExt,
    CpuWaits | CpuWaits,
    Vec<(u32, u64)> | Vec<(u32, u64)>,
);

impl<T: Field> Field for Arc<T> {
    fn columns(columns: &mut Columns) {
        T::columns(columns);
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        T::put(self, cells, texts);
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        T::take(row).map(Self::new)
    }
}

/// Accounts are not recorded. Only `cgscope stat` requests them, and `cgscope stat` does not write recordings.
impl Field for Option<Arc<Accounts>> {
    fn columns(_: &mut Columns) {}
    fn put(&self, _: &mut Cells, _: &mut Texts) {}
    fn take(_: &mut Row<'_>) -> Option<Self> {
        Some(None)
    }
}

impl Field for ByCause {
    fn columns(columns: &mut Columns) {
        Cause::ALL.into_iter().for_each(|cause| columns.member(cause.name(), u64::columns));
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        self.0.into_iter().for_each(|ns| ns.put(cells, texts));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let mut parts = [0; CAUSES];
        for part in &mut parts {
            *part = row.number()?;
        }
        Some(Self(parts))
    }
}

single_numbers! {
    Mode: Number, number, |mode, _| match mode {
            Self::Bpf => 0,
            Self::Coarse => 1,
        },
        |number, _| value_at(number, [Self::Bpf, Self::Coarse]);
    // Stored as the code point of the state's letter. If a later version has written a new state, we read it as unknown.
    Option<TaskState>: Optional, optional, |state, _| state.map(|state| u64::from(u32::from(state.letter()))),
        |code, _| {
            let letter = code.and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
            Some(letter.and_then(TaskState::from_letter))
        };
    Blame: Number, number, |blame, _| match blame {
            Self::Ran => 0,
            Self::Limited => 1,
        },
        |number, _| value_at(number, [Self::Ran, Self::Limited]);
}

// Stored by name. A name of a later version is read as unknown.
single_numbers! {
    BlockedKind: Text, number, |kind, texts| texts.number(&kind.name().into()),
        |number, row| Some(BlockedKind::ALL.into_iter().find(|kind| row.text(number).is_some_and(|name| *name == *kind.name())).unwrap_or(BlockedKind::Unknown));
    Waker: Text, number, |waker, texts| texts.number(&waker.name().into()),
        |number, row| Some(Waker::ALL.into_iter().find(|waker| row.text(number).is_some_and(|name| *name == *waker.name())).unwrap_or(Waker::Unknown));
}

/// Losses are stored by name, because their numbers change between versions of cgscope.
impl Field for Losses {
    fn columns(columns: &mut Columns) {
        <Vec<(Arc<str>, u64)>>::columns(columns);
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        let named: Vec<(Arc<str>, u64)> =
            self.nonzero().map(|(loss, count)| (loss.name().into(), count)).collect();
        named.put(cells, texts);
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let named: Vec<(Arc<str>, u64)> = Field::take(row)?;
        Some(named.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::NONE;

    #[test]
    fn a_state_of_a_later_version_is_unknown() {
        assert_eq!(Columns::of::<Option<TaskState>>().len(), 1);
        let taken = |code: u64| {
            <Option<TaskState> as Field>::take(&mut Row {
                numbers: [code].iter(),
                lists: &[],
                next_list: 0,
                texts: &[],
                before: None,
            })
        };
        assert_eq!(taken('D'.into()), Some(Some(TaskState::DiskSleep)));
        for code in [NONE, 'Q'.into(), 0, 0xd800, NONE - 1] {
            assert_eq!(taken(code), Some(None), "{code:#x}");
        }
    }
}
