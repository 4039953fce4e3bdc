//! Going back over the history of a CPU, to see behind whom a task waited.
//!
//! All of it is kept in memory of a map and read and written as volatile, and the function is exported. Both are for the verifier: what it
//! reads from a map it knows nothing about, so all paths through a step look alike to it and it follows one; and an exported function it
//! looks at once. Kept in registers, each comparison would narrow a range, no two paths would be alike, and a million
//! instructions would not be enough.

use core::{
    ffi::c_void,
    ptr::{from_mut, read_volatile, write_volatile},
};

use aya_ebpf::helpers::generated::bpf_loop;
use cgscope_layout::{
    Cause,
    cause::{CAUSES, WHOLE},
    ledger::{BLOCK, Block, IDLE, KERNEL, KNOWN, LOOK_BACK, LOOK_BACK_BLOCKS, PARTIES, Ring, Slice, kind},
};

use crate::{
    culprits::{Place, charge},
    history::{block, slice},
    kernel::blame_tasks,
    maps::{ring, work},
    verifier::opaque,
};

/// A wait of more than 0 ns that ends now.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Wait {
    /// Since when on this CPU; 0: not at all.
    pub queued_ns: u64,
    pub clock_ns: u64,
    /// Before, on other CPUs.
    pub elsewhere_ns: u64,
    /// Both together.
    pub ns: u64,
    pub bucket: u64,
    pub cpu: u32,
    /// No meaning.
    pub padding: u32,
}

impl Wait {
    /// Leaves it where it is split, and forgets what is known of it.
    #[inline(always)]
    pub fn put(self, work: &mut Work) {
        set(&mut work.wait.queued_ns, self.queued_ns);
        set(&mut work.wait.clock_ns, self.clock_ns);
        set(&mut work.wait.elsewhere_ns, self.elsewhere_ns);
        set(&mut work.wait.ns, self.ns);
        set(&mut work.wait.bucket, self.bucket);
        set(&mut work.wait.cpu, self.cpu);
    }

    /// When the part on other CPUs ended, ns.
    #[inline(always)]
    pub fn end_elsewhere_ns(&self) -> u64 {
        if self.queued_ns == 0 { self.clock_ns } else { self.queued_ns }
    }

    #[inline(always)]
    pub fn taken_from(work: &mut Work) -> Self {
        Self {
            queued_ns: get(&mut work.wait.queued_ns),
            clock_ns: get(&mut work.wait.clock_ns),
            elsewhere_ns: get(&mut work.wait.elsewhere_ns),
            ns: get(&mut work.wait.ns),
            bucket: get(&mut work.wait.bucket),
            cpu: get(&mut work.wait.cpu),
            padding: 0,
        }
    }
}

/// A wait that is being split.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Work {
    /// As the hook found it.
    wait: Wait,
    /// Its parts, ns.
    pub parts: [u64; CAUSES],
    /// The time to look back over.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Its task's cgroup.
    pub victim: u64,
    /// The clock of the CPU that enters charges.
    pub clock_ns: u64,
    /// The CPU that it was spent on.
    pub cpu: u32,
    /// The CPU that enters charges; [`Work::NOBODY`] only looks.
    pub charging: u32,
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
    /// The largest part so far, and its cause.
    largest_ns: u64,
    largest: u64,
    /// Sum of the shares given to causes.
    shared: u64,
}

impl Work {
    /// The place of the hook.
    pub const HOOK: u32 = 0;
    /// The place of the reader.
    pub const READER: u32 = 1;
    /// No CPU.
    pub const NOBODY: u32 = 0xffff;

    /// Begins with a wait that has no parts yet.
    #[inline(always)]
    pub fn begin(&mut self, victim: u64, charging: u32, clock_ns: u64) {
        for cause in 0..CAUSES {
            set(&mut self.parts[cause], 0);
        }
        self.victim = victim;
        self.charging = charging;
        self.clock_ns = clock_ns;
    }

    /// Begins to give causes their shares.
    #[inline(always)]
    pub fn begin_sharing(&mut self) {
        set(&mut self.largest_ns, 0);
        set(&mut self.shared, 0);
    }

    /// The time to look back over.
    #[inline(always)]
    pub fn span(&mut self, cpu: u32, from_ns: u64, to_ns: u64) {
        self.cpu = cpu;
        self.from_ns = from_ns;
        self.to_ns = to_ns;
    }

    #[inline(always)]
    pub fn add(&mut self, cause: Cause, ns: u64) {
        let part = &mut self.parts[cause as usize];
        let before = get(part);
        set(part, before + ns);
    }

    /// What was unattributed is explained.
    #[inline(always)]
    pub fn explain(&mut self, kernel_ns: u64, idle_ns: u64, own_ns: u64, other_ns: u64) {
        set(&mut self.parts[Cause::Unattributed as usize], 0);
        self.add(Cause::Kernel, kernel_ns);
        self.add(Cause::Wakeup, idle_ns);
        self.add(Cause::OwnCgroup, own_ns);
        self.add(Cause::OtherCgroup, other_ns);
    }

    /// `cause` had `ns`, and was given `share` of the wait.
    #[inline(always)]
    pub fn shared(&mut self, cause: Cause, ns: u64, share: u64) {
        let shared = get(&mut self.shared);
        set(&mut self.shared, shared + share);
        if ns > get(&mut self.largest_ns) {
            set(&mut self.largest_ns, ns);
            set(&mut self.largest, cause as u64);
        }
    }

    /// The cause of the largest part, and the share that was given to none.
    #[inline(always)]
    pub fn rounding(&mut self) -> (u64, u64) {
        (get(&mut self.largest), u64::from(WHOLE).wrapping_sub(get(&mut self.shared)))
    }

    /// Charges what is not in the history.
    #[inline(always)]
    pub fn charge(&mut self, who: u64, kind: u32, ns: u64, number: u64) {
        let place = Place { cpu: get(&mut self.charging), history: get(&mut self.cpu), number };
        charge(get(&mut self.victim), who, kind, ns, get(&mut self.clock_ns), place);
    }
}

impl Work {
    /// Charges a cgroup with what is known of it in sum; which of its tasks it was is not.
    #[inline(always)]
    fn charge_sum(&mut self, who: u64, ns: u64) {
        let place = Place { cpu: get(&mut self.charging), history: Self::NOBODY, number: 0 };
        charge(get(&mut self.victim), who, kind::RAN, ns, get(&mut self.clock_ns), place);
    }
}

#[inline(always)]
fn get<T>(word: &mut T) -> T {
    // SAFETY: a reference.
    unsafe { read_volatile(from_mut(word)) }
}

#[inline(always)]
fn set<T>(word: &mut T, value: T) {
    // SAFETY: a reference.
    unsafe { write_volatile(from_mut(word), value) };
}

/// The cause of waiting while `slice` ran.
#[inline(always)]
pub fn cause_of(slice: &Slice, victim: u64) -> Cause {
    match slice.who {
        IDLE => Cause::Wakeup,
        KERNEL => Cause::Kernel,
        who if who == victim => Cause::OwnCgroup,
        _ => Cause::OtherCgroup,
    }
}

/// Where single tasks are blamed, siblings and kernel threads are of interest, too.
#[inline(always)]
pub fn is_charged(slice: &Slice, victim: u64) -> bool {
    match slice.who {
        IDLE => false,
        KERNEL => blame_tasks(),
        who => blame_tasks() || who != victim,
    }
}

/// Splits the time between `from_ns` and `to_ns` by who ran then.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn look_back(which: u32) -> u32 {
    let Some(work) = work(which) else { return 0 };
    let Some(ring) = ring(get(&mut work.cpu)) else { return 0 };
    set(&mut work.number, ring.head);
    set(&mut work.blocks_from, last_of_a_block(ring.head));
    set(&mut work.party, 0);
    let to_ns = get(&mut work.to_ns);
    set(&mut work.end_ns, to_ns);
    set(&mut work.slice_end_ns, to_ns);
    // Most waits lie behind a few slices: these without the helper (Linux 5.17), of which the verifier sees one step.
    for _ in 0..STEPS {
        if is_last(work, ring) {
            break;
        }
    }
    let mut which = which;
    // SAFETY: the callback gets what it expects.
    unsafe { bpf_loop((LOOK_BACK - STEPS) as u32, one_step as *mut c_void, (&raw mut which).cast(), 0) };
    if get(&mut work.number) == get(&mut work.blocks_from) {
        // SAFETY: as above.
        unsafe { bpf_loop(STEPS_OF_BLOCKS, one_step_of_a_block as *mut c_void, (&raw mut which).cast(), 0) };
    }
    let unexplained_ns = get(&mut work.end_ns).saturating_sub(get(&mut work.from_ns));
    work.add(Cause::Unattributed, unexplained_ns);
    0
}

/// Steps that are taken without the helper.
const STEPS: usize = 4;

/// One to begin a block, one for each place in it, one to end it.
const STEPS_OF_BLOCKS: u32 = (LOOK_BACK_BLOCKS * (PARTIES + 2)) as u32;

/// The latest slice that ends its block and that [`LOOK_BACK`] slices reach for sure.
#[inline(always)]
fn last_of_a_block(head: u64) -> u64 {
    let sure = head.wrapping_sub((LOOK_BACK - BLOCK) as u64);
    (sure.wrapping_add(1) & !(BLOCK as u64 - 1)).wrapping_sub(1)
}

extern "C" fn one_step(_: u64, which: *mut c_void) -> i64 {
    // SAFETY: what `look_back` gave.
    let Some(work) = work(unsafe { *which.cast::<u32>() }) else { return 1 };
    let Some(ring) = ring(get(&mut work.cpu)) else { return 1 };
    is_last(work, ring).into()
}

/// Looks at the next slice; true if nothing is left to explain, or nothing to explain it.
#[inline(always)]
fn is_last(work: &mut Work, ring: &mut Ring) -> bool {
    let number = get(&mut work.number);
    if number == get(&mut work.blocks_from) {
        return true;
    }
    set(&mut work.number, number.wrapping_sub(1));
    let slice = slice(ring, number);
    if get(&mut work.end_ns) <= get(&mut work.from_ns) {
        return true;
    }
    if get(&mut slice.since_ns) == 0 {
        return true;
    }
    step(work, slice, number);
    false
}

/// One slice.
#[inline(always)]
fn step(work: &mut Work, slice: &mut Slice, number: u64) {
    let since_ns = get(&mut slice.since_ns);
    let slice_end_ns = get(&mut work.slice_end_ns);
    set(&mut work.slice_end_ns, since_ns);
    let end_ns = get(&mut work.end_ns);
    if since_ns >= end_ns {
        // Later than the wait: the history of another CPU has gone on.
        return;
    }
    let from_ns = get(&mut work.from_ns);
    let begin_ns = if since_ns > from_ns { since_ns } else { from_ns };
    set(&mut work.end_ns, begin_ns);
    let ns = end_ns - begin_ns;
    let kernel_ns = of_kernel(slice, ns, slice_end_ns);
    if kernel_ns != 0 {
        work.add(Cause::Kernel, kernel_ns);
    }
    let cause = cause_of(slice, work.victim);
    match cause {
        Cause::Wakeup => work.add(Cause::Wakeup, ns - kernel_ns),
        Cause::Kernel => work.add(Cause::Kernel, ns - kernel_ns),
        Cause::OwnCgroup => work.add(Cause::OwnCgroup, ns - kernel_ns),
        _ => work.add(Cause::OtherCgroup, ns - kernel_ns),
    }
    if get(&mut work.charging) != Work::NOBODY && is_charged(slice, work.victim) {
        work.charge(slice.who, kind::RAN, ns - kernel_ns, number);
    }
}

extern "C" fn one_step_of_a_block(_: u64, which: *mut c_void) -> i64 {
    // SAFETY: what `look_back` gave.
    let Some(work) = work(unsafe { *which.cast::<u32>() }) else { return 1 };
    let Some(ring) = ring(get(&mut work.cpu)) else { return 1 };
    let number = get(&mut work.number);
    let block = block(ring, number);
    match get(&mut work.party) {
        0 => return begins_none(work, block).into(),
        past if past > PARTIES as u64 => end_block(work, block),
        place => enter_party(work, block, place),
    }
    0
}

/// Enters a block; true if there is none, or nothing is left to explain.
#[inline(always)]
fn begins_none(work: &mut Work, block: &mut Block) -> bool {
    let (from_ns, end_ns) = (get(&mut work.from_ns), get(&mut work.end_ns));
    let (since_ns, block_end_ns) = (get(&mut block.since_ns), get(&mut work.slice_end_ns));
    // Blocks with few places taken need fewer steps than there are: without this a later one could be left halfway, and the rest of
    // it be in no part.
    if get(&mut work.blocks_from).wrapping_sub(get(&mut work.number)) >= KNOWN as u64 {
        return true;
    }
    // Later than what follows it: the CPU has come round, and this is another block.
    if end_ns <= from_ns || since_ns == 0 || since_ns >= block_end_ns {
        return true;
    }
    let begin_ns = (if since_ns > from_ns { since_ns } else { from_ns }).min(end_ns);
    let (ns, length_ns) = (end_ns - begin_ns, block_end_ns - since_ns);
    let share = if ns >= length_ns { 1 << 10 } else { (ns << 10).checked_div(length_ns).unwrap_or(0) };
    set(&mut work.end_ns, begin_ns);
    set(&mut work.block_ns, ns);
    set(&mut work.block_share, share);
    let kernel_ns = of_block(work, get(&mut block.kernel_ns));
    work.add(Cause::Kernel, kernel_ns);
    set(&mut work.party, 1);
    false
}

/// The share of the wait in what somebody had of a block, which is explained by that.
#[inline(always)]
fn of_block(work: &mut Work, ns: u64) -> u64 {
    let unexplained_ns = get(&mut work.block_ns);
    let ns = ((ns * get(&mut work.block_share)) >> 10).min(unexplained_ns);
    set(&mut work.block_ns, unexplained_ns - ns);
    ns
}

/// Who is in a place of a block, from 1.
#[inline(always)]
fn enter_party(work: &mut Work, block: &mut Block, place: u64) {
    let at = opaque(place as usize - 1) & (PARTIES - 1);
    let (who, ns) = (get(&mut block.who[at]), get(&mut block.ns[at]));
    set(&mut work.party, if ns == 0 { PARTIES as u64 } else { place } + 1);
    let ns = of_block(work, ns);
    if ns == 0 {
        return;
    }
    let victim = get(&mut work.victim);
    match who {
        IDLE => work.add(Cause::Wakeup, ns),
        KERNEL => work.add(Cause::Kernel, ns),
        who if who == victim => work.add(Cause::OwnCgroup, ns),
        who => {
            work.add(Cause::OtherCgroup, ns);
            if get(&mut work.charging) != Work::NOBODY {
                work.charge_sum(who, ns);
            }
        }
    }
}

/// What nobody in the block had is not known, and the one before comes next.
#[inline(always)]
fn end_block(work: &mut Work, block: &mut Block) {
    let unexplained_ns = get(&mut work.block_ns);
    work.add(Cause::Unattributed, unexplained_ns);
    set(&mut work.slice_end_ns, get(&mut block.since_ns));
    let number = get(&mut work.number);
    set(&mut work.number, number.wrapping_sub(BLOCK as u64));
    set(&mut work.party, 0);
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
