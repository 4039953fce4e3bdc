//! All reads of kernel memory. They are plain loads through BTF pointers, at offsets that are constants for the verifier.
//!
//! A load through a stale pointer returns 0 (`PROBE_MEM`). A load through a pointer that may be null does not compile: see [`Base`].

use core::{ffi::c_void, mem::zeroed, ptr};

use aya_ebpf::{
    EbpfContext,
    helpers::generated::{bpf_probe_read_kernel, bpf_seq_write},
};
use cgscope_ledger::{ABSENT, Offsets, wire::Config};

/// The offsets, which user space sets before it loads the programs. All reads are volatile, because otherwise the compiler would
/// use the initial values below.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets::UNKNOWN;

#[unsafe(no_mangle)]
// SAFETY: all members are integers.
static CONFIG: Config = Config { cgroup_hierarchy: u64::MAX, ..unsafe { zeroed() } };

/// Loads a field of the structure at a [`Base`]: Usage: `field!(base, name)` or `field!(base, name: type)`. The result is 0 if the
/// kernel lacks the field. The type of a pointer is `Option<Base>`.
macro_rules! field {
    ($base:expr, $field:ident) => {
        field!($base, $field: _)
    };
    ($base:expr, $field:ident: $type:ty) => {
        $crate::kernel::load::load::<$type, { cgscope_ledger::fields::field(core::mem::offset_of!(cgscope_ledger::Offsets, $field)) }>($base)
    };
}

macro_rules! has_field {
    ($field:ident) => {
        $crate::kernel::load::patched::<
            { cgscope_ledger::fields::presence(core::mem::offset_of!(cgscope_ledger::Offsets, $field)) },
        >() != 0
    };
}

/// Returns the offset of a field. For code that need not be fast.
macro_rules! offset {
    ($field:ident) => {
        // SAFETY: our own static.
        unsafe { core::ptr::read_volatile(&raw const $crate::kernel::OFFSETS.$field) }
    };
}

/// Defines functions that are always inlined and consist of one expression.
macro_rules! inlined {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:tt)*) $(-> $type:ty)? { $value:expr })*) => {
        $($(#[$doc])* #[inline(always)] $vis fn $name($($arg)*) $(-> $type)? { $value })*
    };
}
pub(crate) use inlined;

mod iterator;
mod load;
mod queue;
mod task;

pub use context::{Context, context};
pub use iterator::{EntryContext, TaskContext};
pub use load::Base;
pub use queue::{
    CfsRunQueue, Cgroup, RunQueue, Throttled, cgroup_above, cgroup_id_at, cgroup_of_queue, is_alone,
    kernels_throttled_ns_at_0, kernels_throttled_ns_rarely, levels_out_of_quota_at,
};
pub use task::Task;

/// Reads a setting of less than 2^31.
macro_rules! small_setting {
    ($field:ident) => {
        $crate::kernel::load::patched::<
            { cgscope_ledger::fields::setting(core::mem::offset_of!(cgscope_ledger::wire::Config, $field)) },
        >()
    };
}

/// Reads a setting, which the verifier knows as a constant.
macro_rules! setting {
    ($field:ident) => {
        // SAFETY: our own static.
        unsafe { core::ptr::read_volatile(&raw const $crate::kernel::CONFIG.$field) }
    };
}

// Uses these macros.
mod context;

inlined! {
    pub fn follow_all() -> bool { small_setting!(follow_all) != 0 }
    /// Whether culprits are single tasks and not only cgroups.
    pub fn blame_tasks() -> bool { small_setting!(blame_tasks) != 0 }
    pub fn has_nodes() -> bool { small_setting!(nodes) > 1 }
    pub fn counts_by_cpu() -> bool { small_setting!(count_by_cpu) != 0 }
    /// Whether cgscope keeps a clock of throttled time, because the kernel has none.
    pub fn keeps_throttle_clock() -> bool { small_setting!(keep_throttle_clock) != 0 }
    /// Whether to count blocked time, user time and kernel time.
    pub fn keeps_accounts() -> bool { small_setting!(accounts) != 0 }
    /// Whether to count the demand of cgroups with a quota.
    pub fn counts_demand() -> bool { small_setting!(demand) != 0 }
    /// Whether to count for whom tasks sleep.
    pub fn keeps_chains() -> bool { small_setting!(chains) != 0 }
    /// Whether several viewers share the readings.
    pub fn is_shared() -> bool { small_setting!(shared) != 0 }
    /// Whether the hook may create storage: the kernel must have a cache for it, and no figure of a sleeping task may change.
    pub fn hook_allocates() -> bool { has_field!(storage_cache) && !keeps_accounts() && !keeps_chains() }
    /// Blocked time after which the stack of a task is walked, ns; 0: stacks are never walked.
    pub fn stack_every_ns() -> u64 { setting!(stack_every_ns) }
    /// Whether the kernel throttles each task separately when it returns to user space, and marks the task (Linux 6.18).
    pub fn throttles_tasks() -> bool { has_field!(task_throttled) }
    /// If a task starts after this time, all of its waits are counted, ns of CLOCK_MONOTONIC.
    pub fn born_after_ns() -> u64 { setting!(born_after_ns) }
    /// If a task starts after this time, it is not selected by its id, ns of CLOCK_MONOTONIC.
    pub fn select_born_before_ns() -> u64 { setting!(select_born_before_ns) }
    /// Whether user space has chosen the default hierarchy (v2).
    pub fn is_v2() -> bool { small_setting!(cgroup_v2) != 0 }
    /// Id of the root cgroup in the chosen hierarchy.
    pub fn root_cgroup_id() -> u64 { setting!(root_cgroup_id) }
    pub fn cgroup_hierarchy() -> u64 { setting!(cgroup_hierarchy) }
    /// Number of slots for the storages of tasks, less one.
    pub fn last_slot() -> u32 { small_setting!(last_slot) as u32 }
    pub fn slot_factor() -> u64 { small_setting!(slot_factor) }
    /// Index of the reader's own list of changed tasks. It follows the lists of all possible CPUs.
    pub fn readers_list() -> u32 { small_setting!(cpus) as u32 }
}

/// Returns the address of a task, less the address of a map value, because the verifier takes a difference for a number.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn address_of(task: Task) -> u64 {
    let mut address = task.pointer();
    // SAFETY: the instruction changes only a register.
    unsafe {
        core::arch::asm!("{0} -= {1}", inout(reg) address, in(reg) &raw const CONFIG, options(pure, nomem, nostack))
    };
    address as u64
}

#[cfg(not(target_arch = "bpf"))]
pub fn address_of(_: Task) -> u64 {
    unreachable!("only lints compile this for another machine")
}

/// Returns an argument of a program: a pointer that the kernel never passes as null. The contexts of all programs with such arguments
/// are arrays of words.
#[inline(always)]
pub fn argument(context: &impl EbpfContext, index: usize) -> Base {
    // SAFETY: the program has this argument, otherwise the verifier refuses it.
    unsafe { Base::known(*context.as_ptr().cast::<*const c_void>().add(index)) }
}

#[inline(always)]
fn load_at<T: Copy>(base: Base, offset: u32) -> T {
    // SAFETY: the verifier accepts this load only at an offset where BTF has this type, and the kernel returns 0 after a fault.
    unsafe { base.pointer().cast::<u8>().add(offset as usize).cast::<T>().read_volatile() }
}

/// Reads the word at `address + offset` with a helper. Returns 0 if the kernel lacks the field or cannot read the word. Use this
/// function only on rare code paths. It avoids loads of typed pointers. At each such load, the verifier searches all type names
/// of the kernel twice (`btf_nested_type_is_trusted`, Linux 6.2 to 7.3). These searches would take longer than the rest of the
/// verification.
#[inline(always)]
fn peek(address: u64, offset: u32) -> u64 {
    let mut value = 0u64;
    if offset != ABSENT {
        let from = address.wrapping_add(u64::from(offset)) as *const c_void;
        // SAFETY: the helper writes 8 bytes of `value`, and checks the address that it reads from.
        unsafe { bpf_probe_read_kernel((&raw mut value).cast(), 8, from) };
    }
    value
}

/// Does the same as [`peek`], but takes no stack of the caller. Until Linux 6.13, the functions of a program have 512 bytes of stack
/// in total.
#[inline(never)]
fn peek_apart(address: u64, offset: u32) -> u64 {
    peek(address, offset)
}

/// Returns the address of the cgroup of a task, in the chosen hierarchy; 0 for an autogroup. `task` is the address of the task.
#[inline(always)]
pub fn cgroup_of(task: u64) -> u64 {
    if is_v2() {
        peek(peek(task, offset!(task_cgroups)), offset!(css_set_cgroup))
    } else {
        peek(peek(task, offset!(task_sched_group)), offset!(task_group_cgroup))
    }
}

/// Returns the kind of the file at an address: `i_mode` shifted right by [`MODE_SHIFT`](cgscope_ledger::chains::MODE_SHIFT); 15, which
/// no kind has, if it could not be read.
#[inline(always)]
pub fn mode_of_file(file: u64) -> u32 {
    let inode = peek(file, offset!(file_inode));
    let mode = peek(inode, offset!(inode_mode)) as u32 & 0xffff;
    if inode == 0 { 15 } else { mode >> cgscope_ledger::chains::MODE_SHIFT }
}

/// A `struct seq_file *`, to which an iterator writes.
#[derive(Clone, Copy)]
pub struct SeqFile(Base);

impl SeqFile {
    inlined! {
        pub fn new(file: Base) -> Self { Self(file) }
        pub fn pointer(self) -> *mut c_void { self.0.pointer() }
        /// Returns how many more bytes fit into the buffer before the kernel passes it to user space.
        pub fn space_left(self) -> u64 {
            field!(self.0, seq_size: u64).wrapping_sub(field!(self.0, seq_count: u64))
        }
    }

    /// Writes a value. If the value does not fit, the kernel calls the iterator for the task again.
    #[inline(always)]
    pub fn write<T>(self, value: &mut T) {
        // SAFETY: `value` can be read in its full size. The helper writes all of the value or nothing.
        unsafe { bpf_seq_write(self.pointer().cast(), ptr::from_mut(value).cast(), size_of::<T>() as u32) };
    }
}
