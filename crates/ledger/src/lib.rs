//! The types and constants that the BPF side and user space share: the bucket function, the records that the BPF side sends, the
//! kernel fields that it reads, and the names of all losses.
//!
//! The crate is `no_std` and has no dependencies and no cargo features, so both sides compile exactly the same code.
#![no_std]
#![allow(missing_docs, reason = "comments say only what names and types do not say")]
// The inline assembly in `verifier` needs this compiler feature.
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

pub mod bucket;
pub mod cause;
pub mod chains;
pub mod changes;
pub mod demand;
pub mod feature;
pub mod fields;
pub mod host;
pub mod loss;
mod named;
pub mod pressure;
pub mod task_state;
pub mod threads;
pub mod verifier;
pub mod waits;
pub mod wire;

pub use bucket::{BUCKETS, bucket_of, high_ns, low_ns};
pub use cause::{ByCause, CAUSES, Cause, Shares};
pub use feature::{Feature, Probe};
pub use fields::{ABSENT, BIT_SHIFT, FIELD_COUNT, Field, KERNEL_FIELDS, Offsets};
pub use loss::{KERNEL_LOSSES, Loss};
pub use waits::{culprits, history, look_back, segment, split};
pub use wire::{BLOCKED_STATES, BlockedState, ByState, FRAMES, Stack};
