//! The data that the BPF side and user space exchange: records that the BPF side sends, and the values of BPF maps.
//!
//! All types are `repr(C)` and have no padding. Both sides are built together, so there is no version number.

mod accounts;
pub mod names;

use core::mem::offset_of;

use crate::{
    bucket::BUCKETS,
    cause::{BUCKETS_OF_ROW, ByCause, CAUSES, CELLS, COLUMNS, ROWS, Shares, row_of},
    demand::Quota,
    pressure::KeptPressure,
    verifier::{add_atomic, opaque},
};
pub use accounts::{
    Accounts, AccountsRecord, BLOCKED_STATES, Blocked, BlockedState, ByState, ExitedThreads, FRAMES, Stack,
    StackCount, StackKey,
};

/// Maximum number of NUMA nodes that are counted separately. User space gives each node an index, because the kernel's node
/// numbers can have gaps.
pub const NODES: usize = 16;

/// Number of waits in each bucket. The counters never decrease, except that they wrap at 2^32.
pub type Counts = [u32; BUCKETS];

/// The hook's figures about the waits of one task that it needs at every switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The value of `sched_info.run_delay` that the task will have at its next switch in, if it is not moved to another CPU while
    /// it waits.
    pub expected_run_delay_ns: u64,
    /// The longest wait that has ended since cgscope began to follow the task, ns.
    pub max_ns: u64,
    /// Since when the task has waited after a preemption with its state already set, ns of `rq->clock`; 0 if there is no such
    /// wait.
    pub unstamped_since_ns: u64,
}

/// In [`TaskStorage::flags`]: cgscope also follows the children of this task.
pub const INHERIT: u64 = 1;

/// In [`TaskStorage::flags`]: one bit for each of the [`FOLLOWERS`], if readings are [shared](Config::shared). Child tasks inherit the
/// bits.
pub const FOLLOWED: u64 = !0 << FOLLOWED_SHIFT;
/// Number of the lowest bit in [`FOLLOWED`].
pub const FOLLOWED_SHIFT: u32 = 8;
/// Maximum number of viewers that can follow processes and their descendants at once.
pub const FOLLOWERS: u32 = u64::BITS - FOLLOWED_SHIFT;

/// The changes that the reader makes to the [`FOLLOWED`] bits of every task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub clear: u64,
    /// Not 0: each process in the table of selected ids gets the bits in its table entry.
    pub look: u64,
}

/// Returns the serial of a task: a number that identifies the task until the next boot. A tid is not enough, because the kernel
/// reuses tids. The serial is computed only once, when cgscope begins to follow the task: `execve` in a thread gives the thread
/// the tid and start time of its process (`de_thread`).
#[inline(always)]
pub const fn serial(tid: u32, start_ns: u64) -> u64 {
    // A tid has at most 22 bits (PID_MAX_LIMIT). The serials of two tasks are equal only if both have the same tid and their
    // starts differ by exactly a multiple of 2^42 ns (73 minutes).
    ((tid as u64) << START_BITS) | (start_ns & ((1 << START_BITS) - 1))
}

/// Returns the next serial of a task, which it gets when it moves to another cgroup.
#[inline(always)]
pub const fn next_serial(serial: u64) -> u64 {
    // Adds one nanosecond to the start time in the serial. No other task with this tid starts so soon after.
    (serial & !((1 << START_BITS) - 1)) | (serial.wrapping_add(1) & ((1 << START_BITS) - 1))
}

const START_BITS: u32 = 42;

/// Calls a macro with those readings of a task that can be summed, in the order of their columns in recordings. No other list of
/// these readings exists. [`Totals::by_cause`] is separate.
#[macro_export]
macro_rules! totals {
    ($with:ident) => {
        $with! {
            /// Number of completed waits on a run queue.
            waits,
            /// Sum of the completed waits, ns. If a task was moved while it waited, this includes the time on other CPUs.
            wait_ns,
            /// The sum of waits that the kernel keeps, ns (`/proc/PID/schedstat`, second field).
            run_delay_ns,
            /// Number of waits after a preemption with the state already set. The kernel does not count these waits.
            unstamped,
            unstamped_ns,
            on_cpu_ns,
            voluntary,
            involuntary,
            migrations,
            /// Number of completed waits in which the task was out of quota for part of the time.
            throttled_waits,
        }
    };
}

macro_rules! wire_totals {
    ($(#[$waits:meta])* waits, $(#[$wait_ns:meta])* wait_ns, $($(#[$doc:meta])* $name:ident,)*) => {
        /// The readings of a task that can be summed, over the tasks of a cgroup or over exited tasks. User space computes the
        /// first two from the histogram and from `by_cause`.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Sums of completed waits by cause, ns.
            pub by_cause: ByCause,
        }

        impl Totals {
            pub const NONE: Self = Self { $($name: 0,)* by_cause: [0; CAUSES] };

            /// Adds to `sums` the increase of each reading from `self` to `now`, and then makes `self` equal to `now`. The causes are
            /// separate, because the compiler can keep only the other readings in registers.
            #[inline(always)]
            pub fn hand_over(&mut self, now: &Self, by_cause: &ByCause, sums: &mut Self) {
                let add = |sum: &mut u64, before: &mut u64, now: u64| {
                    add_atomic(sum, now.wrapping_sub(*before));
                    *before = now;
                };
                $(add(&mut sums.$name, &mut self.$name, now.$name);)*
                for cause in 0..CAUSES {
                    add(&mut sums.by_cause[cause], &mut self.by_cause[cause], by_cause[cause]);
                }
            }

            /// Calls `add` for each reading with the increase from `base` to `now`, modulo 2^64.
            #[inline(always)]
            pub fn add_since(&mut self, now: &Self, base: &Self, add: impl Fn(&mut u64, u64)) {
                $(add(&mut self.$name, now.$name.wrapping_sub(base.$name));)*
                for cause in 0..CAUSES {
                    add(&mut self.by_cause[cause], now.by_cause[cause].wrapping_sub(base.by_cause[cause]));
                }
            }
        }
    };
}
totals!(wire_totals);

impl Totals {
    /// Returns the increase since `base`, modulo 2^64.
    pub fn since(&self, base: &Self) -> Self {
        let mut since = Self::NONE;
        since.add_since(self, base, |since, more| *since = more);
        since
    }
}

/// The entry of a task that has not run since cgscope began to follow the task. When the task first switches in, the hook creates
/// its [`TaskStorage`] from these figures. Such entries are used only if the hook may allocate, see
/// [`Feature::StorageCache`](crate::Feature::StorageCache).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    pub serial: u64,
    pub reported_serial: u64,
    pub cgroup_id: u64,
    /// The value of `sched_info.run_delay`, ns.
    pub run_delay_ns: u64,
    /// See [`TaskStorage::flags`].
    pub flags: u64,
    /// Number of the task's migrations. If a wakeup chooses another CPU, the number increases before the task switches in.
    pub migrations: u64,
    /// The properties that the reader last reported.
    pub face: Face,
}

/// Properties of a task that can change while the task sleeps, without a switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// Name of the task, padded with NUL bytes.
    pub comm: [u64; 2],
    /// Address of an object that the kernel replaces when the task moves to another cgroup.
    pub group: u64,
    /// See [`TaskRecord::state`]. It can change during sleep, because the kernel can freeze a sleeping task.
    pub state: u64,
}

/// The figures of a task.
///
/// The order of the members decides how many cache lines a switch touches. Most storages begin with a cache line. The first has what
/// both sides of a switch need, and ends with the first word of `start`. The second has the rest of what the hook records when the
/// task leaves its CPU. The fourth and fifth are the log, and the sixth has the usual causes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskStorage {
    /// Address of the task.
    pub task: u64,
    pub waits: Waits,
    /// Id of the cgroup for which all figures since `reported` count. This cgroup has an entry in the table of exited tasks.
    pub cgroup_id: u64,
    /// Position in the log: how many entries the hook has appended or skipped, modulo 2^32.
    pub logged: u32,
    /// [`UNCHANGED`], [`LISTED`] or [`ACTIVE`].
    pub has_changed: u32,
    pub quota: Quota,
    pub start: Start,
    /// Up to this position, the entries of the log are counted or reported. See [`crate::waits::log::count`] for who changes it.
    pub taken: u64,
    /// A lock. Not 0 while a program changes `reported`, `cgroup_id` and `serial`, or reads all of them. The lock is taken and
    /// released atomically.
    pub lock: u64,
    /// See [`crate::demand::Running::position_ns`].
    pub position_ns: u64,
    /// [`INHERIT`] and [`FOLLOWED`]. The flags are set when the task starts. After that, only the reader changes them.
    pub flags: u64,
    /// Number of completed waits in which the task was out of quota for part of the time, written by the hook.
    pub throttled_waits: u64,
    /// The latest waits, see [`crate::waits::log`].
    pub log: Log,
    pub by_cause: ByCause,
    /// Sum and number of the waits after preemptions with the state already set. The kernel does not count such waits.
    pub unstamped_ns: u64,
    pub unstamped_count: u64,
    pub moved: Moved,
    pub blocked: Blocked,
    /// See [`serial`]. It changes whenever the task moves to another cgroup ([`next_serial`]).
    pub serial: u64,
    /// Not 0 if the task has exited. 1: its unreported figures are already added to its cgroup. 2: the program that holds the
    /// lock adds them.
    pub is_handed_over: u64,
    /// The properties that the reader last reported.
    pub face: Face,
    /// The figures that were last reported to user space or added to a cgroup's entry. When the task exits or moves to another
    /// cgroup, the figures since then are added to the cgroup's entry.
    pub reported: Reported,
}

const _: () = {
    assert!(offset_of!(TaskStorage, start) + offset_of!(Start, switches) == CACHE_LINE);
    assert!(offset_of!(TaskStorage, start) + offset_of!(Start, throttle_ns) <= 2 * CACHE_LINE);
    assert!(offset_of!(TaskStorage, log).is_multiple_of(CACHE_LINE));
    assert!(offset_of!(TaskStorage, by_cause).is_multiple_of(CACHE_LINE));
};

/// Size of a cache line, bytes.
const CACHE_LINE: usize = 64;

// The kernel then takes 1 KiB for a value.
const _: () = assert!(in_kernel(size_of::<TaskStorage>()) == 1024);

/// Size of `struct bpf_local_storage`, rounded up, bytes (Linux 6.18). Each task has one.
const OF_TASK: usize = 256;

/// Returns the kernel memory of a value in task storage, rounded up, bytes: `bpf_local_storage_elem` precedes the value; the list
/// node of the cache and the charged cgroup follow it (Linux 6.18).
const fn in_kernel(value: usize) -> usize {
    (72 + value + 16).next_power_of_two()
}

/// Memory of a task with a [`TaskStorage`], bytes. 3 KiB of it are in user space, which stores a few samples and compares and
/// encodes them.
pub const TASK_BYTES: u64 = (in_kernel(size_of::<TaskStorage>()) + OF_TASK + (3 << 10)) as u64;

/// Memory of a task's [`Histogram`], bytes.
pub const HISTOGRAM_BYTES: u64 = in_kernel(size_of::<Histogram>()) as u64;

// If one task in ten fills its log between two readings, a task takes at most 1.5 KiB of kernel memory on average.
const _: () = assert!(in_kernel(size_of::<TaskStorage>()) + OF_TASK + HISTOGRAM_BYTES as usize / 10 <= 1536);

/// Memory of a task's [`Placement`], bytes.
pub const PLACEMENT_BYTES: u64 = in_kernel(size_of::<Placement>()) as u64;

/// Memory of a [`Chain`](crate::chains::Chain), bytes.
pub const CHAIN_BYTES: u64 = in_kernel(size_of::<crate::chains::Chain>()) as u64;

/// Memory of a [`Sleeper`], bytes. 1 KiB of it is in user space, for one reading.
pub const SLEEPER_BYTES: u64 = (in_kernel(size_of::<Sleeper>()) + OF_TASK + (1 << 10)) as u64;

/// In [`TaskStorage::has_changed`]: the task has done nothing since its last report.
pub const UNCHANGED: u32 = 0;
/// In [`TaskStorage::has_changed`]: the task has switched in since its last report, and is on the list of its CPU.
pub const LISTED: u32 = 1;
/// In [`TaskStorage::has_changed`]: the task was active when it was last reported, so it is on the reader's own list. When this
/// task goes to sleep, the hook does nothing.
pub const ACTIVE: u32 = 2;

/// Figures of a task that never decrease.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The serial with which the task was last reported to user space.
    pub serial: u64,
    pub totals: Totals,
    pub accounts: Accounts,
}

/// Number of entries in a [`Log`], a power of two.
pub const LOGGED: usize = 32;

/// The latest waits of a task, see [`crate::waits::log`].
pub type Log = [u32; LOGGED];

/// Number of counters for a row in a [`Histogram`]: for each bucket, for each column, and unused ones. So a row fills one cache
/// line, less the eight bytes by which the kernel's object is shifted.
pub const COUNTERS_OF_ROW: usize = 16;

/// The waits of a task that were not reported yet and are no longer in its log.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    pub counters: [u32; ROWS * COUNTERS_OF_ROW],
}

impl Histogram {
    pub const NONE: Self = Self { counters: [0; ROWS * COUNTERS_OF_ROW] };

    /// Returns the counters of a row as words of two counters, the first one in the low half.
    #[inline(always)]
    pub fn words(&mut self, row: usize) -> Option<&mut [u64; COUNTERS_OF_ROW / 2]> {
        let row = opaque(row);
        if row >= ROWS {
            return None;
        }
        // Otherwise the compiler may compute the address before the check.
        let first = opaque(row * COUNTERS_OF_ROW);
        // SAFETY: the counters of the row are within the array, and the histogram is aligned for words.
        Some(unsafe { &mut *self.counters.as_mut_ptr().add(first).cast() })
    }

    /// Returns the number of waits by bucket, and the shares by cell.
    pub fn counts_and_shares(&self) -> (Counts, Shares) {
        let at = |row: usize, at: usize| self.counters[row * COUNTERS_OF_ROW + at];
        (
            core::array::from_fn(|bucket| at(row_of(bucket), bucket % BUCKETS_OF_ROW)),
            core::array::from_fn(|cell| at(cell / COLUMNS, BUCKETS_OF_ROW + cell % COLUMNS)),
        )
    }
}

/// Histograms of completed waits, by length and by cause. The counters never decrease, except that they wrap at 2^32.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuHistogram {
    pub counts: Counts,
    pub shares: Shares,
}

/// The nodes on which a task ran. Tasks have this value only if there are several nodes, see [`Config::nodes`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index of the node on which the task last ran, plus one; 0 if it has not run on a known node.
    pub place: u32,
    /// The value of `task_struct.numa_preferred_nid` at the time of the reading; -1 if there is no preferred node.
    pub preferred_node: i32,
    /// Number of times that the task switched in on a different node than before.
    pub node_migrations: u64,
    /// The task's run time when it last switched in on a different node, ns.
    pub since_ran_ns: u64,
    /// The task's run time on each node, by node index, ns, without the run time after `since_ran_ns`.
    pub ran_ns: [u64; NODES],
}

impl Placement {
    /// Returns the placement since the moment when the run time was `base_ns`. `base` was read after that moment. Time on other
    /// nodes between the two is unknown.
    pub fn since(&self, base: &Self, base_ns: u64) -> Self {
        let mut ran_ns = self.ran_ns;
        for (now, base) in ran_ns.iter_mut().zip(base.ran_ns) {
            *now = now.saturating_sub(base);
        }
        Self {
            node_migrations: self.node_migrations.saturating_sub(base.node_migrations),
            since_ran_ns: self.since_ran_ns.saturating_sub(base_ns),
            ran_ns,
            ..*self
        }
    }
}

/// The counters of one CPU, used if [`Config::count_by_cpu`] is set. Only that CPU's hook writes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpuCounters {
    /// The longest completed wait, ns.
    pub max_ns: u64,
    pub by_cause: ByCause,
    pub histogram: CpuHistogram,
    /// Number of switches in on this CPU, by the index of the node on which the task ran before.
    pub came_from: [u64; NODES],
}

/// The iterator's record of one task. In the stream, further parts follow the record in this order, if their flags are set: a
/// [`Reported`] ([`HAS_BASE`]), a [`Histogram`] ([`HAS_BASE_HISTOGRAM`]), the [`Placement`] ([`HAS_PLACEMENT`]), the
/// [`AccountsRecord`] ([`HAS_ACCOUNTS`]), the [`Stack`] ([`HAS_STACK`]), a [`Histogram`] ([`HAS_HISTOGRAM`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    /// Size of this record and of the parts that follow it, bytes.
    pub len: u32,
    /// The parts that follow, [`ON_CPU`] and [`ON_RQ`].
    pub flags: u32,
    pub serial: u64,
    pub tid: u32,
    pub tgid: u32,
    /// Name of the task, padded with NUL bytes.
    pub comm: [u8; 16],
    /// Start time, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Id of the task's cgroup in the hierarchy that [`Config::cgroup_v2`] selects.
    pub cgroup_id: u64,
    /// The CPU on which the task runs, last ran, or is queued.
    pub cpu: u32,
    /// `task_struct.__state`: 0 if the task runs or is runnable.
    pub state: u32,
    /// `sched_info.last_queued`: since when the task has waited, ns; 0 if it does not wait.
    pub last_queued_ns: u64,
    /// The clock of the task's run queue, ns. The clock of an idle CPU stands still.
    pub rq_clock_ns: u64,
    pub totals: Totals,
    pub waits: Waits,
    /// See [`TaskStorage::flags`].
    pub followed: u64,
    /// The current wait from its start to `rq_clock_ns`, split by cause, ns.
    pub pending: ByCause,
    /// The [`crate::Cause`] for which the task waits at this moment. Waiting time after `rq_clock_ns` counts for this cause.
    pub pending_cause: u64,
}

/// The record of a task that has done nothing since its last report. It is sent instead of a [`TaskRecord`], and has the flag
/// [`SAME`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SameRecord {
    /// Size of this record, bytes.
    pub len: u32,
    pub flags: u32,
    pub serial: u64,
    /// See [`TaskStorage::flags`]. User space itself keeps [`FOLLOWED`] up to date.
    pub followed: u64,
}

// Values of `SameRecord::flags`.
pub const SAME: u32 = 128;
pub const HAS_EXITED: u32 = 256;

/// The record that ends a CPU's list of changed tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListRecord {
    /// Size of this record, bytes.
    pub len: u32,
    pub flags: u32,
    /// Number of the CPU. For the reader's own list, this is the number of possible CPUs.
    pub cpu: u64,
    /// Number of tasks that run or wait on the CPU (`rq->nr_running`).
    pub running: u64,
    /// 1: the list has more entries.
    pub has_more: u64,
    /// 1: the lists are incomplete, so the reader must visit every task of the host.
    pub is_incomplete: u64,
}

/// In [`ListRecord::flags`]: the only flag, always set.
pub const LIST: u32 = 512;

// Values of `TaskRecord::flags`.
/// The waits since the last report follow.
pub const HAS_HISTOGRAM: u32 = 1;
pub const ON_CPU: u32 = 2;
/// The task is on a run queue (it runs or waits).
pub const ON_RQ: u32 = 4;
pub const HAS_PLACEMENT: u32 = 8;
pub const HAS_ACCOUNTS: u32 = 16;
/// The task is blocked, and its stack follows. The flag is set only once each time that the task blocks.
pub const HAS_STACK: u32 = 32;
/// The task has moved to another cgroup since its last report. The figures at the latest move follow; they count for the former
/// cgroups.
pub const HAS_BASE: u32 = 64;
/// The waits between the last report and the latest move follow.
pub const HAS_BASE_HISTOGRAM: u32 = 1024;

/// The value of the table of exited tasks. For each cgroup, it stores unreported figures, and figures that got no entry in a
/// CPU's tables.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exited {
    pub tasks: u64,
    /// The longest wait that any exited task had in its whole life, ns.
    pub max_ns: u64,
    pub totals: Totals,
    pub accounts: Accounts,
    pub counts: [u64; BUCKETS],
    pub shares: [u64; CELLS],
    pub kept: Kept,
    /// Pressure of the cgroup: waits of its tasks and of its descendants' tasks.
    pub pressure: KeptPressure,
    /// Number of completed additions to this entry. Each addition ends by increasing this number.
    pub complete: u64,
    /// The values of `complete` when this entry was last reported and the time before, see [`Self::is_reported`].
    pub reported: [u64; 2],
}

impl Exited {
    /// Adds the pressure of waits that got no entry in the table of their CPU.
    #[inline(always)]
    pub fn keep_pressure(&mut self, more: KeptPressure) {
        self.pressure.add(more);
        add_atomic(&mut self.complete, 1);
    }

    /// An entry to which nothing was added yet.
    // SAFETY: the type holds only integers.
    pub const NONE: Self = unsafe { core::mem::zeroed() };

    /// Returns whether the entry was reported twice and nothing was added in the meantime. One report is not enough, because
    /// another CPU's writes may become visible in another order. By the next reading, all of them are visible.
    #[inline(always)]
    pub const fn is_reported(complete: u64, reported: [u64; 2]) -> bool {
        complete == reported[0] && complete == reported[1]
    }
}

/// A hash table element consists of a head of 48 bytes, the key and this value. It must fit into the largest object of the
/// kernel's BPF allocator (`alloc_htab_elem`, `bpf_mem_alloc_size_check`; Linux 6.1 to 7.2).
const _: () = assert!(size_of::<Exited>() + 48 + 8 <= 4096 - 8);

/// The iterator's record of an entry in the table of exited tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitedRecord {
    pub cgroup_id: u64,
    /// 1: an [`Exited`] follows. 0: none follows, because the entry has not changed since the last report, or no task has exited.
    pub follows: u64,
}

/// Maximum number of cgroups with a quota whose demand is counted.
pub const DEMAND_PLACES: usize = 256;

/// Maximum number of entries in the table of exited tasks. Each cgroup with a task that is or was followed has one, until the
/// kernel releases the cgroup.
pub const EXITED_CGROUPS: usize = 16_384;
/// Maximum number of entries in the table of stacks, if blocked time is counted by stack: about 10 MiB.
pub const STACKS: usize = 16_384;
/// Maximum number of tasks that moved to another cgroup after they had waited, and were not reported yet.
pub const MOVED: usize = 4096;
/// Maximum number of selected processes and threads.
pub const SELECTED_MAX: usize = 65_536;

/// The event that reports a created, removed or renamed cgroup. Only the used part of the path is sent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CgroupEvent {
    /// See [`cgroup_event`].
    pub kind: u32,
    /// 1: the path is missing, because it is too long for this event or could not be read.
    pub is_cut: u32,
    pub id: u64,
    /// The path from the root of the hierarchy, ending with a NUL. Set only for a created cgroup.
    pub path: [u8; CGROUP_PATH],
}

impl CgroupEvent {
    /// Size of the event without its path, bytes.
    pub const HEAD: usize = size_of::<Self>() - CGROUP_PATH;
}

/// Values of [`CgroupEvent::kind`].
pub mod cgroup_event {
    pub const MADE: u32 = 1;
    pub const REMOVED: u32 = 2;
    /// The cgroup was renamed, so the paths of the cgroup and its descendants have changed.
    pub const RENAMED: u32 = 3;
}

/// Maximum size of a path in an event, including its NUL, bytes.
pub const CGROUP_PATH: usize = 256;
/// Size of the event buffer, bytes. The buffer holds the events for about 5,000 cgroups that are created and removed between two
/// readings. User space maps the buffer twice, and both mappings count as its memory.
pub const CGROUP_EVENTS_BYTES: usize = 512 << 10;

/// In the table of selected ids, the key of a process is its id plus this number.
pub const SELECT_PROCESS: u64 = 1 << 32;
/// In the table of selected ids, the key of a thread is its id plus this number.
pub const SELECT_THREAD: u64 = 2 << 32;

/// Settings that user space writes before it loads the programs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// 1: follow every task. 0: follow the tasks in the table of selected ids, and the children of those that are processes.
    pub follow_all: u64,
    /// When cgscope started, ns of CLOCK_MONOTONIC. For tasks that start after that, every wait is counted.
    pub born_after_ns: u64,
    /// 1: a task's cgroup is the one in the default hierarchy (v2), even if the cpu controller is enabled only for an ancestor.
    /// 0: it is the one in the cpu controller's own hierarchy (v1 and hybrid hosts).
    pub cgroup_v2: u64,
    /// Id of the root cgroup in that hierarchy. A task in an autogroup (`kernel.sched_autogroup_enabled`, v1 and hybrid hosts) is
    /// in the root cgroup, but its scheduler group belongs to no cgroup.
    pub root_cgroup_id: u64,
    /// A process or thread that starts after this time is not selected, even if its id is in the table, ns of CLOCK_MONOTONIC.
    pub select_born_before_ns: u64,
    /// 1: culprits are single tasks, not only cgroups. This is used only for selected targets, because a whole host has too many
    /// tasks.
    pub blame_tasks: u64,
    /// Number of the hierarchy of [`Self::cgroup_v2`], as in /proc/self/cgroup. The number is needed because cgroups of
    /// different hierarchies can have the same id. `u64::MAX`: the programs send no events about cgroups.
    pub cgroup_hierarchy: u64,
    /// Number of NUMA nodes that have CPUs, at most [`NODES`]. With one node, no placement is reported.
    pub nodes: u64,
    /// 1: the programs also count waits by CPU.
    pub count_by_cpu: u64,
    /// 1: the programs keep a clock of throttled time, because the kernel has none.
    pub keep_throttle_clock: u64,
    /// 1: the programs report [`crate::wire::Accounts`].
    pub accounts: u64,
    /// How long a task is blocked between two readings of its stack, ns; 0: no stacks are read. This setting needs `accounts`.
    pub stack_every_ns: u64,
    /// 1: the readings serve several viewers, so processes are followed for each viewer separately.
    pub shared: u64,
    /// Number of possible CPUs.
    pub cpus: u64,
    /// Number of slots for the storages of tasks, less one: a power of two less one.
    pub last_slot: u64,
    /// See [`slot_factor`].
    pub slot_factor: u64,
    /// 1: the programs count the [demand](crate::demand) of cgroups with a quota.
    pub demand: u64,
    /// 1: the programs count [for whom tasks sleep](crate::chains).
    pub chains: u64,
    /// Where the preempt count is: 1: among the variables of each CPU; 2: in the current task; 0: unknown.
    pub preempt_count_in: u64,
    /// Offset of the preempt count from the CPU's run queue or from the start of the task, bytes, modulo 2^64.
    pub preempt_count_at: u64,
    /// The bits of the preempt count that count nested interrupts.
    pub interrupt_bits: u64,
}

const SLOT_SHIFT: u32 = 42;

/// Returns the factor for [`slot_of`]. `task_bytes` is the distance between the addresses of two tasks, more than 2 KiB, so that the
/// factor has 31 bits.
pub const fn slot_factor(task_bytes: u64) -> u64 {
    (1 << SLOT_SHIFT) / task_bytes
}

/// Returns the slot of the task at this address. The caller must take as many low bits as there are slots. Tasks with neighbouring
/// addresses have neighbouring slots.
#[inline(always)]
pub const fn slot_of(address: u64, factor: u64) -> u64 {
    address.wrapping_mul(factor) >> SLOT_SHIFT
}

/// How the current segment of a task's wait began: with a switch out, or with a move to this CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Id of the cgroup whose quota had run out, or [`RUNTIME`](crate::segment::RUNTIME), or [`ASLEEP`](crate::segment::ASLEEP);
    /// otherwise 0.
    pub limit: u64,
    /// How often the task had switched out at the start of the segment, modulo 2^32. If the task's number of switches differs now,
    /// this record belongs to an earlier wait.
    pub switches: u32,
    pub cpu: u16,
    /// 0 if the hook did not see the segment begin, because the task went to sleep or was preempted on its way to sleep.
    /// Otherwise 1 or [`NO_CLOCK`](crate::segment::NO_CLOCK).
    pub is_seen: u16,
    /// Address of the task's group.
    pub group: u64,
    /// Value of [`Ring::kernel_ns`](crate::history::Ring::kernel_ns) of the CPU at the start of the segment. As for
    /// `throttle_ns`, the time when the task was queued must be added to a negative number (as `i64`).
    pub kernel_ns: u64,
    /// Value of [`Ring::idle_ns`](crate::history::Ring::idle_ns) of the CPU at the start, in the same form as `kernel_ns`.
    pub idle_ns: u64,
    /// Value of [`Ring::taken`](crate::history::Ring::taken) of the CPU at the start of the segment.
    pub taken: Taken,
    /// How long the task's group had run on the CPU at the start of the segment, ns; 0 if unknown.
    pub group_ran_ns: u64,
    /// Throttled time of the task's queue at the start of the segment, ns. After a move, the clock of the new CPU is not known
    /// yet. So a throttled queue has a negative number here (as `i64`), to which the time when the task was queued must be added.
    pub throttle_ns: u64,
    /// Address of the task's queue (`struct cfs_rq`).
    pub queue: u64,
    /// When cgscope found that the waiting task had moved to another group, ns of the CPU's clock. Set only if no program saw the
    /// move. The value is valid only if this time is within the current segment.
    pub left_ns: u64,
    /// The CPU on which the task last ran, or [`NO_CPU`](crate::segment::NO_CPU). It is recorded only if there are several NUMA
    /// nodes.
    pub ran_on: u32,
    pub padding: u32,
}

/// The segments of the current wait that ended because the task moved to another CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Total length of these segments, ns; 0 if the task has not moved during this wait.
    pub ns: u64,
    /// Parts of these segments by cause, ns. The parts sum to `ns`.
    pub parts: ByCause,
}

/// Time in which a CPU ran no task although it was not idle, ns. During that time, the scheduler's clock advances.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Time in interrupts, ns, if the kernel accounts for it.
    pub irq_ns: u64,
    /// Time in which the hypervisor used the CPU, ns, as far as the hypervisor reports it.
    pub stolen_ns: u64,
}

/// A pair of victim and culprit: how long tasks of one cgroup waited because of another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub victim: u64,
    /// Id of the cgroup that ran or was out of quota, or [`KERNEL`](crate::history::KERNEL).
    pub culprit: u64,
    /// A constant in [`kind`](crate::culprits::kind); 0 if the entry is empty.
    pub kind: u32,
    /// Id of the thread that ran, if culprits are single tasks.
    pub tid: u32,
    pub ns: u64,
    /// When time was last added, ns of `rq->clock`.
    pub last_ns: u64,
    /// When time was first added, ns of `rq->clock`. If this time changes, the pair was evicted and added again.
    pub born_ns: u64,
}

/// The name of a task as words, padded with NUL bytes.
pub type Comm = [u64; 2];

/// Number of pairs that are stored with a victim, a power of two.
pub const KEPT: usize = 8;

/// The pairs of a victim that got no entry in the table of their CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// A lock: not 0 while a CPU writes `pairs`.
    pub(crate) lock: u64,
    pub pairs: [Pair; KEPT],
    /// The names of the threads of `pairs`, if culprits are single tasks.
    pub comms: [Comm; KEPT],
    /// Time whose culprit is in no pair, ns, by [`kind`](crate::culprits::kind) minus 1.
    pub unnamed_ns: [u64; 2],
}
