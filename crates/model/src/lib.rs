//! Samples, Intervals and everything derived from them. Pure: no aya, no tokio, no file system, no clock.
//!
//! A [`Sample`] holds cumulative readings; only [`Interval::between`] subtracts them. Live, recorded and replayed figures all
//! come from that one function. For a reader that skips Samples, [`Skipped`] holds the missing rows.

pub mod accounts;
mod averages;
pub mod blocked_on;
pub mod causes;
pub mod cgroup_name;
pub mod class;
mod coarse;
pub mod command_run;
pub mod counters;
pub mod diff;
pub mod doctor;
pub mod findings;
pub mod follower;
pub mod hist;
pub mod interval;
pub mod json;
mod named;
pub mod names;
pub mod placement;
pub mod quota_use;
pub mod sample;
mod sched_ext;
pub mod selection;
pub mod skipped;
pub mod sparse;
pub mod steps;
pub mod sum;
pub mod table;
pub mod task_state;
pub mod timeline;
pub mod tree;
pub mod units;
pub mod wall_time;
mod words;

pub use crate::table::tasks::Totals;
pub use accounts::{Accounts, ByState, CpuTimes, ExitedThreads};
pub use averages::{AVERAGED_S, Averages, PressureAverages};
pub use blocked_on::{BlockedKind, BlockedOn, BlockedTime};
pub use causes::ByCause;
pub use cgroup_name::CgroupName;
pub use cgscope_ledger::{BLOCKED_STATES, BlockedState, CAUSES, Cause};
pub use command_run::CommandRun;
pub use counters::{Counter, Observed};
pub use findings::Finding;
pub use hist::Hist;
pub use interval::{Group, GroupSum, Interval, Wait};
pub use names::Names;
pub use placement::{Cpuset, Placement};
pub use quota_use::QuotaUse;
pub use sample::{Cost, Losses, Mode, Sample, comm, printable, printable_lines, steers};
pub use sched_ext::SchedExt;
pub use selection::Selection;
pub use skipped::Skipped;
pub use steps::Steps;
pub use table::{
    cgroups::ContainerReading,
    cpus::{CpuInterval, CpuReading, CpuWaits},
    demand,
    demand::{DemandReading, DemandSlot},
    exited::{ExitedInterval, ExitedReading},
    limits,
    limits::CgroupReading,
    memory::ProcessMemory,
    nodes,
    nodes::NodeReading,
    pairs,
    pairs::{Blame, PairKey, PairReading, REST, REST_NAME, between, rest_of},
    stacks,
    stacks::StackReading,
    tasks::{BeforeMove, Figures, Pending, Scheduling, TaskInterval, TaskReading},
};
pub use task_state::TaskState;
pub use timeline::Timeline;
pub use tree::Tree;
pub use wall_time::WallTime;
