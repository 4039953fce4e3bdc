//! The BPF programs of cgscope. Read the modules in this order:
//!
//! 1. [`hook`]: runs at every switch, and when a waiting task moves to another CPU. [`cgscope_ledger::waits`] finds the causes of
//!    waits in the [`history`]; [`host`] connects it to the kernel. [`accounts`] counts how long tasks were blocked, and
//!    [`demand`] how much CPU time cgroups with a quota could use;
//! 2. [`forks`], [`moves`] and [`exits`]: new tasks, moves to another cgroup, and exits;
//! 3. [`reading`] and [`changes`]: the iterators over all, exited and changed tasks; [`cgroups`]: the names of cgroups;
//! 4. [`throttle`]: the clock of throttled time that cgscope keeps on kernels without one;
//! 5. [`chains`]: for whom tasks slept;
//! 6. [`slots`], [`maps`] and [`kernel`]: the figures of tasks, other storage, and all reads of kernel memory.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod accounts;
mod cgroups;
mod chains;
mod changes;
mod demand;
mod exits;
mod forks;
mod history;
mod hook;
mod host;
#[allow(dead_code, reason = "some of it is for `sample` alone")]
mod kernel;
mod maps;
mod moves;
mod object;
mod reading;
mod slots;
mod task_storage;
mod throttle;
