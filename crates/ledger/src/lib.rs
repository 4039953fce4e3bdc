//! Types and constants that both sides of cgscope share: the bucket function, the records that the kernel side sends to user
//! space, the kernel fields that are read, and the names of all losses.
//!
//! The crate is `no_std`, without dependencies or features, so the BPF side and user space compile exactly the same code.
#![no_std]
// The inline assembly of `verifier` needs this feature.
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

pub mod accounts;
pub mod bucket;
pub mod cause;
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
pub mod throttle;
pub mod verifier;
pub mod waits;
pub mod wire;

pub use accounts::{BLOCKED_STATES, BlockedState, ByState, FRAMES, Stack};
pub use bucket::{BUCKETS, bucket_of, high_ns, low_ns};
pub use cause::{ByCause, CAUSES, Cause, Shares};
pub use feature::{Feature, Probe};
pub use fields::{ABSENT, BIT_SHIFT, FIELD_COUNT, Field, KERNEL_FIELDS, Offsets};
pub use loss::{KERNEL_LOSSES, Loss};
pub use waits::{culprits, history, look_back, segment, split};
