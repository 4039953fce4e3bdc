//! Tests on the kernel that the lab builds. This kernel supports BPF schedulers (sched_ext) and accounts the time of interrupts.

mod interrupts;
mod sched_ext;
