//! Tests on the running kernel. They need root, BPF and the tools that `cargo xtask test` installs; nothing is skipped.
//!
//! Run by `cargo xtask test`, one after the other.
#![allow(missing_docs, reason = "tests are sentences")]

mod bad_input;
mod bench;
mod by_cpu;
mod cgroups;
mod coarse;
mod coarse_fallback;
mod conservation;
mod cost;
mod diff;
mod field_case_1;
mod field_case_2;
mod files;
mod hotplug;
mod ledger;
mod load;
mod numa;
mod record;
mod screen;
mod truth;
