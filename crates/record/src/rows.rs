//! What the members of a Sample look like as rows. The names of columns are the names of members: a member that is added to
//! the model must be added here (else this does not compile), and is then one column more in new files.

use std::{borrow::Borrow, sync::Arc};

use cgscope_layout::{CAUSES, Cause};
use cgscope_model::{
    Accounts, Blame, ByCause, CgroupReading, Cost, CpuReading, CpuWaits, Cpuset, ExitedReading, Hist, Losses,
    Mode, NodeReading, PairReading, Pending, Placement, ProcessMemory, Sample, Scheduling, TaskReading,
    TaskState, Totals,
};

use crate::cells::{Cells, Columns, Field, Kind, Row, Texts};

/// The rows of a table of a Sample: in ascending order of their keys, each once.
pub(crate) trait Keyed: Field {
    type Key: Ord + std::fmt::Debug;
    fn key(&self) -> Self::Key;
    /// The histogram that need not be built anew where it has not changed.
    fn hist(&self) -> Option<&Arc<Hist>> {
        None
    }
    /// Those of a Sample.
    fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>>;
    /// Gives a Sample these.
    fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample)
    where
        Self: 'a;
}

macro_rules! members {
    ($($type:ident { $($member:ident),* $(,)? })*) => {$(
        impl Field for $type {
            fn columns(columns: &mut Columns) {
                // The types of the members are those of the model: they are inferred here, and never run.
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
        serial, tid, tgid, comm, start_ns, moved_ns, cgroup_id, cpu, node, on_cpu, state, pending, placement, scheduling, max_ns,
        totals, accounts, hist,
    }
    Pending { ns, booked_ns, by_cause }
    Scheduling { policy, is_bound }
    Placement { node_migrations, ran_ns, preferred_node, cpus_allowed, cpuset }
    Cpuset { path, cpus }
    ExitedReading { cgroup_id, tasks, max_ns, totals, accounts, hist }
    PairReading { victim, culprit, blame, tid, comm, ns }
    CgroupReading {
        id, quota_us, period_us, burst_us, weight, cpus, cpuset, memory_by_node, usage_ns, user_ns, system_ns, nr_periods,
        nr_throttled, throttled_ns, nr_bursts, burst_ns, local_throttled_ns, pressure_some_ns, pressure_full_ns,
        made_after_ns,
    }
    CpuReading { cpu, node, busy_ns, idle_ns, waits }
    CpuWaits { max_ns, by_cause, hist, came_from }
    NodeReading { node, memory_bytes, free_bytes }
    ProcessMemory { tgid, by_node, policies }
    Cost { switches, hook_ns_per_run, cpu_ns, rss_bytes }
    Whole { mode, losses, cost }
    Named { id, path }
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        members! { Totals { $($name,)* by_cause } }
    };
}
cgscope_layout::totals!(totals);

/// What a Sample has but once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) mode: Mode,
    pub(crate) losses: Losses,
    pub(crate) cost: Cost,
}

/// The path of a cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    id: u64,
    path: Arc<str>,
}

macro_rules! keyed {
    ($($type:ident in $member:ident by $key:ty { $row:ident => $value:expr } $(; $hist:ident)?)*) => {$(
        impl Keyed for $type {
            type Key = $key;
            fn key(&self) -> $key {
                let $row = self;
                $value
            }
            $(fn hist(&self) -> Option<&Arc<Hist>> {
                Some(&self.$hist)
            })?
            fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>> {
                sample.$member.iter()
            }
            fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample) {
                sample.$member = rows.cloned().collect();
            }
        }
    )*};
}

keyed! {
    TaskReading in tasks by u64 { task => task.serial }; hist
    ExitedReading in exited by u64 { exited => exited.cgroup_id }; hist
    PairReading in pairs by (u64, u64, Blame, u32) { pair => PairReading::key(pair) }
    CgroupReading in limits by u64 { limits => limits.id }
    CpuReading in cpus by u32 { cpu => cpu.cpu }
    NodeReading in nodes by u32 { node => node.node }
    ProcessMemory in memory by u32 { memory => memory.tgid }
}

impl Keyed for Named {
    type Key = u64;
    fn key(&self) -> u64 {
        self.id
    }
    fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>> {
        sample.cgroups.iter().map(|(id, path)| Self { id: *id, path: path.clone() })
    }
    fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample) {
        sample.cgroups = rows.map(|named| (named.id, named.path.clone())).collect();
    }
}

impl Keyed for Whole {
    type Key = ();
    fn key(&self) {}
    fn of(sample: &Sample) -> impl Iterator<Item: Borrow<Self>> {
        std::iter::once(Self { mode: sample.mode, losses: sample.losses.clone(), cost: sample.cost })
    }
    fn give<'a>(rows: impl Iterator<Item = &'a Self>, sample: &mut Sample) {
        if let Some(whole) = rows.last() {
            (sample.mode, sample.losses, sample.cost) = (whole.mode, whole.losses.clone(), whole.cost);
        }
    }
}

/// One that may be missing: whether it is there, and then its members; those of a missing one are those of an empty one.
macro_rules! optional {
    ($($type:ty),*) => {$(
        impl Field for Option<$type> {
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
                Some(is_known.then_some(value))
            }
        }
    )*};
}

optional!(Pending, Scheduling, Arc<Placement>, Arc<Cpuset>, CpuWaits, Vec<(u32, u64)>);

macro_rules! shared {
    ($($type:ty),*) => {$(
        impl Field for Arc<$type> {
            fn columns(columns: &mut Columns) {
                <$type>::columns(columns);
            }
            fn put(&self, cells: &mut Cells, texts: &mut Texts) {
                <$type>::put(self, cells, texts);
            }
            fn take(row: &mut Row<'_>) -> Option<Self> {
                <$type>::take(row).map(Self::new)
            }
        }
    )*};
}

shared!(Placement, Cpuset);

/// Not recorded: only `cgscope stat` asks for them, and no recording is made of what it reads.
impl Field for Option<Arc<Accounts>> {
    fn columns(_: &mut Columns) {}
    fn put(&self, _: &mut Cells, _: &mut Texts) {}
    fn take(_: &mut Row<'_>) -> Option<Self> {
        Some(None)
    }
}

impl Field for ByCause {
    fn columns(columns: &mut Columns) {
        for cause in Cause::ALL {
            columns.member(cause.name(), u64::columns);
        }
    }
    fn put(&self, cells: &mut Cells, texts: &mut Texts) {
        for ns in self.0 {
            ns.put(cells, texts);
        }
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let mut parts = [0; CAUSES];
        for part in &mut parts {
            *part = row.number()?;
        }
        Some(Self(parts))
    }
}

impl Field for Mode {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Number);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.number(match self {
            Self::Bpf => 0,
            Self::Coarse => 1,
        });
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.number()? {
            0 => Some(Self::Bpf),
            1 => Some(Self::Coarse),
            _ => None,
        }
    }
}

/// By the code of its letter. One that a later version may have added is not known.
impl Field for Option<TaskState> {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Optional);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.optional(self.map(|state| u64::from(u32::from(state.letter()))));
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        let code = row.optional()?.and_then(|code| u32::try_from(code).ok());
        Some(code.and_then(char::from_u32).and_then(TaskState::from_letter))
    }
}

impl Field for Blame {
    fn columns(columns: &mut Columns) {
        columns.one(Kind::Number);
    }
    fn put(&self, cells: &mut Cells, _: &mut Texts) {
        cells.number(match self {
            Self::Ran => 0,
            Self::Limited => 1,
        });
    }
    fn take(row: &mut Row<'_>) -> Option<Self> {
        match row.number()? {
            0 => Some(Self::Ran),
            1 => Some(Self::Limited),
            _ => None,
        }
    }
}

/// By name: the numbers of losses change with the version of cgscope.
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

/// Calls `$with` for every table of a Sample: its name, the type of its rows, and where they are.
macro_rules! tables {
    ($with:ident) => {
        $with! {
            whole: Whole,
            tasks: TaskReading,
            exited: ExitedReading,
            pairs: PairReading,
            limits: CgroupReading,
            cgroups: Named,
            cpus: CpuReading,
            nodes: NodeReading,
            memory: ProcessMemory,
        }
    };
}
pub(crate) use tables;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::NONE;

    #[test]
    fn a_state_that_a_later_version_has_added_is_not_known() {
        let mut columns = Columns::default();
        <Option<TaskState>>::columns(&mut columns);
        assert_eq!(columns.columns.len(), 1);
        let taken = |code: u64| <Option<TaskState> as Field>::take(&mut Row::new(&[code], &[], &[], None));
        assert_eq!(taken('D'.into()), Some(Some(TaskState::DiskSleep)));
        for code in [NONE, 'Q'.into(), 0, 0xd800, NONE - 1] {
            assert_eq!(taken(code), Some(None), "{code:#x}");
        }
    }
}
