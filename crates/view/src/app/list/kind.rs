//! The kinds of lists, and their columns.

use std::sync::LazyLock;

use cgscope_layout::named;
use cgscope_model::counters::{Counter, OF_TOP};

use crate::columns::Column;

named! {
    /// The subjects of a list's rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Kind (name,) {
        /// The name in settings.
        name: &'static str,
    }

    /// Cgroups and what their tasks did.
    Cgroups = "cgroups";
    /// Cgroups and their limits.
    Limits = "limits";
    /// Cgroups that waited behind others.
    Victims = "victims";
    /// Processes.
    Processes = "processes";
    /// Threads.
    Threads = "threads";
    /// Threads, by where they ran.
    Placed = "placed";
    /// Threads by name and state.
    States = "states";
}

use Column::*;

const WAITS: Column = Of(Counter::Waits);
const CSWCH: Column = Of(Counter::Voluntary);
const NVCSWCH: Column = Of(Counter::Involuntary);
const MIGR: Column = Of(Counter::Migrations);

impl Kind {
    /// Its columns, in their order.
    pub fn columns(self) -> &'static [Column] {
        static COLUMNS: LazyLock<[Vec<Column>; Kind::ALL.len()]> =
            LazyLock::new(|| Kind::ALL.map(Kind::all_columns));
        &COLUMNS[self as usize]
    }

    fn all_columns(self) -> Vec<Column> {
        let after = match self {
            Self::Cgroups => Quota,
            Self::Processes | Self::Threads => OnCpu,
            _ => return self.beside_counters().to_vec(),
        };
        let has = |counter: &&Counter| self != Self::Cgroups || !counter.info().tasks_only;
        let counters = |at| OF_TOP.iter().filter(has).filter(move |_| at == after).copied().map(Of);
        let columns = self.beside_counters().iter().copied();
        columns.flat_map(|column| std::iter::once(column).chain(counters(column))).collect()
    }

    /// The columns besides the counters that all lists of cgroups, processes and threads have.
    const fn beside_counters(self) -> &'static [Column] {
        match self {
            Self::Cgroups => &[
                Name, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Quota, Threads,
                Behind,
            ],
            Self::Limits => &[
                Name, OnCpu, Quota, Limit, Burst, Periods, Throttled, LimitedBy, PsiSome, PsiFull, Weight,
                Threads,
            ],
            Self::Victims => &[Name, BehindTime, WaitTime, Why, P99, Max],
            Self::Processes => &[
                Pid, Command, Threads, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu,
                Cgroup,
            ],
            Self::Threads => &[
                Tid, Pid, Command, Cpu, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu,
                Cgroup,
            ],
            Self::Placed => &[Tid, Command, Cpu, OnCpu, WaitTime, Why, P99, NodeMoves, MIGR, RanOn, Cgroup],
            Self::States => &[],
        }
    }

    /// The columns in the order in which they are left out where there is no room, counters that are not named below first.
    pub fn least_needed(self) -> Vec<Column> {
        let named = self.named_least_needed();
        let others =
            self.columns().iter().filter(|column| matches!(column, Of(_)) && !named.contains(column));
        others.chain(named).copied().collect()
    }

    const fn named_least_needed(self) -> &'static [Column] {
        match self {
            Self::Cgroups => &[
                WAITS, WaitShare, CSWCH, Threads, Behind, P50, Pending, Max, OnCpu, NVCSWCH, P99, Throttled,
                Quota,
            ],
            Self::Limits => &[Threads, Weight, Limit, OnCpu, PsiFull, Burst, Throttled, LimitedBy, PsiSome],
            Self::Victims => &[Max, P99, WaitTime, Why],
            Self::Processes | Self::Threads => &[
                MIGR, WAITS, WaitShare, P50, Pid, CSWCH, Cgroup, Pending, Cpu, Threads, Max, NVCSWCH,
                Throttled, OnCpu,
            ],
            Self::Placed => &[Cgroup, MIGR, P99, Cpu, Why],
            Self::States => &[],
        }
    }

    /// The columns that take the rest of the width: the first of them that is shown.
    pub const fn flexible(self) -> &'static [Column] {
        match self {
            Self::Cgroups | Self::Limits | Self::Victims | Self::States => &[Name],
            Self::Processes | Self::Threads => &[Cgroup, Command],
            Self::Placed => &[Cgroup, RanOn],
        }
    }

    /// The default sort column.
    pub const fn sorted_by(self) -> Column {
        match self {
            Self::Placed => OnCpu,
            Self::Limits => Throttled,
            Self::Victims => BehindTime,
            _ => WaitTime,
        }
    }

    /// Whether its rows are cgroups.
    pub const fn is_of_cgroups(self) -> bool {
        matches!(self, Self::Cgroups | Self::Limits | Self::Victims)
    }
}
