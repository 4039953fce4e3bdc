//! Looks back over the history of a CPU, with the walk of [`cgscope_layout::look_back`], to split a wait by cause.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_loop;
use cgscope_layout::{
    CAUSES, Cause, Loss,
    cause::WHOLE,
    ledger::{IDLE, KERNEL, kind},
    look_back::{Charge, FREE_STEPS, LOOK_BACK, STEPS_OF_BLOCKS, Walk},
    verifier::{get, set},
};

use crate::{
    culprits::{Place, charge},
    kernel::blame_tasks,
    maps::{lost, ring, work},
};

/// A wait of more than 0 ns that ends now.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Wait {
    /// When the task was queued on this CPU; 0: it was not queued here.
    pub queued_ns: u64,
    pub clock_ns: u64,
    /// The earlier segments of the wait, on other CPUs.
    pub elsewhere_ns: u64,
    pub ns: u64,
    pub bucket: u64,
    pub cpu: u32,
    pub padding: u32,
}

impl Wait {
    #[inline(always)]
    pub fn put(self, work: &mut Work) {
        set(&mut work.wait.queued_ns, self.queued_ns);
        set(&mut work.wait.clock_ns, self.clock_ns);
        set(&mut work.wait.elsewhere_ns, self.elsewhere_ns);
        set(&mut work.wait.ns, self.ns);
        set(&mut work.wait.bucket, self.bucket);
        set(&mut work.wait.cpu, self.cpu);
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

/// The working memory in which a wait is split.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Work {
    wait: Wait,
    /// The parts of the wait, and the walk over the history.
    pub walk: Walk,
    charges: Charges,
    /// The largest part so far, and its cause.
    largest_ns: u64,
    largest: u64,
    /// Sum of the shares that causes have received.
    shared: u64,
}

/// Charges the culprits of a wait, in the table of culprits.
#[repr(C)]
#[derive(Clone, Copy)]
struct Charges {
    victim: u64,
    /// The clock of the charging CPU.
    clock_ns: u64,
    /// The CPU whose history is read.
    cpu: u32,
    /// The CPU that records charges; [`Work::NOBODY`]: none are recorded.
    charging: u32,
}

impl Charge for Charges {
    #[inline(always)]
    fn charge(&mut self, who: u64, ns: u64, slice: Option<u64>) {
        let charging = get(&mut self.charging);
        let victim = get(&mut self.victim);
        if charging == Work::NOBODY || !is_charged(who, victim) {
            return;
        }
        let (history, number) = match slice {
            Some(number) => (get(&mut self.cpu), number),
            None => (Work::NOBODY, 0),
        };
        let place = Place { cpu: charging, history, number };
        charge(victim, who, kind::RAN, ns, get(&mut self.clock_ns), place);
    }
}

impl Work {
    // Indexes in the map `WORK`.
    pub const HOOK: u32 = 0;
    pub const READER: u32 = 1;
    pub const NOBODY: u32 = 0xffff;

    #[inline(always)]
    pub fn begin(&mut self, victim: u64, charging: u32, clock_ns: u64) {
        for cause in 0..CAUSES {
            set(&mut self.walk.parts[cause], 0);
        }
        self.walk.victim = victim;
        self.charges.victim = victim;
        self.charges.charging = charging;
        self.charges.clock_ns = clock_ns;
    }

    #[inline(always)]
    pub fn begin_sharing(&mut self) {
        set(&mut self.largest_ns, 0);
        set(&mut self.shared, 0);
    }

    /// Sets the CPU, and the span of time to look back over.
    #[inline(always)]
    pub fn span(&mut self, cpu: u32, from_ns: u64, to_ns: u64) {
        self.charges.cpu = cpu;
        self.walk.from_ns = from_ns;
        self.walk.to_ns = to_ns;
    }

    #[inline(always)]
    pub fn cpu(&self) -> u32 {
        self.charges.cpu
    }

    /// Replaces the unattributed time by these causes.
    #[inline(always)]
    pub fn explain(&mut self, kernel_ns: u64, idle_ns: u64, own_ns: u64, other_ns: u64) {
        set(&mut self.walk.parts[Cause::Unattributed as usize], 0);
        self.walk.add(Cause::Kernel, kernel_ns);
        self.walk.add(Cause::Wakeup, idle_ns);
        self.walk.add(Cause::OwnCgroup, own_ns);
        self.walk.add(Cause::OtherCgroup, other_ns);
    }

    /// Adds the `share` of the wait that `cause` receives for its part of `ns`.
    #[inline(always)]
    pub fn shared(&mut self, cause: Cause, ns: u64, share: u64) {
        let shared = get(&mut self.shared);
        set(&mut self.shared, shared + share);
        if ns > get(&mut self.largest_ns) {
            set(&mut self.largest_ns, ns);
            set(&mut self.largest, cause as u64);
        }
    }

    /// Returns the cause of the largest part, and the share that rounding left to no cause.
    #[inline(always)]
    pub fn rounding(&mut self) -> (u64, u64) {
        (get(&mut self.largest), u64::from(WHOLE).wrapping_sub(get(&mut self.shared)))
    }

    /// Charges the cgroup `limit`, which was out of quota for `ns`.
    #[inline(always)]
    pub fn charge_limit(&mut self, limit: u64, ns: u64) {
        let charges = &mut self.charges;
        if get(&mut charges.charging) == Self::NOBODY {
            return;
        }
        let place = Place { cpu: get(&mut charges.charging), history: get(&mut charges.cpu), number: 0 };
        charge(get(&mut charges.victim), limit, kind::LIMITED, ns, get(&mut charges.clock_ns), place);
    }
}

/// Returns whether `who` is charged. Kernel threads and tasks of the victim's own cgroup are charged only if culprits are single
/// tasks.
#[inline(always)]
pub fn is_charged(who: u64, victim: u64) -> bool {
    match who {
        IDLE => false,
        KERNEL => blame_tasks(),
        who => blame_tasks() || who != victim,
    }
}

/// Splits the span by who ran then. Exported, because the verifier checks an exported function only once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn look_back(which: u32) -> u32 {
    let Some(work) = work(which) else { return 0 };
    let Some(seen) = ring(get(&mut work.charges.cpu)) else { return 0 };
    work.walk.begin(seen.head);
    let steps = match which {
        Work::HOOK => steps_of_hook(work),
        _ => (LOOK_BACK + STEPS_OF_BLOCKS) as u64,
    };
    set(&mut work.walk.steps_left, steps);
    // Most waits are behind a few slices, which these steps cover without a helper. `bpf_loop` (Linux 5.17) takes the remaining
    // steps, and the verifier checks its body only once.
    for _ in 0..STEPS {
        if work.walk.step(seen, &mut work.charges) {
            break;
        }
    }
    let mut which = which;
    // SAFETY: the callback gets what it expects.
    unsafe { bpf_loop((LOOK_BACK - STEPS) as u32, one_step as *mut c_void, (&raw mut which).cast(), 0) };
    if work.walk.is_at_blocks() {
        // SAFETY: as above.
        unsafe {
            bpf_loop(STEPS_OF_BLOCKS as u32, one_step_of_blocks as *mut c_void, (&raw mut which).cast(), 0)
        };
    }
    let is_cut = work.walk.end();
    if which == Work::HOOK {
        pay(work, is_cut);
    }
    0
}

/// Steps taken without the helper.
const STEPS: usize = 4;

/// Returns the steps that the hook may take. The hook holds the run queue lock, so its work is bounded.
#[inline(always)]
fn steps_of_hook(work: &mut Work) -> u64 {
    let clock_ns = get(&mut work.charges.clock_ns);
    ring(get(&mut work.charges.charging)).map_or(FREE_STEPS, |own| own.budget.steps(clock_ns))
}

#[inline(always)]
fn pay(work: &mut Work, is_cut: bool) {
    let left = get(&mut work.walk.steps_left);
    if let Some(own) = ring(get(&mut work.charges.charging)) {
        own.budget.pay(left);
    }
    if is_cut {
        lost(Loss::LookBackCut);
    }
}

extern "C" fn one_step(_: u64, which: *mut c_void) -> i64 {
    // SAFETY: the pointer that `look_back` passes.
    let Some(work) = work(unsafe { *which.cast::<u32>() }) else { return 1 };
    let Some(seen) = ring(get(&mut work.charges.cpu)) else { return 1 };
    work.walk.step(seen, &mut work.charges).into()
}

extern "C" fn one_step_of_blocks(_: u64, which: *mut c_void) -> i64 {
    // SAFETY: the pointer that `look_back` passes.
    let Some(work) = work(unsafe { *which.cast::<u32>() }) else { return 1 };
    let Some(seen) = ring(get(&mut work.charges.cpu)) else { return 1 };
    work.walk.step_of_blocks(seen, &mut work.charges).into()
}
