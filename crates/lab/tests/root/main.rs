//! Tests on the running kernel. They need root, BPF and the tools that `cargo xtask test` installs. If a tool is missing, tests
//! that need it fail.
//!
//! `cargo xtask test` runs each test in a process of its own. Tests without an attribute `ignore` run at the same time. `#[ignore
//! = "one CPU: ..."]` means that a test needs a CPU for itself, and says why. The test and all its children then run only on that
//! CPU. `#[ignore = "all CPUs: ..."]` means that no other test must run at the same time, and says why. See `load::Cpu`.
//!
//! Without options, `cargo xtask test` leaves out modules named `long` or `soak`. Only `cargo xtask lab scx` runs `built_kernel`,
//! and only `cargo xtask lab systemd` runs `systemd_host`.
#![allow(missing_docs, reason = "the names of tests explain them")]

mod accounts;
mod advice;
mod background;
mod bad_input;
mod bench;
mod browser;
mod built_kernel;
mod by_cpu;
mod bytes;
mod cgroup_moves;
mod cgroups;
mod chains;
mod coarse;
mod coarse_fallback;
mod conservation;
mod cost;
mod cures;
mod diff;
mod documented;
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
mod long;
mod memory_limit;
mod metrics_page;
mod names;
mod numa;
mod offcpu;
mod other_user;
mod overview;
mod owners;
mod packages;
mod pressure;
mod pty;
mod realtime;
mod record;
mod recording;
mod replay;
mod report;
mod runtimes;
mod sample;
mod sched_trace;
mod screen;
mod screen_cost;
mod serve;
mod shared;
mod shares;
mod soak;
mod spread;
mod stat;
mod stat_classes;
mod stat_command;
mod stat_command_cgroup;
mod stat_command_unseen;
mod stat_offcpu;
mod stat_waits;
mod states;
mod systemd_host;
mod terminal;
mod top_record;
mod truth;
mod views;
mod whatif;
