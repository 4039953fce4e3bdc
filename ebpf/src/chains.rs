//! For whom tasks sleep: who woke each task, and what the waker did during the sleep. Optional. [`cgscope_ledger::chains`] has the
//! arithmetic.
//!
//! The program at a wakeup notes the waker, in the waker's context. The program at a switch keeps the past of tasks, and counts a
//! sleep when the task runs again: only then is its exact length known, and whether it slept at all. (`sched_waking` is also called
//! for tasks that still run.) Both use CLOCK_MONOTONIC, because no run queue is locked at a wakeup.

use core::{
    ffi::c_void,
    ptr::{self, read_volatile},
};

use aya_ebpf::{
    bindings::{BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST},
    btf_maps::HashMap,
    helpers::generated::bpf_ktime_get_ns,
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};
use cgscope_ledger::{
    CAUSES, Cause, Loss,
    chains::{CALL_BITS, Chain, Did, PAIRS, PairKey, PairSums, Sleep, Waker},
    host::Task as _,
    task_state::{DEAD, NEW},
    verifier::{add_atomic, get, set},
    wire::{FOLLOWED, TaskStorage},
};

use crate::{
    history,
    kernel::{Context, Task, context, is_shared, keeps_chains},
    maps::{lost, ring, storage},
    task_storage::TaskStorageMap,
};

#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static CHAINS: TaskStorageMap<Chain> = TaskStorageMap::NEW;

/// All pairs of a sleeper and what woke it. Preallocated, because the hook fills it.
#[btf_map]
static CHAIN_PAIRS: HashMap<PairKey, PairSums, PAIRS, 0> = HashMap::new();

/// The system calls in which a task may send something to another one, by number: one bit each. User space sets this before it
/// loads the programs.
#[unsafe(no_mangle)]
static SENDING_CALLS: [u64; 8] = [0; 8];

/// The system calls whose first argument is the file that a task waits for, in the same form.
#[unsafe(no_mangle)]
static FILE_CALLS: [u64; 8] = [0; 8];

/// First word of the name of the threads that serve soft interrupts: `ksoftirq`.
const KSOFTIRQ: u64 = u64::from_le_bytes(*b"ksoftirq");

#[inline(always)]
fn chain(task: Task) -> Option<&'static mut Chain> {
    CHAINS.get(task.pointer(), ptr::null_mut(), 0)
}

#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// Begins to keep the past of a task. Call this function only where memory may be allocated, after the storage was created.
#[inline(always)]
pub fn begin(task: Task, storage: &TaskStorage) {
    if !keeps_chains() {
        return;
    }
    let Some(chain) = CHAINS.get(task.pointer(), ptr::null_mut(), BPF_LOCAL_STORAGE_GET_F_CREATE.into())
    else {
        return lost(Loss::ChainNotKept);
    };
    let now_ns = now_ns();
    chain.past.begin(now_ns, &storage.by_cause);
    let state = task.state();
    if state != 0 && state & NEW == 0 && !task.is_active() {
        set(&mut chain.sleep.from_ns, now_ns);
    }
}

#[btf_tracepoint(function = "sched_switch")]
pub fn on_chain_switch(ctx: BtfTracePointContext) -> i32 {
    let prev = Task::new(ctx.arg::<*const c_void>(1));
    let next = Task::new(ctx.arg::<*const c_void>(2));
    let now_ns = now_ns();
    let state = prev.state();
    // Only the low byte of this argument contains the `bool`.
    let preempted = ctx.arg::<u64>(0) as u8 != 0;
    if state != 0
        && state & DEAD == 0
        && !preempted
        && let Some(chain) = chain(prev)
    {
        set(&mut chain.sleep.woken_ns, 0);
        set(&mut chain.sleep.from_ns, now_ns);
    }
    if next.tid() != 0
        && let Some(chain) = chain(next)
        && let Some(storage) = storage(next)
    {
        arrive(next, storage, chain, now_ns, false);
    }
    0
}

/// Ends the pause of `prev`, which has run for `ran_ns`: the hook did not see it switch in. Otherwise its sleep would not be counted.
#[inline(always)]
pub fn arrived_unseen(prev: Task, storage: &mut TaskStorage, ran_ns: u64) {
    if keeps_chains()
        && let Some(chain) = chain(prev)
    {
        // It may be in another system call by now.
        arrive(prev, storage, chain, now_ns().saturating_sub(ran_ns), true);
    }
}

/// Ends the pause of `next`, whose wait the main hook has just counted.
#[inline(always)]
fn arrive(next: Task, storage: &mut TaskStorage, chain: &mut Chain, now_ns: u64, is_late: bool) {
    let from_ns = get(&mut chain.sleep.from_ns);
    let woken_ns = chain.past.add(from_ns, now_ns, &storage.by_cause);
    if from_ns == 0 {
        return;
    }
    set(&mut chain.sleep.from_ns, 0);
    if !next.is_kernel_thread() {
        // The kernel may count a part of the sleep as waiting (`Loss::MovedAsleep`). The time of the wakeup does not contain that.
        let noted_ns = get(&mut chain.sleep.woken_ns);
        let slept_ns = if noted_ns > from_ns { noted_ns } else { woken_ns } - from_ns;
        count(next, storage, chain, slept_ns, is_late.into());
    }
}

/// Counts a sleep of `next` for its pair.
#[inline(never)]
fn count(next: Task, storage: &mut TaskStorage, chain: &mut Chain, slept_ns: u64, is_late: u64) {
    let sleep = &mut chain.sleep;
    let mut key = PairKey {
        sleeper: storage.cgroup_id,
        waker: Waker::Unknown as u32,
        call: if is_late != 0 { -1 } else { call_of(next) },
        ..PairKey::default()
    };
    if get(&mut sleep.woken_ns) != 0 {
        key.waker = sleep.waker as u32;
        key.waker_cgroup = sleep.cgroup_id;
        key.waker_tid = sleep.tid as u32;
    }
    if is_shared() && get(&mut storage.waits.flags) & FOLLOWED != 0 {
        key.sleeper_tid = next.tid();
    } else {
        key.waker_tid = 0;
    }
    let mut found = CHAIN_PAIRS.get_ptr_mut(key);
    if found.is_none() {
        let new = PairSums { comm: sleep.comm, ..PairSums::default() };
        // This fails if another CPU has just added it.
        let _ = CHAIN_PAIRS.insert(key, new, BPF_NOEXIST.into());
        found = CHAIN_PAIRS.get_ptr_mut(key);
    }
    // SAFETY: the entry is a map value. All its counters are added to atomically.
    let Some(sums) = found.map(|sums| unsafe { &mut *sums }) else { return lost(Loss::ChainForgotten) };
    add_atomic(&mut sums.count, 1);
    add_atomic(&mut sums.slept_ns, slept_ns);
    if key.waker == Waker::Task as u32 {
        add_did(sleep, sums, slept_ns);
    }
}

/// Adds what the waker did. It was also awake during the wakeup itself, so the rest of the sleep is time in which it ran.
#[inline(always)]
fn add_did(sleep: &mut Sleep, sums: &mut PairSums, slept_ns: u64) {
    let did = &mut sleep.did;
    let all_ns = did.sums.total() + did.unknown_ns;
    // The clocks of the run queue and of the wakeup may differ a little.
    did.sums.slept_ns = did.sums.slept_ns.saturating_sub(all_ns.saturating_sub(slept_ns));
    add(&mut sums.did.ran_ns, slept_ns.saturating_sub(all_ns));
    add(&mut sums.did.sums.slept_ns, did.sums.slept_ns);
    add(&mut sums.did.unknown_ns, did.unknown_ns);
    add(&mut sums.did.estimated_ns, did.estimated_ns);
    for cause in 0..CAUSES {
        add(&mut sums.did.sums.by_cause[cause], did.sums.by_cause[cause]);
    }
    if did.unknown_ns + did.estimated_ns != 0 {
        lost(Loss::ChainCut);
    }
}

/// Most parts are 0, and an atomic addition takes longer than a comparison.
#[inline(always)]
fn add(sum: &mut u64, ns: u64) {
    if ns != 0 {
        add_atomic(sum, ns);
    }
}

/// Notes who wakes a sleeping task. The kernel holds a lock of this task, so no other program notes a waker for it at the same time.
#[btf_tracepoint(function = "sched_waking")]
pub fn on_waking(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    let Some(chain) = chain(task) else { return 0 };
    let from_ns = get(&mut chain.sleep.from_ns);
    // The task runs, or another waker was first.
    if from_ns == 0 || get(&mut chain.sleep.woken_ns) != 0 {
        return 0;
    }
    let (sleep, now_ns) = (&mut chain.sleep, now_ns());
    let waker = waker_of(task);
    sleep.waker = waker as u64;
    (sleep.tid, sleep.cgroup_id, sleep.comm) = (0, 0, [0; 2]);
    if waker == Waker::Task {
        note(from_ns, now_ns, sleep);
    }
    set(&mut sleep.woken_ns, now_ns);
    0
}

/// Notes the current task as the waker, and what it did during the sleep.
#[inline(always)]
fn note(from_ns: u64, now_ns: u64, sleep: &mut Sleep) {
    let current = Task::current();
    (sleep.tid, sleep.cgroup_id, sleep.comm) =
        (current.tid().into(), history::who(current), current.comm_words());
    match chain(current) {
        Some(own) => {
            own.past.since(from_ns, now_ns, &mut sleep.did);
            if let Some(ring) = ring(current.run_queue().cpu())
                && get(&mut ring.tid) != current.tid()
            {
                leave_out_unseen(current, own, now_ns, &mut sleep.did);
            }
        }
        None => sleep.did = Did { unknown_ns: now_ns.saturating_sub(from_ns), ..Did::default() },
    }
}

/// Handles a waker that the hook did not see switch in: its past lacks the latest pause. Its wait was not split, and from which time
/// on it ran after a sleep is unknown.
#[inline(never)]
fn leave_out_unseen(current: Task, own: &mut Chain, now_ns: u64, did: &mut Did) -> i32 {
    let slept_from_ns = get(&mut own.sleep.from_ns);
    let waited_ns = storage(current)
        .map_or(0, |storage| current.run_delay_ns().wrapping_sub(storage.waits.expected_run_delay_ns));
    let (to, most_ns) = if slept_from_ns == 0 {
        (&mut did.sums.by_cause[Cause::Unattributed as usize], waited_ns)
    } else {
        (&mut did.unknown_ns, now_ns.saturating_sub(slept_from_ns))
    };
    let ns = if most_ns < did.ran_ns { most_ns } else { did.ran_ns };
    *to += ns;
    did.ran_ns -= ns;
    0
}

#[inline(always)]
fn waker_of(task: Task) -> Waker {
    let (context, current) = (context(), Task::current());
    let is_user = current.has_user_space();
    match context {
        Context::Unknown => Waker::Unknown,
        // A kernel thread may complete the I/O.
        Context::Task if is_user || current.tid() != 0 && !task.in_iowait() => Waker::Task,
        _ if task.in_iowait() => Waker::Disk,
        Context::SoftInterrupt => {
            let is_ksoftirqd = !is_user && current.comm_words()[0] == KSOFTIRQ;
            if is_ksoftirqd || is_user && sends(current) { Waker::Task } else { Waker::SoftInterrupt }
        }
        _ => Waker::Interrupt,
    }
}

/// Returns what the task waits for, see [`PairKey::call`].
#[inline(always)]
fn call_of(task: Task) -> i32 {
    if !task.has_user_space() {
        return -1;
    }
    let call = task.system_call();
    if has(&raw const FILE_CALLS, call) {
        call | ((task.mode_of_file() + 1) << CALL_BITS) as i32
    } else {
        call
    }
}

/// Returns whether the task is in a system call that may send something: then the soft interrupt delivers it, most likely. A task
/// that was interrupted in user space is in no system call.
#[inline(always)]
fn sends(task: Task) -> bool {
    has(&raw const SENDING_CALLS, task.system_call())
}

#[inline(always)]
fn has(calls: *const [u64; 8], call: i32) -> bool {
    let call = call as u32;
    // SAFETY: our own static. The index is within its bounds.
    let word = unsafe { read_volatile(calls.cast::<u64>().add((call / 64 % 8) as usize)) };
    call < 512 && word >> (call % 64) & 1 != 0
}
