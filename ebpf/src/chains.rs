//! For whom tasks sleep: who woke each task, and what the waker did during the sleep. Optional. [`cgscope_ledger::chains`] has the
//! arithmetic.
//!
//! The program at a wakeup notes the waker, in the waker's context. The hook keeps the past of tasks, and counts a sleep when the
//! task runs again: only then is its exact length known, and whether it slept at all. (`sched_waking` is also called for tasks that
//! still run.)

use core::ptr::{self, read_volatile};

use aya_ebpf::{
    bindings::{BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST},
    btf_maps::{Array, HashMap},
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};
use cgscope_ledger::{
    Cause, Loss,
    chains::{CALL_BITS, Chain, Did, PAIRS, PairKey, PairSums, Pending, Sleep, Waker},
    host::Task as _,
    task_state::NEW,
    verifier::{add_atomic, exchange, get, set},
    wire::{FOLLOWED, TaskStorage},
};

use crate::{
    accounts, history,
    kernel::{Context, Task, argument, context, is_shared, keeps_chains, mode_of_file},
    maps::{lost, lost_times, ring},
    slots::storage,
    task_storage::TaskStorageMap,
};

#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static CHAINS: TaskStorageMap<Chain> = TaskStorageMap::NEW;

/// All pairs of a sleeper and what woke it. Preallocated, because the hook fills it.
#[btf_map]
static CHAIN_PAIRS: HashMap<PairKey, PairSums, PAIRS, 0> = HashMap::new();

/// The initial value of a pair. No program writes this value.
#[btf_map]
static NO_SUMS: Array<PairSums, 1> = Array::new();

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
    let clock_ns = accounts::now_ns(task);
    chain.past.begin(clock_ns, storage.by_cause.iter().sum(), &storage.by_cause);
    let state = task.state();
    if state != 0 && state & NEW == 0 && !task.is_active() {
        set(&mut chain.sleep.from_ns, clock_ns);
    }
}

/// Begins the sleep of `prev`.
#[inline(always)]
pub fn slept(prev: Task, clock_ns: u64) {
    if keeps_chains()
        && let Some(chain) = chain(prev)
    {
        (chain.sleep.waker, chain.sleep.woken_ns) = (0, 0);
        set(&mut chain.sleep.from_ns, clock_ns);
    }
}

/// Ends the pause of `next`, whose wait was just counted. `is_late`: the hook did not see it switch in at that time.
#[inline(always)]
pub fn arrived(next: Task, storage: &mut TaskStorage, clock_ns: u64, is_late: bool) {
    if keeps_chains() {
        end_pause(next, storage, clock_ns, is_late.into());
    }
}

/// This function is not inlined, so that the verifier follows the rest of the hook only once.
#[inline(never)]
fn end_pause(next: Task, storage: &mut TaskStorage, clock_ns: u64, is_late: u64) {
    let Some(chain) = chain(next) else { return };
    let from_ns = get(&mut chain.sleep.from_ns);
    let waited_ns = storage.by_cause.iter().sum();
    let woken_ns = chain.past.add(from_ns, clock_ns, waited_ns, &storage.by_cause);
    if from_ns == 0 {
        return;
    }
    set(&mut chain.sleep.from_ns, 0);
    if !next.is_kernel_thread() {
        // The kernel may count a part of the sleep as waiting, see `Loss::MovedAsleep`. Then the time at the wakeup is closer.
        let noted_ns = get(&mut chain.sleep.woken_ns);
        let is_closer = noted_ns > woken_ns && noted_ns <= clock_ns;
        let slept_ns = if is_closer { noted_ns } else { woken_ns } - from_ns;
        count(next, storage, chain, slept_ns, is_late);
    }
}

/// Counts a sleep of `next` for its pair.
#[inline(always)]
fn count(next: Task, storage: &mut TaskStorage, chain: &mut Chain, slept_ns: u64, is_late: u64) {
    let sleep = &mut chain.sleep;
    let mut key = PairKey { sleeper: storage.cgroup_id, waker: Waker::Unknown as u32, ..PairKey::default() };
    let waker = get(&mut sleep.waker);
    if waker != 0 {
        key.waker = waker as u32 - 1;
        key.waker_cgroup = sleep.cgroup_id;
        key.waker_tid = sleep.tid as u32;
    }
    if is_shared() && get(&mut storage.flags) & FOLLOWED != 0 {
        key.sleeper_tid = next.tid();
    } else {
        key.waker_tid = 0;
    }
    // A late task may be in another system call by now.
    let call = if is_late != 0 { NO_CALL } else { call_of(next) };
    if key.waker != Waker::Task as u32 || get(&mut sleep.ran) != 0 {
        let pending = &mut chain.pending;
        if exchange(&mut pending.lock, 1) == 0 {
            key.call = pending.key.call;
            if pending.call != call || pending.key != key {
                flush(pending);
                key.call = with_file(next, call);
                (pending.key, pending.call, pending.comm) = (key, call, sleep.comm);
            }
            pending.count += 1;
            pending.slept_ns += slept_ns;
            set(&mut pending.lock, 0);
            return;
        }
    }
    key.call = with_file(next, call);
    let Some(sums) = pair(&key, sleep.comm) else { return lost(Loss::ChainForgotten) };
    add_atomic(&mut sums.count, 1);
    add_atomic(&mut sums.slept_ns, slept_ns);
    if key.waker == Waker::Task as u32 {
        add_did(sleep, sums, slept_ns);
    }
}

/// Returns the entry of a pair. It is created if necessary.
#[inline(always)]
fn pair(key: &PairKey, comm: [u64; 2]) -> Option<&'static mut PairSums> {
    // SAFETY: the entry is a map value. All its counters are added to atomically.
    let find = || CHAIN_PAIRS.get_ptr_mut(key).map(|sums| unsafe { &mut *sums });
    if let Some(sums) = find() {
        return Some(sums);
    }
    // The value is passed by reference, because a copy would not fit on the stack. This fails if another CPU has just added it.
    let _ = CHAIN_PAIRS.insert(key, NO_SUMS.get(0)?, BPF_NOEXIST.into());
    let sums = find()?;
    sums.comm = comm;
    Some(sums)
}

/// Adds pending sleeps to the table of pairs. The caller holds the lock.
#[inline(never)]
fn flush(pending: &mut Pending) -> i32 {
    if pending.count == 0 {
        return 0;
    }
    match pair(&pending.key, pending.comm) {
        Some(sums) => {
            add_atomic(&mut sums.count, pending.count);
            add_atomic(&mut sums.slept_ns, pending.slept_ns);
        }
        None => lost_times(Loss::ChainForgotten, pending.count),
    }
    (pending.count, pending.slept_ns) = (0, 0);
    0
}

/// Adds the pending sleeps of a task to the table of pairs. If the hook adds one at this moment, the next reading does it.
#[inline(always)]
pub fn flush_of(task: Task) {
    if keeps_chains()
        && let Some(chain) = chain(task)
        && exchange(&mut chain.pending.lock, 1) == 0
    {
        flush(&mut chain.pending);
        set(&mut chain.pending.lock, 0);
    }
}

/// Adds what the waker did, except that it ran, which is the rest of the sleep.
#[inline(always)]
fn add_did(sleep: &mut Sleep, sums: &mut PairSums, slept_ns: u64) {
    if get(&mut sleep.ran) != 0 {
        return;
    }
    let did = &mut sleep.did;
    did.complete(slept_ns);
    add(&mut sums.did.sums.slept_ns, did.sums.slept_ns);
    add(&mut sums.did.unknown_ns, did.unknown_ns);
    add(&mut sums.did.estimated_ns, did.estimated_ns);
    for (sum, ns) in sums.did.sums.by_cause.iter_mut().zip(did.sums.by_cause) {
        add(sum, ns);
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
    let task = Task::new(argument(&ctx, 0));
    let Some(chain) = chain(task) else { return 0 };
    let sleep = &mut chain.sleep;
    let from_ns = get(&mut sleep.from_ns);
    // The task runs, or another waker was first.
    if from_ns == 0 || get(&mut sleep.waker) != 0 {
        return 0;
    }
    let waker = waker_of(task);
    (sleep.tid, sleep.cgroup_id) = (0, 0);
    if waker == Waker::Task {
        note(from_ns, sleep);
    }
    // A sleeping task does not wait, see `Loss::MovedAsleep`.
    sleep.woken_ns = if task.last_queued_ns() == 0 { 0 } else { accounts::now_ns(task) };
    set(&mut sleep.waker, waker as u64 + 1);
    0
}

/// Notes the current task as the waker, and what it did during the sleep.
#[inline(always)]
fn note(from_ns: u64, sleep: &mut Sleep) {
    let current = Task::current();
    (sleep.tid, sleep.cgroup_id, sleep.comm) =
        (current.tid().into(), history::who(current), current.comm_words());
    let mut own = chain(current);
    let is_unseen = current
        .run_queue()
        .and_then(|queue| ring(queue.cpu()))
        .is_some_and(|ring| get(&mut ring.tid) != current.tid());
    let runs = !is_unseen && own.as_mut().is_some_and(|own| own.past.runs_since(from_ns));
    sleep.ran = runs.into();
    if !runs {
        sleep.did = Did::UNKNOWN;
        if let Some(own) = own {
            own.past.since(from_ns, &mut sleep.did);
            if is_unseen {
                add_unseen(current, own, &mut sleep.did);
            }
        }
    }
}

/// Adds the latest pause of a waker that the hook did not see switch in: its wait was not split, and from which time on it ran after
/// a sleep is unknown.
#[inline(never)]
fn add_unseen(current: Task, own: &mut Chain, did: &mut Did) -> i32 {
    let slept_from_ns = get(&mut own.sleep.from_ns);
    if slept_from_ns != 0 {
        did.unknown_ns += current.clock_ns().saturating_sub(slept_from_ns);
    } else if let Some(storage) = storage(current) {
        let waited_ns = current.run_delay_ns().wrapping_sub(storage.waits.expected_run_delay_ns);
        // Negative if the kernel has not added a wait yet that the ledger has counted.
        if (waited_ns as i64) > 0 {
            did.sums.by_cause[Cause::Unattributed as usize] += waited_ns;
        }
    }
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

/// The task is in no system call.
const NO_CALL: u64 = u32::MAX as u64;

/// Returns the system call of the task, in the form of [`Pending::call`].
#[inline(always)]
fn call_of(task: Task) -> u64 {
    if !task.has_user_space() {
        return NO_CALL;
    }
    let registers = task.registers();
    let call = registers.system_call() as u32;
    let descriptor = if has(&raw const FILE_CALLS, call) { registers.first_argument() << 32 } else { 0 };
    u64::from(call) | descriptor
}

/// Returns what the task waits for, see [`PairKey::call`].
#[inline(always)]
fn with_file(task: Task, call: u64) -> i32 {
    if !has(&raw const FILE_CALLS, call as u32) {
        return call as i32;
    }
    let mode = mode_of_file(task.file_at(call >> 32));
    (call as u32 | (mode + 1) << CALL_BITS) as i32
}

/// Returns whether the task is in a system call that may send something: then the soft interrupt delivers it, most likely. A task
/// that was interrupted in user space is in no system call.
#[inline(always)]
fn sends(task: Task) -> bool {
    has(&raw const SENDING_CALLS, task.system_call() as u32)
}

#[inline(always)]
fn has(calls: *const [u64; 8], call: u32) -> bool {
    // SAFETY: our own static. The index is within its bounds.
    let word = unsafe { read_volatile(calls.cast::<u64>().add((call / 64 % 8) as usize)) };
    call < 512 && word >> (call % 64) & 1 != 0
}
