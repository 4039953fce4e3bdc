extern crate std;

use std::{boxed::Box, vec::Vec};

use proptest::prelude::*;

use super::*;

pub(crate) fn empty() -> Box<Ring> {
    // SAFETY: the type contains only integers. The kernel's map is also filled with zeroes at first.
    unsafe { Box::<Ring>::new_zeroed().assume_init() }
}

/// Who ran on the CPU, and for how long, ns.
pub(crate) type Run = (u64, u64);

/// The time at which schedules begin, ns. The time must not be 0, because 0 means that no time is set.
pub(crate) const BEGIN_NS: u64 = 1_000;

/// Runs each of `runs` on the CPU in turn. Returns the time when the last run ends.
pub(crate) fn run(ring: &mut Ring, runs: &[Run]) -> u64 {
    let runs: Vec<_> = runs.iter().map(|run| (*run, Taken::default())).collect();
    run_interrupted(ring, &runs)
}

/// Does the same as [`run`], but interrupts and the hypervisor take a part of each run.
pub(crate) fn run_interrupted(ring: &mut Ring, runs: &[(Run, Taken)]) -> u64 {
    let (mut clock_ns, mut sums) = (BEGIN_NS, Taken::default());
    for ((who, ns), taken) in runs {
        if !ring.latest_is(*who) && !ring.fold(*who, clock_ns) {
            ring.push(*who, clock_ns);
        }
        clock_ns += ns;
        sums.add(*taken);
        ring.take(sums);
    }
    clock_ns
}

/// Generates runs. Interrupts and the hypervisor take a random part of each run.
pub(crate) fn interrupted(parties: u64, most: usize) -> impl Strategy<Value = Vec<(Run, Taken)>> {
    let parts = prop::collection::vec((0u64..5, 0u64..5), most);
    (schedules(parties, most), parts).prop_map(|(runs, parts)| {
        let taken = |ns, (irq, stolen)| Taken { irq_ns: ns * irq / 8, stolen_ns: ns * stolen / 8 };
        runs.into_iter().zip(parts).map(|(run, parts)| (run, taken(run.1, parts))).collect()
    })
}

/// Generates runs of cgroups, short and long runs of the kernel, and idle times.
pub(crate) fn schedules(parties: u64, most: usize) -> impl Strategy<Value = Vec<Run>> {
    let run = prop_oneof![
        6 => (1..=parties, 1u64..5_000_000),
        3 => (Just(KERNEL), 1u64..2 * FOLD_NS),
        1 => (Just(IDLE), 1u64..1_000_000),
    ];
    prop::collection::vec(run, 0..most)
}

fn summed(ring: &Ring, who: u64) -> u64 {
    let places =
        |block: &Block| (0..PARTIES).filter(|at| block.who[*at] == who).map(|at| block.ns[at]).sum::<u64>();
    ring.blocks.iter().map(places).sum()
}

/// Returns how long `who` ran before `until_ns`, computed directly from the runs.
fn ran(runs: &[Run], who: u64, until_ns: u64) -> u64 {
    let mut clock_ns = BEGIN_NS;
    let mut sum = 0;
    for (came, ns) in runs {
        let end_ns = clock_ns + ns;
        if *came == who {
            sum += end_ns.min(until_ns).saturating_sub(clock_ns);
        }
        clock_ns = end_ns;
    }
    sum
}

#[test]
fn a_slice_that_kernel_threads_interrupt_is_in_its_block_once() {
    let (a, b) = (1, 2);
    let mut runs = Vec::new();
    for _ in 0..32 {
        // Each run of a cgroup lasts 4 ms. A kernel thread interrupts `a` every 400 us for 40 us.
        runs.extend([(a, 360_000), (KERNEL, 40_000)].repeat(10));
        runs.push((b, 4_000_000));
    }
    // Add enough runs to move all runs above into blocks.
    runs.extend([(a, 1), (b, 1)].repeat(64));
    let mut ring = empty();
    run(&mut ring, &runs);
    let until_ns = ring.slice(ring.summed).since_ns;
    assert_eq!(summed(&ring, a), ran(&runs, a, until_ns));
    assert_eq!(summed(&ring, b), ran(&runs, b, until_ns));
    // After the last kernel thread of a run, the other cgroup runs, so this kernel thread has its own slice.
    assert_eq!(summed(&ring, KERNEL), 32 * 40_000);
    assert_eq!(ring.blocks.iter().map(|block| block.kernel_ns).sum::<u64>(), 32 * 9 * 40_000);
}

proptest! {
    /// If no block has more parties than entries, the blocks contain the exact run times of all slices that cannot change any
    /// more.
    #[test]
    fn blocks_are_what_a_plain_sum_over_the_schedule_is(runs in schedules(6, 3_000)) {
        let mut ring = empty();
        run(&mut ring, &runs);
        let first = ring.slice(ring.summed).since_ns;
        prop_assert!(ring.summed + 1 >= ring.head, "all but the last two slices");
        for who in (1..=6).chain([IDLE]) {
            prop_assert_eq!(summed(&ring, who), ran(&runs, who, first), "{}", who);
        }
        let folded: u64 = ring.blocks.iter().map(|block| block.kernel_ns).sum();
        prop_assert_eq!(summed(&ring, KERNEL) + folded, ran(&runs, KERNEL, first));
    }

    /// The times in a block never exceed the length of the block, no matter how many parties take turns.
    #[test]
    fn no_block_has_more_than_its_time(runs in schedules(20, 3_000)) {
        let mut ring = empty();
        let end_ns = run(&mut ring, &runs);
        let blocks = ring.head / BLOCK as u64;
        for number in 0..=blocks {
            let block = ring.blocks[number as usize];
            let until_ns = if number == blocks { end_ns } else { ring.blocks[number as usize + 1].since_ns };
            let in_it = block.ns.iter().sum::<u64>() + block.kernel_ns;
            // The first block begins with the first slice, which has number 1.
            let since_ns = if number == 0 { BEGIN_NS } else { block.since_ns };
            prop_assert!(in_it <= until_ns - since_ns, "block {}: {} of {}", number, in_it, until_ns - since_ns);
        }
    }

    /// Interrupt time and stolen time are in the block's sums, and not in the time of the party that ran.
    #[test]
    fn blocks_and_sums_keep_time_apart_in_which_no_task_ran(runs in interrupted(4, 2_000)) {
        let mut ring = empty();
        run_interrupted(&mut ring, &runs);
        let until_ns = ring.slice(ring.summed).since_ns;
        let (mut clock_ns, mut taken, mut of_parties, mut of_kernel) = (BEGIN_NS, Taken::default(), 0, 0);
        for ((who, ns), more) in &runs {
            if clock_ns >= until_ns {
                break;
            }
            clock_ns += ns;
            taken.add(*more);
            *(if *who == KERNEL { &mut of_kernel } else { &mut of_parties }) += ns - more.ns();
        }
        let sum = |of: fn(&Block) -> u64| ring.blocks.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|block| block.taken.irq_ns), taken.irq_ns);
        prop_assert_eq!(sum(|block| block.taken.stolen_ns), taken.stolen_ns);
        let parties: u64 = (1..=4).chain([IDLE]).map(|who| summed(&ring, who)).sum();
        prop_assert_eq!(parties, of_parties);
        prop_assert_eq!(summed(&ring, KERNEL) + sum(|block| block.kernel_ns), of_kernel);
        let all = runs.iter().fold(Taken::default(), |mut all, (_, more)| { all.add(*more); all });
        prop_assert_eq!(ring.taken, all);
    }

    #[test]
    fn the_sums_of_the_kernel_and_of_nobody_are_those_of_the_schedule(runs in schedules(3, 500)) {
        let mut ring = empty();
        run(&mut ring, &runs);
        // The sums include merged kernel threads and the idle time before these threads, but not the unfinished slice.
        prop_assert_eq!(ring.idle_ns, ran(&runs, IDLE, ring.counted_ns));
        prop_assert_eq!(ring.kernel_ns, ran(&runs, KERNEL, ring.counted_ns));
    }
}

/// If the smaller sum were subtracted, the difference would be about 2^64, and the whole slice would count as stolen.
#[test]
fn sums_of_stolen_time_that_begin_again_count_nothing() {
    let mut ring = empty();
    ring.push(2, BEGIN_NS);
    ring.take(Taken { irq_ns: 70, stolen_ns: 900 });
    ring.take(Taken { irq_ns: 80, stolen_ns: 5 });
    let expected = Taken { irq_ns: 80, stolen_ns: 900 };
    assert_eq!((ring.taken, ring.slice(1).taken), (expected, expected));
    ring.take(Taken { irq_ns: 80, stolen_ns: 25 });
    assert_eq!(ring.taken, Taken { irq_ns: 80, stolen_ns: 920 });
}

#[test]
fn the_sums_of_a_cpu_include_the_unfinished_run_of_a_kernel_thread_and_of_nobody() {
    let mut ring = empty();
    ring.push(KERNEL, 1_000);
    assert_eq!(ring.sums_until(1_700), (700, 0));
    ring.push(IDLE, 2_000);
    assert_eq!(ring.sums_until(2_300), (1_000, 300));
    // If the caller does not know the clock, it must add the time when the task was queued.
    assert_eq!(ring.sums_until(0).1.wrapping_add(2_300), 300);
    ring.push(7, 3_000);
    assert_eq!(ring.sums_until(9_000), (1_000, 1_000));
}

#[test]
fn time_without_a_task_is_at_most_the_length_of_its_slice() {
    let slice = Slice { kernel_ns: 60, taken: Taken { irq_ns: 70, stolen_ns: 80 }, ..Slice::default() };
    for (length_ns, parts) in [(300, (60, 70, 80)), (200, (60, 70, 70)), (100, (60, 40, 0)), (50, (50, 0, 0))]
    {
        let (kernel_ns, taken) = slice.without_a_task(length_ns);
        assert_eq!((kernel_ns, taken.irq_ns, taken.stolen_ns), parts);
    }
}
