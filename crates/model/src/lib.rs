//! Samples, Intervals and everything derived from them. Pure: no aya, no tokio, no file system, no clock.
//!
//! A [`Sample`] holds cumulative readings. Only [`Interval::between`] subtracts them, so live, recorded and replayed figures
//! agree. If a reader skips Samples, [`Skipped`] holds the rows that it missed.
#![allow(
    missing_docs,
    reason = "comments hold what names do not say: units, kernel versions, what `None` means"
)]

/// Serializes an enum of [`cgscope_ledger::named`] as its name.
macro_rules! by_name {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

/// Declares Protocol Buffers messages, for crates that depend on prost. A field is `"TAG" NAME: TYPE, [HOW prost ENCODES IT];`.
#[macro_export]
macro_rules! messages {
    ($($message:ident { $($tag:tt $field:ident: $type:ty, [$($how:tt)*];)* })*) => {$(
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct $message {
            $(#[prost($($how)*, tag = $tag)] pub $field: $type,)*
        }
    )*};
}

pub mod accounts;
pub mod blocked_kind;
pub mod blocked_on;
pub mod causes;
pub mod cgroup_name;
pub mod class;
pub mod command_run;
pub mod counters;
pub mod diff;
pub mod doctor;
pub mod findings;
pub mod follower;
pub mod hist;
pub mod json;
mod mode;
pub mod names;
pub mod path;
pub mod placement;
mod printable;
pub mod quota_use;
pub mod selection;
pub mod skipped;
pub mod steps;
pub mod sum;
pub mod table;
pub mod timeline;
pub mod tree;
pub mod units;
mod words;

pub use accounts::{Accounts, ByState, CpuTimes, ExitedThreads};
pub use blocked_kind::BlockedKind;
pub use blocked_on::{BlockedOn, BlockedTime};
pub use causes::ByCause;
pub use cgroup_name::CgroupName;
pub use cgscope_ledger::{BLOCKED_STATES, BlockedState, CAUSES, Cause};
pub use command_run::CommandRun;
pub use counters::{Counter, Observed};
pub use findings::Finding;
pub use hist::Hist;
pub use mode::Mode;
pub use names::{ContainerReading, Names};
pub use placement::{Autogroup, Cpuset, Placement};
pub use printable::{comm, printable, printable_lines, steers};
pub use quota_use::QuotaUse;
pub use selection::Selection;
pub use skipped::Skipped;
pub use steps::Steps;
pub use table::{
    cgroups::{AVERAGED_S, Averages, CgroupReading, PressureAverages, weight_of_shares},
    chains::{self, ChainKey, ChainReading, ChainsBySleeper, Doing, End, Link, Party},
    cpus::{CpuInterval, CpuReading, CpuWaits},
    demand::{self, DemandReading, DemandSlot},
    exited::{ExitedInterval, ExitedReading},
    interval::{Group, GroupSum, Interval, Wait, WallTime},
    nodes::{self, NodeReading, ProcessMemory},
    pairs::{self, Blame, PairKey, PairReading, REST, REST_NAME, between, rest_of},
    sample::{Cost, Losses, Sample, SchedExt},
    stacks::{self, StackReading},
    tasks::{BeforeMove, Figures, Pending, Scheduling, TaskInterval, TaskReading, TaskState, Totals},
};
pub use timeline::Timeline;
pub use tree::Tree;
