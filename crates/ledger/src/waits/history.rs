//! The history of a CPU: who ran on the CPU recently, in slices, and who ran before that, in blocks of slices. The history
//! explains the waits on the CPU.
//!
//! Only the hook on this CPU writes the history, under the run queue lock. The code is in this crate, so that tests can compare
//! it with a simple reference.

use crate::{
    demand::Running,
    pressure::Batch,
    verifier::{set, wrapped},
    waits::look_back::Budget,
};
pub use crate::{
    host::{IDLE, KERNEL},
    wire::Taken,
};

/// Number of slices in the history of a CPU, a power of two.
pub const SLICES: usize = 512;
/// Number of slices in a block, a power of two.
pub const BLOCK: usize = 64;
/// Number of blocks in the history of a CPU, a power of two.
pub const BLOCKS: usize = 256;
/// Number of parties that a block stores separately. A party is a cgroup, the kernel threads, or no task. The number is a power
/// of two.
pub const PARTIES: usize = 8;
/// A kernel thread gets no slice of its own if it runs for less than this, ns, between tasks of one cgroup. Otherwise a program
/// that wakes such a thread 100,000 times a second would fill the whole history within milliseconds.
pub const FOLD_NS: u64 = 50_000;

/// Time in interrupts and stolen time are added to a slice once they reach this sum, ns. On virtual machines, the hypervisor may
/// take some 100 ns between any two switches.
pub const LEAST_TAKEN_NS: u64 = 1 << 14;

/// Who ran on a CPU from `since_ns` until the next slice begins. Consecutive tasks of one cgroup share a slice, unless single
/// tasks are blamed ([`crate::wire::Config::blame_tasks`]). Then the task is in [`TaskNames`](crate::culprits::TaskNames).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// Start of the slice, ns of `rq->clock`; 0 if the slice is empty.
    pub since_ns: u64,
    /// Who ran: the id of a cgroup, [`IDLE`] or [`KERNEL`].
    pub who: u64,
    /// Part of the slice in which kernel threads ran for less than [`FOLD_NS`], ns.
    pub kernel_ns: u64,
    /// Part of the slice in which the CPU handled interrupts, or the hypervisor used it.
    pub taken: Taken,
}

impl Slice {
    /// Returns [`Self::kernel_ns`] and [`Self::taken`], but together at most the length of the slice. The kernel accounts for
    /// interrupts and stolen time late, so this time may belong to the previous slice.
    #[inline(always)]
    pub(crate) fn without_a_task(&self, length_ns: u64) -> (u64, Taken) {
        let kernel_ns = self.kernel_ns.min(length_ns);
        let irq_ns = self.taken.irq_ns.min(length_ns - kernel_ns);
        let stolen_ns = self.taken.stolen_ns.min(length_ns - kernel_ns - irq_ns);
        (kernel_ns, Taken { irq_ns, stolen_ns })
    }
}

impl Taken {
    #[inline(always)]
    pub const fn ns(self) -> u64 {
        self.irq_ns + self.stolen_ns
    }

    #[inline(always)]
    fn add(&mut self, more: Self) {
        self.irq_ns += more.irq_ns;
        self.stolen_ns += more.stolen_ns;
    }
}

/// How long each party had a CPU during [`BLOCK`] consecutive slices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Start of the first slice, ns of `rq->clock`; 0 if the block is empty.
    pub since_ns: u64,
    /// Sum of [`Slice::kernel_ns`] over these slices.
    pub kernel_ns: u64,
    /// Sums of [`Slice::taken`] over these slices.
    pub taken: Taken,
    /// The parties, as in [`Slice::who`], in the order of their first slices. If all entries are in use, further parties get no
    /// entry.
    pub who: [u64; PARTIES],
    /// How long each party had the CPU, ns, without `kernel_ns` and `taken`; 0 if the entry is empty.
    pub ns: [u64; PARTIES],
}

impl Block {
    #[inline(always)]
    fn begin(&mut self, clock_ns: u64) {
        self.kernel_ns = 0;
        self.taken = Taken::default();
        self.ns = [0; PARTIES];
        self.since_ns = clock_ns;
    }

    /// Adds a completed slice with the length `ran_ns`.
    #[inline(always)]
    fn add(&mut self, slice: Slice, ran_ns: u64) {
        let (kernel_ns, taken) = slice.without_a_task(ran_ns);
        self.kernel_ns += kernel_ns;
        self.taken.add(taken);
        for party in 0..PARTIES {
            if self.ns[party] == 0 {
                self.who[party] = slice.who;
            }
            if self.who[party] == slice.who {
                self.ns[party] += ran_ns - kernel_ns - taken.ns();
                return;
            }
        }
    }
}

/// The history of one CPU. Programs on other CPUs read the history without a lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Number of the latest slice. A slice is at the index of its number modulo [`SLICES`].
    pub head: u64,
    /// Id of the thread that switched in last, as far as the hook has seen.
    pub tid: u32,
    /// Not 0 if the wait that ended when the current task switched in is not recorded yet.
    pub is_late: u32,
    /// The party that switches in now. It is stored in memory to hide its value from the verifier. Otherwise the verifier would
    /// distinguish the id of the root, [`KERNEL`] and other ids, and follow the rest of the hook once for each.
    pub coming: u64,
    /// The values of the kernel's sums (`rq->prev_irq_time`, `rq->prev_steal_time_rq`) when `taken` was last updated.
    pub taken_seen: Taken,
    /// Time in interrupts and stolen time since the first slice.
    pub taken: Taken,
    /// Time in which kernel threads ran, ns. It excludes a kernel thread that is still running, and `taken`.
    pub kernel_ns: u64,
    /// Time in which the CPU was idle, ns. It excludes `taken`.
    pub idle_ns: u64,
    /// Up to this time, `kernel_ns` and `idle_ns` are counted, ns of `rq->clock`. Time that is added to `taken` also advances
    /// this time, so that it is not counted twice.
    counted_ns: u64,
    /// Number of the first slice that is not added to its block yet.
    summed: u64,
    /// Limits how far this CPU's hook may look back.
    pub budget: Budget,
    /// The latest waits that are not counted in the [`Pressures`](crate::pressure::Pressures) of this CPU yet.
    pub batch: Batch,
    /// The demand of the current task, if a quota applies to the task.
    pub running: Running,
    pub slices: [Slice; SLICES],
    /// The blocks. Slice `n` belongs to block `n /` [`BLOCK`]. A block is at the index of its number modulo [`BLOCKS`].
    pub blocks: [Block; BLOCKS],
}

impl Ring {
    #[inline(always)]
    pub fn slice(&mut self, number: u64) -> &mut Slice {
        wrapped(&mut self.slices, number)
    }

    /// Returns the block to which the slice `number` belongs.
    #[inline(always)]
    pub fn block(&mut self, number: u64) -> &mut Block {
        wrapped(&mut self.blocks, number / BLOCK as u64)
    }

    #[inline(always)]
    pub fn latest_is(&mut self, who: u64) -> bool {
        let head = self.head;
        let latest = self.slice(head);
        latest.who == who && latest.since_ns != 0
    }

    /// Adds the time in interrupts and the stolen time since the last call to the latest slice. `sums` are the kernel's sums of
    /// these times at this switch. If the virtual machine moves to another host, the kernel restarts these sums at a lower value.
    #[inline(always)]
    pub fn take(&mut self, sums: Taken) {
        let seen = core::mem::replace(&mut self.taken_seen, sums);
        let more = Taken {
            irq_ns: sums.irq_ns.saturating_sub(seen.irq_ns),
            stolen_ns: sums.stolen_ns.saturating_sub(seen.stolen_ns),
        };
        let latest = self.head;
        self.slice(latest).taken.add(more);
        self.taken.add(more);
        self.counted_ns += more.ns();
    }

    /// Adds the latest slice, in which `who` ran until `clock_ns`, to the sums. The slice may still continue.
    #[inline(always)]
    fn count(&mut self, who: u64, clock_ns: u64) {
        let ns = clock_ns.saturating_sub(self.counted_ns);
        match who {
            KERNEL => self.kernel_ns += ns,
            IDLE => self.idle_ns += ns,
            _ => {}
        }
        self.counted_ns = clock_ns;
    }

    /// Returns [`Self::kernel_ns`] and [`Self::idle_ns`] at the time `clock_ns`. If the CPU's clock is unknown, pass 0. Then a
    /// sum that is growing now is returned as a negative number (as `i64`).
    #[inline(always)]
    pub fn sums_until(&mut self, clock_ns: u64) -> (u64, u64) {
        let latest = self.head;
        let unfinished_ns = clock_ns.wrapping_sub(self.counted_ns);
        match self.slice(latest).who {
            KERNEL => (self.kernel_ns.wrapping_add(unfinished_ns), self.idle_ns),
            IDLE => (self.kernel_ns, self.idle_ns.wrapping_add(unfinished_ns)),
            _ => (self.kernel_ns, self.idle_ns),
        }
    }

    /// Merges the latest slice into the previous slice if a kernel thread interrupted `who` for a short time, and `who` continues
    /// at `clock_ns`. Otherwise changes nothing and returns false.
    #[inline(always)]
    pub fn fold(&mut self, who: u64, clock_ns: u64) -> bool {
        let number = self.head;
        let latest = *self.slice(number);
        if latest.who != KERNEL {
            return false;
        }
        let ran_ns = clock_ns.saturating_sub(latest.since_ns);
        let before = self.slice(number.wrapping_sub(1));
        let goes_on = before.who == who && before.since_ns != 0 && ran_ns < FOLD_NS;
        if goes_on {
            let (_, taken) = latest.without_a_task(ran_ns);
            before.kernel_ns += ran_ns - taken.ns();
            before.taken.add(taken);
            self.count(KERNEL, clock_ns);
            self.head = number.wrapping_sub(1);
        }
        goes_on
    }

    /// Ends the latest slice, and begins the slice of `who` at `clock_ns`.
    #[inline(always)]
    pub fn push(&mut self, who: u64, clock_ns: u64) {
        let number = self.head;
        let latest = *self.slice(number);
        if latest.since_ns == 0 {
            self.counted_ns = clock_ns;
        } else {
            self.count(latest.who, clock_ns);
            self.sum_up_before(number, latest.since_ns);
        }
        let number = number + 1;
        if number.is_multiple_of(BLOCK as u64) || latest.since_ns == 0 {
            self.block(number).begin(clock_ns);
        }
        let new = self.slice(number);
        new.since_ns = clock_ns;
        new.who = who;
        // Each word is written separately, because the compiler would turn a single write into a slow `memset` call.
        set(&mut new.kernel_ns, 0);
        set(&mut new.taken.irq_ns, 0);
        set(&mut new.taken.stolen_ns, 0);
        // `head` is written last, so that a concurrent reader on another CPU finds a complete slice.
        self.head = number;
    }

    /// Adds the slice before the slice `number` to its block, unless this was already done. That slice ended at `end_ns`. It
    /// cannot be added earlier: it may continue until the slice `number` ends without being merged.
    #[inline(never)]
    fn sum_up_before(&mut self, number: u64, end_ns: u64) {
        let last = number.wrapping_sub(1);
        if last < self.summed {
            return;
        }
        self.summed = number;
        let slice = *self.slice(last);
        if slice.since_ns != 0 {
            self.block(last).add(slice, end_ns.saturating_sub(slice.since_ns));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
