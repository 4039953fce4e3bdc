//! Going back over the history of a CPU, to see who ran during a wait.
//!
//! All state is in memory of a map, and read and written as volatile, for the verifier: it knows nothing of what it reads from a
//! map, so all paths through a step look alike to it and it follows one. Kept in registers, each comparison would narrow a
//! range, no two paths would be alike, and a million instructions would not be enough.

use crate::{
    cause::{ByCause, Cause},
    history::{BLOCK, Block, PARTIES, Ring, Slice},
    ledger::{IDLE, KERNEL},
    verifier::{get, opaque, set},
};

/// A wait is looked back over at most this many slices; what lies before is found in blocks.
pub const LOOK_BACK: usize = 400;
/// A wait is looked back over at most this many blocks; what lies before is unattributed. Fewer than there are, because the CPU
/// goes on while another looks back over them.
pub const LOOK_BACK_BLOCKS: usize = 240;
/// The history that blocks cover, in slices; up to [`BLOCK`] more are known.
pub const KNOWN: usize = LOOK_BACK_BLOCKS * BLOCK;

/// Steps within a block: one to enter it, one for each place in it, one to leave it.
const STEPS_OF_BLOCK: usize = PARTIES + 2;
/// The most steps that [`Walk::step_of_blocks`] takes.
pub const STEPS_OF_BLOCKS: usize = LOOK_BACK_BLOCKS * STEPS_OF_BLOCK;

/// How much work a CPU may still put into looking back, so that it stays a bounded share of its time however many cgroups take
/// turns on it: a step is gained each 2 us, and as many are saved as one walk over everything takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// Steps that are saved.
    saved: u64,
    /// Up to when steps have been gained, ns of `rq->clock`.
    until_ns: u64,
}

/// Steps that each walk has for nothing: most waits lie behind a few slices.
pub const FREE_STEPS: u64 = 8;
const MOST_SAVED: u64 = (LOOK_BACK + STEPS_OF_BLOCKS) as u64;
/// A step for each 2^11 ns.
const GAIN_SHIFT: u32 = 11;

impl Budget {
    /// The steps that a walk at `clock_ns` may take.
    #[inline(always)]
    pub fn steps(&mut self, clock_ns: u64) -> u64 {
        let gained = clock_ns.saturating_sub(self.until_ns) >> GAIN_SHIFT;
        self.until_ns += gained << GAIN_SHIFT;
        self.saved = (self.saved + gained).min(MOST_SAVED);
        self.saved + FREE_STEPS
    }

    /// Pays for the walk that [`Self::steps`] was called for and that left `left` of them.
    #[inline(always)]
    pub fn pay(&mut self, left: u64) {
        self.saved = self.saved.min(left);
    }
}

/// Who is charged for the time of a wait.
pub trait Charge {
    /// `who` ran for `ns` of the wait. `slice`: the number of the slice; `None`: a sum, of which no task is known.
    fn charge(&mut self, who: u64, ns: u64, slice: Option<u64>);
}

/// The cause of a wait of `victim` while `who` ran.
#[inline(always)]
pub fn cause_of(who: u64, victim: u64) -> Cause {
    match who {
        IDLE => Cause::Wakeup,
        KERNEL => Cause::Kernel,
        who if who == victim => Cause::OwnCgroup,
        _ => Cause::OtherCgroup,
    }
}

/// A span of time that is split by who ran then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    /// Its parts so far, ns.
    pub parts: ByCause,
    /// From when, ns of `rq->clock`.
    pub from_ns: u64,
    /// To when.
    pub to_ns: u64,
    /// The cgroup of the task that waited.
    pub victim: u64,
    /// Steps that may still be taken.
    pub steps_left: u64,
    /// The slice to look at next.
    number: u64,
    /// The time from here on is explained.
    end_ns: u64,
    /// Where the slice before ended, or the block.
    slice_end_ns: u64,
    /// From this slice on back, blocks are looked at.
    blocks_from: u64,
    /// The step within a block.
    party: u64,
    /// The time within it that is not explained.
    block_ns: u64,
    /// How much of it is within the wait, 1024ths.
    block_share: u64,
}

impl Walk {
    /// Begins at the end of the span.
    #[inline(always)]
    pub fn begin(&mut self, head: u64) {
        set(&mut self.number, head);
        set(&mut self.blocks_from, last_of_a_block(head));
        set(&mut self.party, 0);
        let to_ns = get(&mut self.to_ns);
        set(&mut self.end_ns, to_ns);
        set(&mut self.slice_end_ns, to_ns);
    }

    /// Adds to a part.
    #[inline(always)]
    pub fn add(&mut self, cause: Cause, ns: u64) {
        let part = &mut self.parts[cause as usize];
        let before = get(part);
        set(part, before + ns);
    }

    /// What no slice and no block explains is unattributed. Returns true where [`Self::steps_left`] ended the walk.
    #[inline(always)]
    pub fn end(&mut self) -> bool {
        let unexplained_ns = get(&mut self.end_ns).saturating_sub(get(&mut self.from_ns));
        self.add(Cause::Unattributed, unexplained_ns);
        unexplained_ns != 0 && get(&mut self.steps_left) == 0
    }

    /// True if slices end here and blocks go on.
    #[inline(always)]
    pub fn is_at_blocks(&mut self) -> bool {
        get(&mut self.number) == get(&mut self.blocks_from)
    }

    /// Looks at the next slice; true if nothing is left to explain, or nothing to explain it.
    #[inline(always)]
    pub fn step(&mut self, ring: &mut Ring, charges: &mut impl Charge) -> bool {
        let number = get(&mut self.number);
        if number == get(&mut self.blocks_from) {
            return true;
        }
        if get(&mut self.end_ns) <= get(&mut self.from_ns) || !self.takes_a_step() {
            return true;
        }
        set(&mut self.number, number.wrapping_sub(1));
        let slice = ring.slice(number);
        if get(&mut slice.since_ns) == 0 {
            return true;
        }
        self.enter_slice(slice, number, charges);
        false
    }

    #[inline(always)]
    fn takes_a_step(&mut self) -> bool {
        let left = get(&mut self.steps_left);
        if left == 0 {
            return false;
        }
        set(&mut self.steps_left, left - 1);
        true
    }

    #[inline(always)]
    fn enter_slice(&mut self, slice: &mut Slice, number: u64, charges: &mut impl Charge) {
        let since_ns = get(&mut slice.since_ns);
        let slice_end_ns = get(&mut self.slice_end_ns);
        set(&mut self.slice_end_ns, since_ns);
        let end_ns = get(&mut self.end_ns);
        if since_ns >= end_ns {
            // Later than the wait: the history of another CPU has gone on.
            return;
        }
        let from_ns = get(&mut self.from_ns);
        let begin_ns = if since_ns > from_ns { since_ns } else { from_ns };
        set(&mut self.end_ns, begin_ns);
        let ns = end_ns - begin_ns;
        let kernel_ns = of_kernel(slice, ns, slice_end_ns);
        if kernel_ns != 0 {
            self.add(Cause::Kernel, kernel_ns);
        }
        let who = slice.who;
        match cause_of(who, self.victim) {
            Cause::Wakeup => self.add(Cause::Wakeup, ns - kernel_ns),
            Cause::Kernel => self.add(Cause::Kernel, ns - kernel_ns),
            Cause::OwnCgroup => self.add(Cause::OwnCgroup, ns - kernel_ns),
            _ => self.add(Cause::OtherCgroup, ns - kernel_ns),
        }
        charges.charge(who, ns - kernel_ns, Some(number));
    }

    /// Takes the next step over blocks; true if nothing is left to explain, or nothing to explain it.
    #[inline(always)]
    pub fn step_of_blocks(&mut self, ring: &mut Ring, charges: &mut impl Charge) -> bool {
        let number = get(&mut self.number);
        let block = ring.block(number);
        match get(&mut self.party) {
            0 => return self.enters_none(block),
            past if past > PARTIES as u64 => self.leave_block(block),
            place => self.enter_party(block, place, charges),
        }
        false
    }

    /// Enters a block; true if there is none, or nothing is left to explain.
    #[inline(always)]
    fn enters_none(&mut self, block: &mut Block) -> bool {
        let (from_ns, end_ns) = (get(&mut self.from_ns), get(&mut self.end_ns));
        let (since_ns, block_end_ns) = (get(&mut block.since_ns), get(&mut self.slice_end_ns));
        // Blocks with few places taken need fewer steps than there are: without this a later one could be left halfway, and its rest
        // be in no part.
        if get(&mut self.blocks_from).wrapping_sub(get(&mut self.number)) >= KNOWN as u64 {
            return true;
        }
        // Later than what follows it: the CPU has come round, and this is another block.
        if end_ns <= from_ns || since_ns == 0 || since_ns >= block_end_ns {
            return true;
        }
        let left = get(&mut self.steps_left);
        if left < STEPS_OF_BLOCK as u64 {
            set(&mut self.steps_left, 0);
            return true;
        }
        set(&mut self.steps_left, left - STEPS_OF_BLOCK as u64);
        let begin_ns = (if since_ns > from_ns { since_ns } else { from_ns }).min(end_ns);
        let (ns, length_ns) = (end_ns - begin_ns, block_end_ns - since_ns);
        let share = if ns >= length_ns { 1 << 10 } else { (ns << 10).checked_div(length_ns).unwrap_or(0) };
        set(&mut self.end_ns, begin_ns);
        set(&mut self.block_ns, ns);
        set(&mut self.block_share, share);
        let kernel_ns = self.of_block(get(&mut block.kernel_ns));
        self.add(Cause::Kernel, kernel_ns);
        set(&mut self.party, 1);
        false
    }

    /// The share of the wait in what somebody had of a block, which is explained by that.
    #[inline(always)]
    fn of_block(&mut self, ns: u64) -> u64 {
        let unexplained_ns = get(&mut self.block_ns);
        let ns = ((ns * get(&mut self.block_share)) >> 10).min(unexplained_ns);
        set(&mut self.block_ns, unexplained_ns - ns);
        ns
    }

    /// Who is in a place of a block, from 1.
    #[inline(always)]
    fn enter_party(&mut self, block: &mut Block, place: u64, charges: &mut impl Charge) {
        let at = opaque(place as usize - 1) & (PARTIES - 1);
        let (who, ns) = (get(&mut block.who[at]), get(&mut block.ns[at]));
        set(&mut self.party, if ns == 0 { PARTIES as u64 } else { place } + 1);
        let ns = self.of_block(ns);
        if ns == 0 {
            return;
        }
        let victim = get(&mut self.victim);
        match who {
            IDLE => self.add(Cause::Wakeup, ns),
            KERNEL => self.add(Cause::Kernel, ns),
            who if who == victim => self.add(Cause::OwnCgroup, ns),
            who => {
                self.add(Cause::OtherCgroup, ns);
                charges.charge(who, ns, None);
            }
        }
    }

    /// What nobody in the block had is not known, and the one before comes next.
    #[inline(always)]
    fn leave_block(&mut self, block: &mut Block) {
        let unexplained_ns = get(&mut self.block_ns);
        self.add(Cause::Unattributed, unexplained_ns);
        set(&mut self.slice_end_ns, get(&mut block.since_ns));
        let number = get(&mut self.number);
        set(&mut self.number, number.wrapping_sub(BLOCK as u64));
        set(&mut self.party, 0);
    }
}

/// The latest slice that ends its block and that [`LOOK_BACK`] slices reach for sure.
#[inline(always)]
fn last_of_a_block(head: u64) -> u64 {
    let sure = head.wrapping_sub((LOOK_BACK - BLOCK) as u64);
    (sure.wrapping_add(1) & !(BLOCK as u64 - 1)).wrapping_sub(1)
}

/// How much of `ns` within a slice the kernel had: its share of all that it had there.
#[inline(always)]
fn of_kernel(slice: &Slice, ns: u64, slice_end_ns: u64) -> u64 {
    let kernel_ns = slice.kernel_ns;
    if kernel_ns == 0 {
        return 0;
    }
    let length_ns = slice_end_ns.saturating_sub(slice.since_ns);
    if ns >= length_ns {
        return kernel_ns.min(ns);
    }
    // To a 1024th, without overflow below 2^54 ns.
    let share = (kernel_ns << 10).checked_div(length_ns).unwrap_or(0);
    ((ns * share) >> 10).min(ns)
}

#[cfg(test)]
#[path = "look_back/tests.rs"]
mod tests;
