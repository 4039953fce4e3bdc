//! What a CPU quota would have done: replays recorded demand under any `cpu.max`. Pure: no I/O, no clock.
//!
//! A [`Profile`] says how much CPU time the tasks of a cgroup got, waited for and would have used, slot by slot. A [`Replay`] runs the
//! profiles of a [`Tree`] of cgroups under other limits, by the kernel's rules of CFS bandwidth control, and gives an [`Outcome`] for each
//! cgroup.

mod bounds;
mod demand;
mod engine;
mod outcome;
mod pool;
mod replay;
mod setting;
mod tree;

pub use bounds::{Bounds, Cells, Check, Figures, Recorded};
pub use outcome::{Outcome, Stalls};
pub use replay::Replay;
pub use setting::{Loop, Setting};
pub use tree::{Error, Limit, Node, Profile, Slot, Tree};
