//! What lists there are.

use crate::columns::Column;

/// What the rows of a list are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Cgroups and what their tasks did.
    Cgroups,
    /// Cgroups and their limits.
    Limits,
    /// Cgroups that waited behind somebody.
    Victims,
    /// Processes.
    Processes,
    /// Threads.
    Threads,
    /// Threads, by where they ran.
    Placed,
    /// Threads by name and state.
    States,
}

use Column::*;

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Cgroups,
        Self::Limits,
        Self::Victims,
        Self::Processes,
        Self::Threads,
        Self::Placed,
        Self::States,
    ];

    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroups => "cgroups",
            Self::Limits => "limits",
            Self::Victims => "victims",
            Self::Processes => "processes",
            Self::Threads => "threads",
            Self::Placed => "placed",
            Self::States => "states",
        }
    }

    /// Its columns, in their order.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Cgroups => &[
                Name,
                WaitTime,
                WaitShare,
                Why,
                Throttled,
                P50,
                P99,
                Max,
                Pending,
                OnCpu,
                Quota,
                Waits,
                Involuntary,
                Voluntary,
                Threads,
                Behind,
            ],
            Self::Limits => &[
                Name, OnCpu, Quota, Limit, Burst, Periods, Throttled, LimitedBy, PsiSome, PsiFull, Weight,
                Threads,
            ],
            Self::Victims => &[Name, BehindTime, WaitTime, Why, P99, Max],
            Self::Processes => &[
                Pid,
                Command,
                Threads,
                WaitTime,
                WaitShare,
                Why,
                Throttled,
                P50,
                P99,
                Max,
                Pending,
                OnCpu,
                Waits,
                Involuntary,
                Voluntary,
                Migrations,
                Cgroup,
            ],
            Self::Threads => &[
                Tid,
                Pid,
                Command,
                Cpu,
                WaitTime,
                WaitShare,
                Why,
                Throttled,
                P50,
                P99,
                Max,
                Pending,
                OnCpu,
                Waits,
                Involuntary,
                Voluntary,
                Migrations,
                Cgroup,
            ],
            Self::Placed => {
                &[Tid, Command, Cpu, OnCpu, WaitTime, Why, P99, NodeMoves, Migrations, RanOn, Cgroup]
            }
            Self::States => &[],
        }
    }

    /// What is left out first where there is no room.
    pub const fn least_needed(self) -> &'static [Column] {
        match self {
            Self::Cgroups => &[
                Waits,
                WaitShare,
                Voluntary,
                Threads,
                Behind,
                P50,
                Pending,
                Max,
                OnCpu,
                Involuntary,
                P99,
                Throttled,
                Quota,
            ],
            Self::Limits => &[Threads, Weight, Limit, OnCpu, PsiFull, Burst, Throttled, LimitedBy, PsiSome],
            Self::Victims => &[Max, P99, WaitTime, Why],
            Self::Processes | Self::Threads => &[
                Migrations,
                Waits,
                WaitShare,
                P50,
                Pid,
                Voluntary,
                Cgroup,
                Pending,
                Cpu,
                Threads,
                Max,
                Involuntary,
                Throttled,
                OnCpu,
            ],
            Self::Placed => &[Cgroup, Migrations, P99, Cpu, Why],
            Self::States => &[],
        }
    }

    /// The columns that take what is left of the width: the first of them that is there.
    pub const fn flexible(self) -> &'static [Column] {
        match self {
            Self::Cgroups | Self::Limits | Self::Victims | Self::States => &[Name],
            Self::Processes | Self::Threads => &[Cgroup, Command],
            Self::Placed => &[Cgroup, RanOn],
        }
    }

    /// Sorted by this unless somebody chose another.
    pub const fn sorted_by(self) -> Column {
        match self {
            Self::Placed => OnCpu,
            Self::Limits => Throttled,
            Self::Victims => BehindTime,
            _ => WaitTime,
        }
    }

    /// Its rows are cgroups.
    pub const fn is_of_cgroups(self) -> bool {
        matches!(self, Self::Cgroups | Self::Limits | Self::Victims)
    }
}
