//! What a CPU quota would have done: replays recorded demand under any `cpu.max`. Pure: no I/O, no clock.
//!
//! A [`Profile`] says how much CPU time the tasks of a cgroup got, waited for and would have used, slot by slot. A [`Replay`] runs the
//! profiles of a [`Tree`] of cgroups under other limits, by the kernel's rules of CFS bandwidth control, and gives an [`Outcome`] for
//! each cgroup. Nobody knows when work would have arrived under another limit, nor where the kernel's grid of periods begins. So
//! [`settings`] are both loops and several phases, and [`Figures`] are [`Bounds`] over them.
//!
//! [`history`](mod@history) takes the demand from Samples, `demand` says what it shows, `simulator` and [`answer`](mod@answer) answer a
//! question with many replays, [`words`] and [`json`] print it, and [`watch`] keeps what the screen asks for.
//!
//! # The model
//!
//! * Demand is a rate in CPUs, constant within a slot. A rate of 2.5 CPUs uses two CPUs all the time and a third one half of the time.
//! * Each CPU of a cgroup with a limit takes runtime from the cgroup's pool in slices. A CPU without runtime is throttled until the pool
//!   is refilled. Its tasks do not move to other CPUs.
//! * Use counts for the cgroup and for all cgroups above it. If a limit above lets only a part of the demand pass, or there are too few
//!   CPUs, all cgroups below run at this part of their rates. Weights (`cpu.weight`) do not matter.
//! * The grids of periods of several cgroups are at a chosen distance: [`Setting::spread_ns`].
//!
//! Where tasks run on more CPUs than their rate needs, the kernel leaves up to 1 ms of runtime on each one. The model does not.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

pub mod answer;
mod arrivals;
mod demand;
mod engine;
pub mod history;
pub mod json;
mod outcome;
mod pool;
mod replay;
mod simulator;
#[cfg(test)]
mod tests;
pub mod watch;
pub mod words;

pub use outcome::{Bounds, Check, Figures, Outcome, PHASES, Stalls, settings};
pub use replay::{Limit, Loop, Node, Profile, Replay, Setting, Slot, Tree};
