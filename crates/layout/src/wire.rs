//! The records that cross from the kernel to user space, and the storage behind them.
//!
//! All are `repr(C)` without padding. Both sides are built together, so there is no version.

mod accounts;
mod config;
pub mod names;

use crate::{
    bucket::BUCKETS,
    cause::{ByCause, CAUSES, CELLS, Shares},
    ledger::Left,
};
pub use accounts::{Accounts, AccountsRecord, Blocked, Gone, StackCount, StackKey};
pub use config::Config;

/// NUMA nodes with CPUs that are told apart. A node's place among them is given by user space: node numbers may have gaps.
pub const NODES: usize = 16;

/// The counts of each bucket; they only rise, and wrap at 2^32.
pub type Counts = [u32; BUCKETS];

/// What the hook keeps about the waits of one task. Everything only rises but `expected_run_delay_ns` (which follows
/// the kernel's) and `unstamped_since_ns`. One cache line, so that the hook touches two: this and one bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The `sched_info.run_delay` that the task will have at its next arrival if it does not migrate while it waits.
    pub expected_run_delay_ns: u64,
    /// Sum of completed waits.
    pub total_ns: u64,
    /// Number of completed waits.
    pub count: u64,
    /// The longest completed wait since the task is followed.
    pub max_ns: u64,
    /// Since when (`rq->clock`) the task waits after it was preempted with its state already set; 0: it does not.
    pub unstamped_since_ns: u64,
    /// Sum of the waits that the kernel does not count: preempted with the state already set.
    pub unstamped_ns: u64,
    /// Their number.
    pub unstamped_count: u64,
    /// [`INHERIT`] and [`FOLLOWED`]: written at birth and by the reader alone.
    pub flags: u64,
}

/// In [`Waits::flags`]: children of this task are followed, too.
pub const INHERIT: u64 = 1;

/// In [`Waits::flags`], where readings are [shared](Config::shared): one bit for each of [`FOLLOWERS`], inherited by children.
pub const FOLLOWED: u64 = !0 << FOLLOWED_SHIFT;
/// The lowest bit of [`FOLLOWED`].
pub const FOLLOWED_SHIFT: u32 = 8;
/// Viewers for whom processes and what they start can be followed at a time.
pub const FOLLOWERS: u32 = u64::BITS - FOLLOWED_SHIFT;

/// What the reader is to do to [`FOLLOWED`] of every task as it comes by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Bits that go.
    pub clear: u64,
    /// Not 0: processes that have an entry in the table of the selected get its bits.
    pub look: u64,
}

/// A number for a task that no other task of this boot has: a tid alone is reused. Taken once, when the task begins to
/// be followed, because `execve` in a thread hands it the tid and the start time of the process (`de_thread`).
#[inline(always)]
pub const fn serial(tid: u32, start_ns: u64) -> u64 {
    // A tid has at most 22 bits (PID_MAX_LIMIT). The same tid twice, 2^42 ns (73 minutes) apart to the nanosecond, is
    // what it takes to collide.
    ((tid as u64) << START_BITS) | (start_ns & ((1 << START_BITS) - 1))
}

/// The number that the same task has once it has moved to another cgroup.
#[inline(always)]
pub const fn next_serial(serial: u64) -> u64 {
    // A nanosecond later: no other task of that tid starts so close to it.
    (serial & !((1 << START_BITS) - 1)) | (serial.wrapping_add(1) & ((1 << START_BITS) - 1))
}

const START_BITS: u32 = 42;

/// Calls a macro with the readings of a task that add up, in the order of their columns in recordings: the one list of them.
/// [`Totals::by_cause`] comes beside them.
#[macro_export]
macro_rules! totals {
    ($with:ident) => {
        $with! {
            /// Completed waits on a run queue.
            waits,
            /// Their sum, including the parts waited on other CPUs before a migration.
            wait_ns,
            /// The kernel's own sum (`/proc/PID/schedstat`, second field).
            run_delay_ns,
            /// Waits that the kernel does not count: preempted with the state already set.
            unstamped,
            /// Their sum.
            unstamped_ns,
            /// Time on a CPU.
            on_cpu_ns,
            /// Voluntary switches.
            voluntary,
            /// Involuntary switches.
            involuntary,
            /// Moves between CPUs.
            migrations,
            /// Completed waits in which the task was out of quota for some of the time.
            throttled_waits,
        }
    };
}

macro_rules! wire_totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The readings of a task that add up: over the tasks of a cgroup, and over those that exited.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// The completed waits by cause; they sum to `wait_ns`.
            pub by_cause: ByCause,
        }

        impl Totals {
            /// Nothing.
            pub const NONE: Self = Self { $($name: 0,)* by_cause: [0; CAUSES] };

            /// Calls `add` with each reading and what came on top since `base`, modulo 2^64.
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
    /// What came since `base`, modulo 2^64.
    pub fn since(&self, base: &Self) -> Self {
        let mut since = Self::NONE;
        since.add_since(self, base, |since, more| *since = more);
        since
    }
}

/// The value of the task storage map.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskStorage {
    /// Kept by the hook.
    pub waits: Waits,
    /// Sums of completed waits by cause, kept by the hook.
    pub by_cause: ByCause,
    /// Completed waits in which the task was out of quota for some of the time, kept by the hook.
    pub throttled_waits: u64,
    /// The cgroup that what comes on top of `told` belongs to: the table of exited tasks has a place for it.
    pub cgroup_id: u64,
    /// How it left its CPU last.
    pub left: Left,
    /// Where it ran.
    pub placement: Placement,
    /// How it is blocked.
    pub blocked: Blocked,
    /// See [`serial`]; another one after each move to another cgroup ([`next_serial`]).
    pub serial: u64,
    /// The serial that user space was told last.
    pub told_serial: u64,
    /// Not 0: somebody changes `told`, `cgroup_id` and `serial`, or reads them together. Taken and given back atomically.
    pub lock: u64,
    /// Not 0: the task is dead, and what was not told of it is with its cgroup.
    pub is_handed_over: u64,
    /// Kept by the hook.
    pub histogram: Histogram,
    /// What user space has been told last, or what was handed over since: at death and at a move to another cgroup the rest goes to
    /// the place of the cgroup.
    pub told: Told,
}

/// Cumulative readings of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its sums.
    pub totals: Totals,
    /// Where its time went beside.
    pub accounts: Accounts,
    /// Its waits.
    pub histogram: Histogram,
}

/// Completed waits by length and by cause; the counters only rise, and wrap at 2^32.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket.
    pub counts: Counts,
    /// By row and cause.
    pub shares: Shares,
}

impl Histogram {
    /// What came since `base`: counters wrap.
    pub fn since(&self, base: &Self) -> Self {
        let mut since = *self;
        let counters = since.counts.iter_mut().chain(&mut since.shares);
        for (now, base) in counters.zip(base.counts.iter().chain(&base.shares)) {
            *now = now.wrapping_sub(*base);
        }
        since
    }

    /// Nothing.
    pub const NONE: Self = Self { counts: [0; BUCKETS], shares: [0; CELLS] };
}

/// On which nodes a task ran. Kept where there are several, see [`Config::nodes`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The place of the node that it ran on last, plus one; 0: it has not run on a known one.
    pub place: u32,
    /// `task_struct.numa_preferred_nid`, -1: none. Of a reading.
    pub preferred_node: i32,
    /// Times that it came on a CPU of another node than the one it had run on last.
    pub node_migrations: u64,
    /// Its time on CPUs when it came to that node, ns.
    pub since_ran_ns: u64,
    /// Its time on CPUs by place, ns, that since it came to the present node left out.
    pub ran_ns: [u64; NODES],
}

impl Placement {
    /// Where it ran since it had been on CPUs for `base_ns`, of which `base` was told later: what it ran on other nodes in between
    /// is not known.
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

/// What is counted on one CPU, where [`Config::count_by_cpu`] is set; only that CPU's own hook writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpuCounters {
    /// The longest completed wait.
    pub max_ns: u64,
    /// Sums of completed waits by cause.
    pub by_cause: ByCause,
    /// Completed waits.
    pub histogram: Histogram,
    /// Times that a task came which had last run on the node at this place.
    pub came_from: [u64; NODES],
}

/// One task, as the iterator reports it. In the stream a [`Told`] follows if [`HAS_BASE`] is set, then its [`Placement`] if [`HAS_PLACEMENT`] is, its
/// [`AccountsRecord`] if [`HAS_ACCOUNTS`] is, its [`Stack`](crate::Stack) if [`HAS_STACK`] is, and its [`Histogram`] if [`HAS_HISTOGRAM`] is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    /// Bytes of this record together with what follows it.
    pub len: u32,
    /// [`HAS_HISTOGRAM`], [`HAS_PLACEMENT`], [`HAS_ACCOUNTS`], [`HAS_STACK`], [`ON_CPU`], [`ON_RQ`].
    pub flags: u32,
    /// See [`serial`].
    pub serial: u64,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// NUL-padded name.
    pub comm: [u8; 16],
    /// ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Its cgroup in the hierarchy that [`Config::cgroup_v2`] names.
    pub cgroup_id: u64,
    /// The CPU it runs on, or last ran on or was queued on.
    pub cpu: u32,
    /// `task_struct.__state`: 0 running or runnable.
    pub state: u32,
    /// `sched_info.last_queued`: since when it waits, 0 when it does not.
    pub last_queued_ns: u64,
    /// The clock of its run queue; that of an idle CPU stands still.
    pub rq_clock_ns: u64,
    /// The kernel's readings.
    pub totals: Totals,
    /// The hook's.
    pub waits: Waits,
    /// The wait that it is in, from its beginning to `rq_clock_ns`, by cause.
    pub pending: ByCause,
    /// What it waits for at this moment, a [`crate::Cause`]: time after `rq_clock_ns` belongs there.
    pub pending_cause: u64,
    /// Where readings are [shared](Config::shared): the user whose it is, [`NOBODY`] where the kernel names several.
    pub owner: u64,
}

/// In [`TaskRecord::owner`]: it has another effective or saved user id than its real one, or that is not known.
pub const NOBODY: u64 = u64::MAX;

/// In [`TaskRecord::flags`]: the histogram follows.
pub const HAS_HISTOGRAM: u32 = 1;
/// In [`TaskRecord::flags`]: on a CPU at this moment.
pub const ON_CPU: u32 = 2;
/// In [`TaskRecord::flags`]: on a run queue (running or waiting).
pub const ON_RQ: u32 = 4;
/// In [`TaskRecord::flags`]: the placement follows.
pub const HAS_PLACEMENT: u32 = 8;
/// In [`TaskRecord::flags`]: the accounts follow.
pub const HAS_ACCOUNTS: u32 = 16;
/// In [`TaskRecord::flags`]: it is blocked, and the stack follows. Told once for each time that it is blocked.
pub const HAS_STACK: u32 = 32;
/// In [`TaskRecord::flags`]: it has moved to another cgroup since it was told last. What it had done by the latest move follows:
/// that is with other cgroups.
pub const HAS_BASE: u32 = 64;

/// The value of the table of exited tasks, by cgroup id: what user space had not been told of them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exited {
    /// Tasks that exited.
    pub tasks: u64,
    /// The longest wait in the life of any of them.
    pub max_ns: u64,
    /// Their sums.
    pub totals: Totals,
    /// Their accounts.
    pub accounts: Accounts,
    /// Their waits by bucket.
    pub counts: [u64; BUCKETS],
    /// Their waits by row and cause.
    pub shares: [u64; CELLS],
    /// How many of them are all in: what the hook writes last.
    pub complete: u64,
    /// What `complete` was when the place was told, the last two times: see [`Self::is_told`].
    pub told: [u64; 2],
}

impl Exited {
    /// No task.
    pub const NONE: Self = Self {
        tasks: 0,
        max_ns: 0,
        totals: Totals::NONE,
        accounts: Accounts::NONE,
        counts: [0; BUCKETS],
        shares: [0; CELLS],
        complete: 0,
        told: [0; 2],
    };

    /// Nothing came on top since the place was told twice. Once is not enough: what one CPU writes in order another may see in
    /// another order, but not for as long as it takes until the next reading.
    #[inline(always)]
    pub const fn is_told(complete: u64, told: [u64; 2]) -> bool {
        complete == told[0] && complete == told[1]
    }
}

/// What is told of a place among the exited.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitedRecord {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// 1: an [`Exited`] follows; 0: it is as it was told before, or nobody has exited.
    pub follows: u64,
}

/// Places in the table of exited tasks: cgroups that have a followed task, or had one and are not given back yet.
pub const EXITED_CGROUPS: usize = 16_384;
/// Places in the table of stacks, where stacks are counted: some 10 MiB.
pub const STACKS: usize = 16_384;
/// Places in the table of selected processes and threads.
pub const SELECTED_MAX: usize = 65_536;

/// A cgroup came, went or has another name. Only as much of it is sent as the path takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CgroupEvent {
    /// See [`cgroup_event`].
    pub kind: u32,
    /// 1: the path is longer, or could not be read.
    pub is_cut: u32,
    /// The cgroup's id.
    pub id: u64,
    /// From the root of the hierarchy, up to its NUL; of those that are made only.
    pub path: [u8; CGROUP_PATH],
}

impl CgroupEvent {
    /// Bytes before the path.
    pub const HEAD: usize = size_of::<Self>() - CGROUP_PATH;
}

/// What [`CgroupEvent::kind`] may be.
pub mod cgroup_event {
    /// It is new.
    pub const MADE: u32 = 1;
    /// It is gone.
    pub const REMOVED: u32 = 2;
    /// It, and with it all below it, has another path.
    pub const RENAMED: u32 = 3;
}

/// Bytes of a path in an event, its NUL included.
pub const CGROUP_PATH: usize = 256;
/// Bytes of the buffer of events: some 5,000 cgroups that come and go between two readings. User space has it mapped twice,
/// which counts as its memory.
pub const CGROUP_EVENTS_BYTES: usize = 512 << 10;

/// Key of the table of the selected: a process id.
pub const SELECT_PROCESS: u64 = 1 << 32;
/// Key of the table of the selected: a thread id.
pub const SELECT_THREAD: u64 = 2 << 32;
