//! Reads the running host from BPF, `/proc` and `/sys`.
//!
//! [`Collector::start`] looks up the offsets of the kernel's fields ([`offsets`]) and attaches the BPF side ([`kernel_side`]). In
//! coarse mode, [`Collector::start`] opens `/proc` instead. [`Collector::sample`] reads all tasks ([`stream`]), names cgroups
//! ([`cgroups`]) and adds cgscope's own cost.

mod bpf_calls;
mod btf;
pub mod cgroups;
pub mod clock;
mod cmdline;
mod collector;
mod domain;
pub mod facts;
mod failure;
mod kernel_side;
mod known;
mod limits;
mod memory;
pub mod offsets;
pub mod own_cgroup;
mod own_cost;
mod own_memory;
mod patch;
mod placement;
pub mod quotas;
mod readings;
mod source;
mod stream;
mod symbols;
mod time_split;

pub use cmdline::{cmdline, command_lines};
pub use collector::{Accounting, Collector, Held, NameContainers, Options};
pub use failure::{Failure, FailureKind};
pub use kernel_side::{EMPTY_HOOK_OBJECT, OBJECT, SAMPLE_OBJECT, YARDSTICK_OBJECT};
pub use patch::patched;
pub use source::Changes;
pub use symbols::KernelSymbols;
pub use time_split::TimeSplit;

/// Parts of the [`Collector`] that `cgscope-psn` and the check for hidden targets also use.
pub mod shared_parts {
    pub use crate::{
        bpf_calls::Raw,
        collector::check,
        kernel_side::{AyaResult, failed, hash_table, loader, program, read_iterator},
        readings::task_state_from_bits,
        source::coarse::{files::CgroupIds, files::ProcFiles, follow::Follow, text},
        stream::{Buffer, StreamEnd, drain, part},
    };
}
