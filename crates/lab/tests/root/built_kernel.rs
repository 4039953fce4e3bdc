//! Tests on the kernel that the lab builds. This kernel has BPF schedulers (sched_ext), and it measures the time of interrupts.

mod interrupts;
mod sched_ext;
