//! Tests on the running kernel. They need root, BPF and the tools that `cargo xtask test` installs; nothing is skipped.
//!
//! Run by `cargo xtask test`, one after the other but for the modules that it names as those which company does not disturb.
#![allow(missing_docs, reason = "tests are sentences")]

mod accounts;
mod background;
mod bad_input;
mod bench;
mod browser;
mod by_cpu;
mod bytes;
mod cgroups;
mod coarse;
mod coarse_fallback;
mod conservation;
mod cost;
mod diff;
mod export;
mod field_case_1;
mod field_case_2;
mod files;
mod fleet;
mod flight;
mod hotplug;
mod hour;
mod kill;
mod ledger;
mod live_and_replay;
mod load;
mod metrics_page;
mod numa;
mod offcpu;
mod overview;
mod packages;
mod pty;
mod record;
mod recording;
mod replay;
mod report;
mod sample;
mod sched_trace;
mod screen;
mod screen_cost;
mod serve;
mod shared;
mod stat;
mod stat_classes;
mod stat_command;
mod stat_command_cgroup;
mod stat_command_unseen;
mod stat_offcpu;
mod stat_waits;
mod states;
mod terminal;
mod top_record;
mod truth;
mod views;
