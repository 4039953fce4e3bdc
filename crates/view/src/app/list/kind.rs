//! The kinds of lists and their columns.

use std::sync::LazyLock;

use cgscope_ledger::named;
use cgscope_model::counters::{Counter, OF_TOP};

use crate::columns::Column::{self, *};

const WAITS: Column = Of(Counter::Waits);
const CSWCH: Column = Of(Counter::Voluntary);
const NVCSWCH: Column = Of(Counter::Involuntary);
const MIGR: Column = Of(Counter::Migrations);

named! {
    /// A kind of list, named after its rows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ListKind (name, sorted_by, flexible, beside_counters, named_least_needed) {
        /// The name in the settings file.
        name: &'static str,
        /// The default sort column.
        sorted_by: Column,
        /// Columns that may take the remaining width; the first visible one takes it.
        flexible: &'static [Column],
        /// All columns, except the counters that lists of cgroups, processes and threads share.
        beside_counters: &'static [Column],
        /// Columns to omit when the screen is too narrow, in this order. Counters that are not listed here go first.
        named_least_needed: &'static [Column],
    }

    /// Cgroups and what their tasks did.
    Cgroups = "cgroups", WaitTime, &[Name],
        &[Name, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Quota, Threads, Behind],
        &[WAITS, WaitShare, CSWCH, Threads, Behind, P50, Pending, Max, OnCpu, NVCSWCH, P99, Throttled, Quota];
    /// Cgroups and their limits.
    Limits = "limits", Throttled, &[Name],
        &[
            Name, OnCpu, Quota, Limit, Burst, Periods, Throttled, LimitedBy, Contention, AtLimit, PsiSome, PsiFull, Weight,
            Threads,
        ],
        &[Threads, Weight, Limit, OnCpu, PsiFull, PsiSome, Burst, Throttled, LimitedBy, AtLimit, Contention];
    /// Cgroups that waited behind others.
    Victims = "victims", BehindTime, &[Name],
        &[Name, BehindTime, WaitTime, Why, P99, Max],
        &[Max, P99, WaitTime, Why];
    /// Processes.
    Processes = "processes", WaitTime, &[Cgroup, Command],
        &[Pid, Command, Threads, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Cgroup],
        LEAST_OF_TASKS;
    /// Threads.
    Threads = "threads", WaitTime, &[Cgroup, Command],
        &[Tid, Pid, Command, Cpu, WaitTime, WaitShare, Why, Throttled, P50, P99, Max, Pending, OnCpu, Cgroup],
        LEAST_OF_TASKS;
    /// Threads and where they ran.
    Placed = "placed", OnCpu, &[Cgroup, RanOn],
        &[Tid, Command, Cpu, OnCpu, WaitTime, Why, P99, NodeMoves, MIGR, RanOn, Cgroup],
        &[Cgroup, MIGR, P99, Cpu, Why];
    /// Threads by name and state.
    States = "states", WaitTime, &[Name], &[], &[];
}

const LEAST_OF_TASKS: &[Column] =
    &[MIGR, WAITS, WaitShare, P50, Pid, CSWCH, Cgroup, Pending, Cpu, Threads, Max, NVCSWCH, Throttled, OnCpu];

impl ListKind {
    /// All columns of the list, in display order.
    pub fn columns(self) -> &'static [Column] {
        static COLUMNS: LazyLock<[Vec<Column>; ListKind::ALL.len()]> =
            LazyLock::new(|| ListKind::ALL.map(ListKind::all_columns));
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

    /// Columns to omit when the screen is too narrow, in this order.
    pub(crate) fn least_needed(self) -> Vec<Column> {
        let named = self.named_least_needed();
        let others =
            self.columns().iter().filter(|column| matches!(column, Of(_)) && !named.contains(column));
        others.chain(named).copied().collect()
    }

    /// Whether the rows are cgroups.
    pub(crate) const fn is_of_cgroups(self) -> bool {
        matches!(self, Self::Cgroups | Self::Limits | Self::Victims)
    }
}
