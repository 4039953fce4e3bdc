//! Who ran on each CPU lately: the other side of every wait.

use cgscope_layout::ledger::{BLOCK, BLOCKS, Block, FOLD_NS, IDLE, KERNEL, PARTIES, Ring, SLICES, Slice};

use crate::kernel::{RunQueue, Task, blame_tasks};

const MASK: u64 = SLICES as u64 - 1;

/// The place of a slice by its number. The mask shows the verifier that there is one.
#[inline(always)]
pub fn slice(ring: &mut Ring, number: u64) -> &mut Slice {
    // SAFETY: the mask keeps it within the array.
    unsafe { ring.slices.as_mut_ptr().add((number & MASK) as usize).as_mut_unchecked() }
}

/// The block that a slice is in.
#[inline(always)]
pub fn block(ring: &mut Ring, number: u64) -> &mut Block {
    let place = (number / BLOCK as u64) as usize & (BLOCKS - 1);
    // SAFETY: the mask keeps it within the array.
    unsafe { ring.blocks.as_mut_ptr().add(place).as_mut_unchecked() }
}

/// A slice is over: its time goes into its block.
#[inline(never)]
fn sum_up(ring: &mut Ring, number: u64, ran_ns: u64) {
    let &mut Slice { who, kernel_ns, .. } = slice(ring, number);
    let block = block(ring, number);
    block.kernel_ns += kernel_ns;
    for party in 0..PARTIES {
        if block.ns[party] == 0 {
            block.who[party] = who;
        }
        if block.who[party] == who {
            block.ns[party] += ran_ns.saturating_sub(kernel_ns);
            return;
        }
    }
}

/// The first slice of a block begins.
#[inline(never)]
fn begin_block(ring: &mut Ring, number: u64, clock_ns: u64) {
    let block = block(ring, number);
    block.kernel_ns = 0;
    block.ns = [0; PARTIES];
    block.since_ns = clock_ns;
}

/// Who `task` is to those who wait behind it.
#[inline(always)]
pub fn who(task: Task) -> u64 {
    if task.tid() == 0 {
        IDLE
    } else if task.is_kernel_thread() {
        KERNEL
    } else {
        task.cgroup_id()
    }
}

/// Before a wait is looked at: the latest slice gets its interrupts, and a switch that the hook did not see (a hardened
/// kernel runs no tracing program while a process that it hides is on the CPU) is made up for.
#[inline(always)]
pub fn settle(ring: &mut Ring, prev: Task, queue: RunQueue) {
    let irq_ns = queue.irq_ns();
    if irq_ns != ring.irq_seen_ns {
        let latest = ring.head;
        slice(ring, latest).kernel_ns += irq_ns - ring.irq_seen_ns;
        ring.irq_seen_ns = irq_ns;
    }
    if prev.tid() != ring.tid {
        unseen(ring, prev, queue);
    }
}

/// `prev` came on the CPU unseen. The first switch of each CPU after the start looks the same.
#[inline(never)]
fn unseen(ring: &mut Ring, prev: Task, queue: RunQueue) {
    let since_ns = if prev.tid() == 0 { queue.idle_since_ns() } else { prev.last_arrival_ns() };
    let latest = ring.head;
    if since_ns > slice(ring, latest).since_ns && since_ns <= queue.clock_ns() {
        begin(ring, prev, who(prev), since_ns);
    }
}

/// A short run of a kernel thread becomes a part of the slice that it interrupted, if that goes on.
#[inline(always)]
fn fold(ring: &mut Ring, number: u64, who: u64, clock_ns: u64) -> bool {
    let ran_ns = clock_ns - slice(ring, number).since_ns;
    let before = slice(ring, number.wrapping_sub(1));
    let goes_on = before.who == who && before.since_ns != 0 && ran_ns < FOLD_NS;
    if goes_on {
        before.kernel_ns += ran_ns;
        ring.kernel_ns += ran_ns;
        ring.head = number.wrapping_sub(1);
    }
    goes_on
}

/// `next` has the CPU from now on; `who` is what [`who`] says of it.
#[inline(always)]
pub fn begin(ring: &mut Ring, next: Task, who: u64, clock_ns: u64) {
    let tid = next.tid();
    let changes = blame_tasks() && ring.tid != tid;
    ring.tid = tid;
    let number = ring.head;
    let latest = slice(ring, number);
    if latest.who == who && !changes && latest.since_ns != 0 {
        return;
    }
    let (latest_who, latest_since_ns) = (latest.who, latest.since_ns);
    if latest_who == KERNEL && !blame_tasks() && fold(ring, number, who, clock_ns) {
        return;
    }
    let ran_ns = clock_ns.saturating_sub(latest_since_ns);
    match latest_who {
        KERNEL => ring.kernel_ns += ran_ns,
        IDLE if latest_since_ns != 0 => ring.idle_ns += ran_ns,
        _ => {}
    }
    if latest_since_ns != 0 {
        sum_up(ring, number, ran_ns);
    }
    let number = number + 1;
    if number.is_multiple_of(BLOCK as u64) {
        begin_block(ring, number, clock_ns);
    }
    let new = slice(ring, number);
    new.since_ns = clock_ns;
    new.who = who;
    new.kernel_ns = 0;
    if blame_tasks() {
        new.tid = tid;
        new.comm = next.comm();
    }
    // Last: whoever reads along from another CPU then finds a whole slice.
    ring.head = number;
}
