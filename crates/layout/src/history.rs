//! The history of a CPU, the other side of every wait: who ran lately, in slices, and further back in blocks of slices.
//!
//! The hook of that CPU alone writes it. The arithmetic is here so that it is tested on the host against a plain reference.

use crate::{
    ledger::{IDLE, KERNEL},
    look_back::Budget,
};

/// Slices in the history of a CPU. A power of two.
pub const SLICES: usize = 512;
/// Slices in a block. A power of two.
pub const BLOCK: usize = 64;
/// Blocks in the history of a CPU. A power of two.
pub const BLOCKS: usize = 256;
/// Cgroups that a block keeps apart. A power of two.
pub const PARTIES: usize = 8;
/// A kernel thread that runs for less than this between tasks of one cgroup gets no slice of its own: a load that wakes one a
/// hundred thousand times a second would otherwise push the history out in milliseconds.
pub const FOLD_NS: u64 = 50_000;

const SLICE_MASK: u64 = SLICES as u64 - 1;
const BLOCK_MASK: usize = BLOCKS - 1;

/// Who ran on a CPU from `since_ns` until the slice that follows. Tasks of one cgroup in a row share a slice, unless
/// single tasks are blamed ([`crate::wire::Config::blame_tasks`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slice {
    /// ns of `rq->clock`; 0: no slice.
    pub since_ns: u64,
    /// Id of the cgroup, [`IDLE`] or [`KERNEL`].
    pub who: u64,
    /// ns of it in interrupts, where the kernel accounts for them, and in kernel threads that ran for less than [`FOLD_NS`].
    pub kernel_ns: u64,
    /// The task, where single tasks are blamed.
    pub tid: u32,
    /// No meaning.
    pub padding: u32,
    /// Its name.
    pub comm: [u8; 16],
}

/// Who ran on a CPU for how long in total, over [`BLOCK`] slices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// ns of `rq->clock` when the first of them began; 0: no block.
    pub since_ns: u64,
    /// Sum of [`Slice::kernel_ns`].
    pub kernel_ns: u64,
    /// As [`Slice::who`], in the order of their first slices. A cgroup that finds all places taken has none.
    pub who: [u64; PARTIES],
    /// How long each had the CPU, without `kernel_ns`; 0: an empty place.
    pub ns: [u64; PARTIES],
}

impl Block {
    /// The first slice of the block begins.
    #[inline(always)]
    fn begin(&mut self, clock_ns: u64) {
        self.kernel_ns = 0;
        self.ns = [0; PARTIES];
        self.since_ns = clock_ns;
    }

    /// Adds a slice that will not change any more and that was `ran_ns` long.
    #[inline(always)]
    fn add(&mut self, slice: Slice, ran_ns: u64) {
        let kernel_ns = if slice.kernel_ns < ran_ns { slice.kernel_ns } else { ran_ns };
        self.kernel_ns += kernel_ns;
        for party in 0..PARTIES {
            if self.ns[party] == 0 {
                self.who[party] = slice.who;
            }
            if self.who[party] == slice.who {
                self.ns[party] += ran_ns - kernel_ns;
                return;
            }
        }
    }
}

/// The history of one CPU. Other CPUs read it without a lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// The number of the latest slice; its place is that modulo [`SLICES`].
    pub head: u64,
    /// The task that came last, as far as the hook has seen.
    pub tid: u32,
    /// No meaning.
    pub padding: u32,
    /// Who comes at this switch: put here and taken out again, so that the verifier does not know the numbers of the root and of
    /// [`KERNEL`] from others and follows what comes after it once.
    pub coming: u64,
    /// `rq->prev_irq_time` at the latest switch.
    pub irq_seen_ns: u64,
    /// Time in interrupts and in kernel threads, ns: without the run of one that is not over.
    pub kernel_ns: u64,
    /// Time in which nobody ran, ns, without `kernel_ns`.
    pub idle_ns: u64,
    /// Up to when these two are counted, ns of `rq->clock`; interrupts after that push it on.
    counted_ns: u64,
    /// The number of the first slice that its block does not have yet.
    summed: u64,
    /// What its hook may still put into looking back.
    pub budget: Budget,
    /// The slices.
    pub slices: [Slice; SLICES],
    /// Slice `n` is in block `n /` [`BLOCK`], whose place is that modulo [`BLOCKS`].
    pub blocks: [Block; BLOCKS],
}

impl Ring {
    /// The place of a slice by its number. The mask shows the verifier that there is one.
    #[inline(always)]
    pub fn slice(&mut self, number: u64) -> &mut Slice {
        // SAFETY: the mask keeps it within the array.
        unsafe { &mut *self.slices.as_mut_ptr().add((number & SLICE_MASK) as usize) }
    }

    /// The block of a slice.
    #[inline(always)]
    pub fn block(&mut self, number: u64) -> &mut Block {
        let place = (number / BLOCK as u64) as usize & BLOCK_MASK;
        // SAFETY: the mask keeps it within the array.
        unsafe { &mut *self.blocks.as_mut_ptr().add(place) }
    }

    /// True if the latest slice is one of `who`.
    #[inline(always)]
    pub fn latest_is(&mut self, who: u64) -> bool {
        let head = self.head;
        let latest = self.slice(head);
        latest.who == who && latest.since_ns != 0
    }

    /// Interrupts took `ns` of the latest slice.
    #[inline(always)]
    pub fn interrupt(&mut self, ns: u64) {
        let latest = self.head;
        self.slice(latest).kernel_ns += ns;
        self.kernel_ns += ns;
        self.counted_ns += ns;
    }

    /// The latest slice is one of `who` and ends at `clock_ns`, for good or until it goes on.
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

    /// Where the latest slice is a short run of a kernel thread and `who`, which it interrupted, goes on at `clock_ns`: makes it a
    /// part of the slice before. False, and nothing changes, where it is not.
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
            before.kernel_ns += ran_ns;
            self.count(KERNEL, clock_ns);
            self.head = number.wrapping_sub(1);
        }
        goes_on
    }

    /// Ends the latest slice: `who` has the CPU from `clock_ns` on. `label` completes the new slice.
    #[inline(always)]
    pub fn push(&mut self, who: u64, clock_ns: u64, label: impl FnOnce(&mut Slice)) {
        let number = self.head;
        let latest = *self.slice(number);
        if latest.since_ns == 0 {
            self.counted_ns = clock_ns;
        } else {
            self.count(latest.who, clock_ns);
            self.sum_up_before(number, latest.since_ns);
        }
        let number = number + 1;
        if number.is_multiple_of(BLOCK as u64) {
            self.block(number).begin(clock_ns);
        }
        let new = self.slice(number);
        new.since_ns = clock_ns;
        new.who = who;
        new.kernel_ns = 0;
        label(new);
        // Last: another CPU that reads along then finds a whole slice.
        self.head = number;
    }

    /// Adds the slice before `number`, which ended at `end_ns`, to its block. Not earlier, and once: until slice `number` ends
    /// without being folded, the slice before it may still go on.
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
#[path = "history/tests.rs"]
pub(crate) mod tests;
