//! Looks back over the history of a CPU to find who ran during a wait.
//!
//! The verifier requires that all state is in a map, and that all accesses are volatile. The verifier knows nothing about a value
//! that is read from a map. So all code paths through a step look the same to the verifier, and it follows only one of them. If
//! the state were in registers, each comparison would narrow a value range, and all paths would look different. Then the verifier
//! would exceed its limit of a million instructions.

use crate::{
    Loss,
    cause::{ByCause, Cause},
    host::{IDLE, KERNEL},
    verifier::{get, opaque, set},
    waits::{
        WaitHost,
        history::{BLOCK, Block, PARTIES, Ring, Slice},
        split::Work,
    },
};

/// Maximum number of slices to look back over. The time before these slices is explained by blocks.
pub const LOOK_BACK: usize = 400;
/// Maximum number of blocks to look back over. The time before these blocks is unattributed. The history has more blocks than
/// this, because a CPU may overwrite its oldest blocks while another CPU reads them.
pub const LOOK_BACK_BLOCKS: usize = 240;
/// Number of slices in [`LOOK_BACK_BLOCKS`] blocks. The history covers these slices, and up to [`BLOCK`] more.
pub const KNOWN: usize = LOOK_BACK_BLOCKS * BLOCK;

/// Number of steps for one block: one to enter it, one for each party, and one to leave it.
const STEPS_OF_BLOCK: usize = PARTIES + 2;
/// Maximum number of steps that [`Walk::step_of_blocks`] takes.
pub const STEPS_OF_BLOCKS: usize = LOOK_BACK_BLOCKS * STEPS_OF_BLOCK;

/// The budget of a CPU: how many steps it may look back. The budget grows by one step every 2 us, up to the steps of one full
/// walk. So a CPU spends a limited share of its time on looking back, no matter how many cgroups take turns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    saved: u64,
    /// The time up to which steps were added, ns of `rq->clock`.
    until_ns: u64,
}

/// Number of steps that each walk may take in addition to the saved steps. These steps suffice for most waits, because only a few
/// slices ran during a wait.
pub const FREE_STEPS: u64 = 8;
const MOST_SAVED: u64 = (LOOK_BACK + STEPS_OF_BLOCKS) as u64;
/// The budget grows by one step every 2^11 ns.
const GAIN_SHIFT: u32 = 11;

impl Budget {
    /// Returns the number of steps that a walk at `clock_ns` may take.
    #[inline(always)]
    pub fn steps(&mut self, clock_ns: u64) -> u64 {
        let gained = clock_ns.saturating_sub(self.until_ns) >> GAIN_SHIFT;
        self.until_ns += gained << GAIN_SHIFT;
        self.saved = (self.saved + gained).min(MOST_SAVED);
        self.saved + FREE_STEPS
    }

    /// Reduces the saved steps after a walk. `left` is the number of [`Self::steps`] that the walk did not take.
    #[inline(always)]
    pub fn pay(&mut self, left: u64) {
        self.saved = self.saved.min(left);
    }
}

/// Splits a time span by who ran during it. The span is in the [`Work`] with index `which`.
#[inline(always)]
pub fn look_back<H: WaitHost>(which: u32) {
    let Some(work) = H::work(which) else { return };
    let Some(seen) = H::ring(get(&mut work.charges.cpu)) else { return };
    work.walk.begin(seen.head);
    let steps = match which {
        // The steps of the hook are limited, because the hook holds the run queue lock.
        Work::HOOK => {
            let clock_ns = get(&mut work.charges.clock_ns);
            H::ring(get(&mut work.charges.charging)).map_or(FREE_STEPS, |own| own.budget.steps(clock_ns))
        }
        _ => MOST_SAVED,
    };
    set(&mut work.walk.steps_left, steps);
    // Most waits overlap only a few slices. These steps split such waits without a helper call.
    let mut is_done = false;
    for _ in 0..STEPS {
        if work.walk.step::<H>(seen, &mut work.charges) {
            is_done = true;
            break;
        }
    }
    if !is_done {
        H::repeat((LOOK_BACK - STEPS) as u32, |which| step::<H>(*which), &mut { which });
        if work.walk.is_at_blocks() {
            H::repeat(STEPS_OF_BLOCKS as u32, |which| step_of_blocks::<H>(*which), &mut { which });
        }
    }
    let is_cut = work.walk.end();
    if which == Work::HOOK {
        let left = get(&mut work.walk.steps_left);
        if let Some(own) = H::ring(get(&mut work.charges.charging)) {
            own.budget.pay(left);
        }
        if is_cut {
            H::lost(Loss::LookBackCut);
        }
    }
}

/// Number of steps of a walk before it uses [`Host::repeat`](crate::host::Host::repeat).
const STEPS: usize = 4;

/// Takes one step over slices. Returns true if this was the last step.
#[inline(always)]
pub fn step<H: WaitHost>(which: u32) -> bool {
    let Some(work) = H::work(which) else { return true };
    let Some(seen) = H::ring(get(&mut work.charges.cpu)) else { return true };
    work.walk.step::<H>(seen, &mut work.charges)
}

/// Takes one step over blocks. Returns true if this was the last step.
#[inline(always)]
pub fn step_of_blocks<H: WaitHost>(which: u32) -> bool {
    let Some(work) = H::work(which) else { return true };
    let Some(seen) = H::ring(get(&mut work.charges.cpu)) else { return true };
    work.walk.step_of_blocks::<H>(seen, &mut work.charges)
}

/// Receives the result of a walk on the host `H`: who ran during the wait.
pub trait Charge<H> {
    /// Charges `who` for `ns` of the wait. `slice` is the number of the slice. It is `None` for a sum over a block, where the
    /// single tasks are unknown.
    fn charge(&mut self, who: u64, ns: u64, slice: Option<u64>);
}

/// Returns the cause for the time in which `victim` waits and `who` runs.
#[inline(always)]
pub fn cause_of(who: u64, victim: u64) -> Cause {
    match who {
        IDLE => Cause::Wakeup,
        KERNEL => Cause::Kernel,
        who if who == victim => Cause::OwnCgroup,
        _ => Cause::OtherCgroup,
    }
}

/// A walk backwards through a time span, which splits the span by who ran.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    /// The parts that are found so far, ns.
    pub parts: ByCause,
    /// Start of the span, ns of `rq->clock`.
    pub from_ns: u64,
    /// End of the span, ns of `rq->clock`.
    pub to_ns: u64,
    pub victim: u64,
    pub steps_left: u64,
    /// Number of the slice that the next step visits.
    number: u64,
    /// From this time to its end, the span is already explained, ns of `rq->clock`.
    end_ns: u64,
    /// End of the slice or block that the next step visits, ns of `rq->clock`.
    slice_end_ns: u64,
    /// Number of the slice from which on the walk uses blocks.
    blocks_from: u64,
    /// The next step within a block: 0 enters the block, 1 to [`PARTIES`] add a party, and a larger number leaves the block.
    party: u64,
    /// Part of the span within the current block that is not explained yet, ns.
    block_ns: u64,
    /// Fraction of the current block that lies within the span, in 1024ths.
    block_share: u64,
    /// Not 0 if the span began before the oldest block, or if a block has too few entries for its cgroups.
    is_incomplete: u64,
}

impl Walk {
    /// Starts the walk at the end of the span. `head` is the number of the latest slice.
    #[inline(always)]
    pub fn begin(&mut self, head: u64) {
        set(&mut self.number, head);
        set(&mut self.blocks_from, last_of_a_block(head));
        set(&mut self.party, 0);
        set(&mut self.is_incomplete, 0);
        let to_ns = get(&mut self.to_ns);
        set(&mut self.end_ns, to_ns);
        set(&mut self.slice_end_ns, to_ns);
    }

    #[inline(always)]
    pub fn add(&mut self, cause: Cause, ns: u64) {
        let part = &mut self.parts[cause as usize];
        let before = get(part);
        set(part, before + ns);
    }

    /// Ends the walk: the rest of the time, which no slice or block explains, becomes unattributed. Returns true if there is such
    /// a rest because [`Self::steps_left`] reached 0, or if the history is incomplete.
    #[inline(always)]
    pub fn end(&mut self) -> bool {
        let unexplained_ns = get(&mut self.end_ns).saturating_sub(get(&mut self.from_ns));
        self.add(Cause::Unattributed, unexplained_ns);
        get(&mut self.is_incomplete) != 0 || unexplained_ns != 0 && get(&mut self.steps_left) == 0
    }

    #[inline(always)]
    pub fn is_at_blocks(&mut self) -> bool {
        get(&mut self.number) == get(&mut self.blocks_from)
    }

    /// Takes one step over slices. Returns true if the whole span is explained, or if there are no more slices.
    #[inline(always)]
    pub fn step<H>(&mut self, ring: &mut Ring, charges: &mut impl Charge<H>) -> bool {
        let number = get(&mut self.number);
        if number == get(&mut self.blocks_from) {
            return true;
        }
        let left = get(&mut self.steps_left);
        if get(&mut self.end_ns) <= get(&mut self.from_ns) || left == 0 {
            return true;
        }
        set(&mut self.steps_left, left - 1);
        set(&mut self.number, number.wrapping_sub(1));
        let slice = ring.slice(number);
        if get(&mut slice.since_ns) == 0 {
            return true;
        }
        self.enter_slice(slice, number, charges);
        false
    }

    #[inline(always)]
    fn enter_slice<H>(&mut self, slice: &mut Slice, number: u64, charges: &mut impl Charge<H>) {
        let since_ns = get(&mut slice.since_ns);
        let slice_end_ns = get(&mut self.slice_end_ns);
        set(&mut self.slice_end_ns, since_ns);
        let end_ns = get(&mut self.end_ns);
        if since_ns >= end_ns {
            // The slice began after the wait: the other CPU has added it during this walk.
            return;
        }
        let from_ns = get(&mut self.from_ns);
        let begin_ns = if since_ns > from_ns { since_ns } else { from_ns };
        set(&mut self.end_ns, begin_ns);
        let mut ns = end_ns - begin_ns;
        if slice.kernel_ns != 0 || slice.taken.ns() != 0 {
            ns = self.take_from(slice, ns, slice_end_ns);
        }
        let who = slice.who;
        match cause_of(who, self.victim) {
            Cause::Wakeup => self.add(Cause::Wakeup, ns),
            Cause::Kernel => self.add(Cause::Kernel, ns),
            Cause::OwnCgroup => self.add(Cause::OwnCgroup, ns),
            _ => self.add(Cause::OtherCgroup, ns),
        }
        charges.charge(who, ns, Some(number));
    }

    /// Adds the parts of `ns` in which short kernel threads, interrupts or the hypervisor used the CPU, in proportion to the
    /// whole slice. Returns the rest of `ns`.
    #[inline(always)]
    fn take_from(&mut self, slice: &Slice, ns: u64, slice_end_ns: u64) -> u64 {
        let length_ns = slice_end_ns.saturating_sub(slice.since_ns);
        let (kernel_ns, taken) = slice.without_a_task(length_ns);
        // There is no loop here, because in a loop the compiler would generate an index check that can panic.
        let mut rest_ns = ns;
        rest_ns -= self.add_share(Cause::Kernel, in_proportion(kernel_ns, ns, length_ns), rest_ns);
        rest_ns -= self.add_share(Cause::Irq, in_proportion(taken.irq_ns, ns, length_ns), rest_ns);
        rest_ns -= self.add_share(Cause::Stolen, in_proportion(taken.stolen_ns, ns, length_ns), rest_ns);
        rest_ns
    }

    /// Adds `ns`, but at most `most_ns`, to the part of `cause`. Returns the time that was added.
    #[inline(always)]
    fn add_share(&mut self, cause: Cause, ns: u64, most_ns: u64) -> u64 {
        let ns = if ns < most_ns { ns } else { most_ns };
        self.add(cause, ns);
        ns
    }

    /// Takes one step over blocks. Returns true if the whole span is explained, or if there are no more blocks.
    #[inline(always)]
    pub fn step_of_blocks<H>(&mut self, ring: &mut Ring, charges: &mut impl Charge<H>) -> bool {
        let number = get(&mut self.number);
        let block = ring.block(number);
        match get(&mut self.party) {
            0 => return self.enters_none(block),
            past if past > PARTIES as u64 => self.leave_block(block),
            place => self.enter_party(block, place, charges),
        }
        false
    }

    /// Enters a block. Returns true if there is no such block, or if the whole span is explained.
    #[inline(always)]
    fn enters_none(&mut self, block: &mut Block) -> bool {
        let (from_ns, end_ns) = (get(&mut self.from_ns), get(&mut self.end_ns));
        let (since_ns, block_end_ns) = (get(&mut block.since_ns), get(&mut self.slice_end_ns));
        // A block with empty entries takes fewer steps than planned, so the walk could reach more blocks than planned. Without
        // this limit, it could stop in the middle of a block, and the rest of that block would be in no part.
        if get(&mut self.blocks_from).wrapping_sub(get(&mut self.number)) >= KNOWN as u64 {
            set(&mut self.is_incomplete, 1);
            return true;
        }
        if end_ns <= from_ns || since_ns == 0 {
            return true;
        }
        // The block began after the block that follows it, so the CPU has overwritten it.
        if since_ns >= block_end_ns {
            set(&mut self.is_incomplete, 1);
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
        let irq_ns = self.of_block(get(&mut block.taken.irq_ns));
        self.add(Cause::Irq, irq_ns);
        let stolen_ns = self.of_block(get(&mut block.taken.stolen_ns));
        self.add(Cause::Stolen, stolen_ns);
        set(&mut self.party, 1);
        false
    }

    /// Returns how much of `ns`, the time of a party in the block, lies within the span. Subtracts the result from the time that
    /// is not explained yet.
    #[inline(always)]
    fn of_block(&mut self, ns: u64) -> u64 {
        let unexplained_ns = get(&mut self.block_ns);
        let ns = ((ns * get(&mut self.block_share)) >> 10).min(unexplained_ns);
        set(&mut self.block_ns, unexplained_ns - ns);
        ns
    }

    /// Adds the time of the party number `place` of a block, counted from 1.
    #[inline(always)]
    fn enter_party<H>(&mut self, block: &mut Block, place: u64, charges: &mut impl Charge<H>) {
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

    /// Leaves a block and continues with the previous block. The time that no party explains becomes unattributed.
    #[inline(always)]
    fn leave_block(&mut self, block: &mut Block) {
        let unexplained_ns = get(&mut self.block_ns);
        self.add(Cause::Unattributed, unexplained_ns);
        // If the whole block lies within the span, its parties explain all of it, unless some cgroups have no entry.
        if unexplained_ns != 0 && get(&mut self.block_share) == 1 << 10 {
            set(&mut self.is_incomplete, 1);
        }
        set(&mut self.slice_end_ns, get(&mut block.since_ns));
        let number = get(&mut self.number);
        set(&mut self.number, number.wrapping_sub(BLOCK as u64));
        set(&mut self.party, 0);
    }
}

/// Returns the number of the latest slice that is the last one of its block and that a walk over [`LOOK_BACK`] slices always
/// reaches.
#[inline(always)]
fn last_of_a_block(head: u64) -> u64 {
    let sure = head.wrapping_sub((LOOK_BACK - BLOCK) as u64);
    (sure.wrapping_add(1) & !(BLOCK as u64 - 1)).wrapping_sub(1)
}

/// Returns `part_ns` scaled from `whole_ns` to `ns`, with an error of up to a 1024th. The calculation does not overflow below
/// 2^54 ns.
#[inline(always)]
fn in_proportion(part_ns: u64, ns: u64, whole_ns: u64) -> u64 {
    if ns >= whole_ns {
        return part_ns;
    }
    let share = (part_ns << 10).checked_div(whole_ns).unwrap_or(0);
    (ns * share) >> 10
}

#[cfg(test)]
mod tests;
