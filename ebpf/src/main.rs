//! The kernel side of cgscope. Read in this order:
//!
//! 1. [`hook`]: the one hook on the way of every switch, with [`ledger`], [`history`], [`look_back`] and [`culprits`] for why it
//!    waited, and [`by_cpu`] and [`placement`] for where;
//!    and [`accounts`], where asked for, for how long tasks were blocked;
//! 2. [`birth`], [`moves`] and [`burial`]: tasks that are born, that move to another cgroup, and that are dead;
//! 3. [`reading`]: the iterator that hands everything to user space, and [`exited`], the one of who exited; [`cgroups`]: the names of cgroups;
//! 4. [`throttle`]: where the kernel has no clock of throttled time;
//! 5. [`maps`] and [`kernel`]: where it is kept, and the only reads of kernel memory.
#![no_std]
#![no_main]
// For the atomic addition of `burial`.
#![feature(asm_experimental_arch)]

mod accounts;
mod birth;
mod burial;
mod by_cpu;
mod cgroups;
mod culprits;
mod exited;
mod history;
mod hook;
#[allow(dead_code, reason = "some of it is for `sample` alone")]
mod kernel;
mod ledger;
mod look_back;
mod maps;
mod moves;
mod placement;
mod reading;
mod room;
mod throttle;

/// `bpf_get_current_task_btf`, `bpf_seq_write` and task storage are for GPL-compatible programs.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
