//! Compares random schedules of a simulated host with a simple reference, which stores everything and splits each wait when it
//! ends.

extern crate std;

pub(crate) mod host;
mod kernel;
mod reference;

use std::{boxed::Box, env, println};

use self::{
    host::{Facts, Maps, Simulated},
    kernel::{Events, Flavour, Kernel},
};
use super::*;
use crate::history::{KERNEL, Taken};

/// Number of schedules in each run. `CGSCOPE_SCHEDULES` sets another number.
const SCHEDULES: u64 = 10_000;

fn schedules() -> u64 {
    env::var("CGSCOPE_SCHEDULES").map_or(SCHEDULES, |count| count.parse().expect("a number"))
}

/// For each task, compares every figure with the reference: the waits, their parts by cause, the culprits, and unfinished waits.
#[test]
fn the_ledger_equals_the_reference_on_random_schedules() {
    let (mut waits, mut events) = (0, Events::default());
    for seed in 0..schedules() {
        let flavour = if seed % 2 == 0 { Flavour::ThrottlesTasks } else { Flavour::ThrottlesQueues };
        let mut kernel = Kernel::new(seed, flavour);
        if seed % 3 == 0 {
            kernel.maps.crowd();
        }
        kernel.run(250);
        waits += kernel.check();
        events.add(kernel.events());
    }
    println!("{waits} waits, {events:?}");
    assert!(events.all_occurred(), "{events:?}");
    assert!(waits > 20 * schedules(), "the schedules are not empty: {waits} waits");
}

/// For each cgroup, including the root, the ledger's union of waits equals a directly computed union, within the uncertainty that
/// the ledger reports.
#[test]
fn the_pressure_equals_the_reference_on_random_schedules() {
    for flavour in [Flavour::ThrottlesTasks, Flavour::ThrottlesQueues] {
        let (mut sum_ns, mut uncertain_ns) = (0, 0);
        for seed in 0..schedules() / 2 {
            let mut kernel = Kernel::new(seed, flavour);
            kernel.run(250);
            let sums = kernel.check_pressure();
            (sum_ns, uncertain_ns) = (sum_ns + sums.0, uncertain_ns + sums.1);
        }
        println!("{flavour:?}: {uncertain_ns} of {sum_ns} ns uncertain");
        assert!(uncertain_ns < sum_ns / 20, "{flavour:?}: {uncertain_ns} of {sum_ns} ns");
    }
}

/// If the hook misses moves, some time becomes unattributed, but no other cause gets more time than in the reference.
#[test]
fn moves_that_the_hook_misses_make_time_unattributed() {
    let (mut missed_ns, mut events) = (0, Events::default());
    for seed in 0..schedules() / 10 {
        let mut kernel = Kernel::new(seed, Flavour::ThrottlesTasks);
        kernel.misses_moves = true;
        kernel.run(250);
        missed_ns += kernel.check_missed();
        events.add(kernel.events());
    }
    println!("{events:?}");
    assert!(events.moved_first_waits > 0 && events.behind_removed > 0, "{events:?}");
    assert!(missed_ns > 0, "moves were missed");
}

/// If a wait began within a block, only the time in that block is inexact, because a block does not store the order of its
/// slices.
#[test]
fn long_waits_equal_the_reference_up_to_the_block_in_which_they_began() {
    let (mut waited_ns, mut uncertain_ns, mut events) = (0, 0, Events::default());
    for seed in 0..schedules() / 200 {
        let flavour = if seed % 2 == 0 { Flavour::ThrottlesTasks } else { Flavour::ThrottlesQueues };
        let mut kernel = Kernel::new(seed, flavour);
        kernel.starves_one = 4_000;
        kernel.run(50_000);
        let sums = kernel.check_long();
        (waited_ns, uncertain_ns) = (waited_ns + sums.0, uncertain_ns + sums.1);
        events.add(kernel.events());
    }
    println!("{uncertain_ns} of {waited_ns} ns uncertain, {events:?}");
    assert!(events.all_occurred(), "{events:?}");
    assert!(uncertain_ns > 0, "waits reached back to blocks");
    assert!(uncertain_ns < waited_ns / 20, "{uncertain_ns} of {waited_ns} ns");
}

/// If the hook saw the switch or the move with which a segment began, the sums of its CPU explain the part that is older than the
/// history.
#[test]
fn segments_longer_than_the_history_equal_the_reference_if_the_hook_saw_them_begin() {
    let (mut beyond, mut events) = (0, Events::default());
    for seed in 0..schedules() / 400 {
        let flavour = if seed % 2 == 0 { Flavour::ThrottlesTasks } else { Flavour::ThrottlesQueues };
        let mut kernel = Kernel::new(seed, flavour);
        kernel.starve_plainly(8_000);
        kernel.run(600_000);
        kernel.check_long();
        beyond += kernel.segments_beyond_history();
        events.add(kernel.events());
    }
    println!("{beyond} segments, {events:?}");
    assert!(events.all_occurred(), "{events:?}");
    assert!(beyond > 0, "segments are longer than the history");
}

/// If a BPF scheduler runs the tasks, the kernel does not count the run time of their groups. Then the part of a segment that is
/// older than the history is unattributed, and no cgroup is charged for it.
#[test]
fn segments_longer_than_the_history_are_unattributed_under_a_bpf_scheduler() {
    let mut beyond = 0;
    for seed in 0..4 {
        let mut kernel = Kernel::new(seed, Flavour::ThrottlesTasks);
        kernel.starve_plainly(8_000);
        kernel.has_bpf_scheduler = true;
        kernel.run(600_000);
        kernel.check_unattributed();
        beyond += kernel.segments_beyond_history();
    }
    assert!(beyond > 0, "segments are longer than the history");
}

/// Returns the causes of a wait of 64 us on CPU 0. `run` creates the history of that CPU.
fn waited_64_us(run: impl FnOnce(&mut Ring)) -> ByCause {
    let _maps = Maps::new(true);
    let ring = Simulated::ring(0).expect("a CPU");
    run(ring);
    // SAFETY: the type contains only integers. The kernel's map is also filled with zeroes at first.
    let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
    storage.cgroup_id = 3;
    let task = Facts::waiting_in(3, 1_000, 65_000);
    arrive::<Simulated>(task, &mut storage, 0, 65_000, ring);
    storage.by_cause
}

/// The hook ignores shorter time without a task, which makes most waits cheap to split.
#[test]
fn time_without_a_task_counts_for_itself_from_a_64th_of_a_slice_on() {
    let behind = |kernel_ns: u64, irq_ns: u64| {
        waited_64_us(|ring| {
            ring.push(7, 1_000);
            if kernel_ns != 0 {
                ring.push(KERNEL, 10_000);
                assert!(ring.fold(7, 10_000 + kernel_ns));
            }
            ring.take(Taken { irq_ns, stolen_ns: 0 });
        })
    };
    let expected = |kernel_ns, irq_ns| {
        let mut parts = ByCause::default();
        (parts[Cause::Kernel as usize], parts[Cause::Irq as usize]) = (kernel_ns, irq_ns);
        parts[Cause::OtherCgroup as usize] = 64_000 - kernel_ns - irq_ns;
        parts
    };
    assert_eq!(behind(0, 1_000), expected(0, 0));
    assert_eq!(behind(0, 1_001), expected(0, 1_001));
    assert_eq!(behind(600, 400), expected(0, 0));
    assert_eq!(behind(600, 401), expected(600, 401));
}

#[test]
fn a_wait_on_a_cpu_without_a_history_has_no_known_cause() {
    let mut parts = ByCause::default();
    parts[Cause::Unattributed as usize] = 64_000;
    assert_eq!(waited_64_us(|_| {}), parts);
}

#[test]
fn a_wait_that_begins_now_has_the_cause_of_who_runs() {
    let _maps = Maps::new(true);
    let ring = Simulated::ring(0).expect("a CPU");
    // SAFETY: as above.
    let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
    storage.cgroup_id = 3;
    for (who, is_real_time, expected) in [
        (7, false, Cause::OtherCgroup),
        (3, false, Cause::OwnCgroup),
        (IDLE, false, Cause::Wakeup),
        (IDLE, true, Cause::Unattributed),
    ] {
        ring.push(who, 400);
        let mut parts = ByCause::default();
        let task = |clock_ns| Facts { is_real_time, ..Facts::waiting_in(3, 500, clock_ns) };
        assert_eq!(pending::<Simulated>(task(500), &storage, &mut parts), expected);
        assert_eq!(parts, ByCause::default());
        pending::<Simulated>(task(501), &storage, &mut parts);
        assert_eq!(parts.iter().sum::<u64>(), 1);
    }
}

/// The clock of an idle CPU stands still.
#[test]
fn a_throttled_task_that_left_an_idle_cpu_is_throttled_however_long_its_clock_stands_still() {
    let _maps = Maps::new(true);
    Simulated::ring(0).expect("a CPU").push(IDLE, 500);
    // SAFETY: as above.
    let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
    storage.cgroup_id = 3;
    let mut parts = ByCause::default();
    let waiting = |clock_ns| Facts { is_throttled: true, ..Facts::waiting_in(3, 500, clock_ns) };
    for clock_ns in [500, 501] {
        assert_eq!(pending::<Simulated>(waiting(clock_ns), &storage, &mut parts), Cause::Throttled);
    }
    let elsewhere = Facts { is_throttled: true, ..Facts::waiting_in(3, 0, 500) };
    assert_eq!(
        pending::<Simulated>(elsewhere, &storage, &mut parts),
        Cause::Unattributed,
        "it does not wait"
    );
}

/// No CPU needs 1 ms to wake up. If the hook saw a deadline task leave its CPU, it is known that the task had runtime left. For
/// other real-time tasks, it is unknown whether they had runtime left.
#[test]
fn a_longer_idle_time_than_any_wakeup_is_doubted_for_real_time_tasks() {
    let waited = |is_deadline, is_seen, ns| {
        let _maps = Maps::new(true);
        Simulated::ring(0).expect("a CPU").push(IDLE, 1_000);
        let task = Facts { is_real_time: true, is_deadline, ..Facts::waiting_in(3, 1_000, 1_000 + ns) };
        let start = Start { is_seen, ..Start::default() };
        let work = Simulated::work(Work::HOOK).expect("working memory");
        work.begin(3, Work::NOBODY, 1_000 + ns);
        work.span(0, 1_000, 1_000 + ns);
        split::<Simulated>(task, &start, work, Work::HOOK);
        let lost = Maps::losses().get(Loss::OutOfRuntime.name()).copied();
        (work.walk.parts[Cause::Wakeup as usize], work.walk.parts[Cause::Unattributed as usize], lost)
    };
    for (is_deadline, is_seen, is_doubted) in
        [(false, 1, true), (false, 0, true), (true, 0, true), (true, 1, false)]
    {
        let longest = LONGEST_WAKEUP_NS;
        assert_eq!(waited(is_deadline, is_seen, longest), (longest, 0, None));
        let expected = if is_doubted { (0, longest + 1, Some(1)) } else { (longest + 1, 0, None) };
        assert_eq!(waited(is_deadline, is_seen, longest + 1), expected, "{is_deadline} {is_seen}");
    }
}

/// No program sees the move of the task: it was throttled in cgroup 3, and now continues in cgroup 4, which has no quota.
#[test]
fn a_task_that_left_a_throttled_group_unseen_was_throttled_until_then() {
    let waited = |group, left_ns| {
        let maps = Maps::new(true);
        let ring = Simulated::ring(0).expect("a CPU");
        ring.push(IDLE, 900);
        // SAFETY: as above.
        let mut storage = unsafe { Box::<TaskStorage>::new_zeroed().assume_init() };
        storage.cgroup_id = 3;
        let before = Facts { is_throttled: true, ..Facts::waiting_in(3, 0, 1_000) };
        segment::leave::<Simulated>(before, &mut storage, ring, 0, 1_000);
        storage.start.left_ns = left_ns;
        ring.push(7, 5_000);
        let now = Facts { left_queue: (group, 0, 1_000), ..Facts::waiting_in(4, 1_000, 9_000) };
        arrive::<Simulated>(now, &mut storage, 0, 9_000, ring);
        drop(maps);
        let of = |cause: Cause| storage.by_cause[cause as usize];
        (of(Cause::Throttled), of(Cause::OtherCgroup), of(Cause::Wakeup))
    };
    assert_eq!(waited(3, 0), (8_000, 0, 0), "it ran as soon as it moved");
    assert_eq!(waited(3, 6_000), (5_000, 3_000, 0), "it waited there, too");
    assert_eq!(waited(3, 1_000), (8_000, 0, 0), "it left another group before this wait");
    assert_eq!(waited(5, 0), (0, 4_000, 4_000), "the memory of the queue has another owner");
}

/// After a move to another group, `last_queued` is older than the move. The wait in the former group has already ended.
#[test]
fn a_wait_goes_on_since_its_stamp_or_since_the_task_left_its_group() {
    let since_ns = |last_queued_ns, expected_run_delay_ns| {
        let waits = Waits { expected_run_delay_ns, ..Waits::default() };
        waits_since_ns(Facts::waiting(100, last_queued_ns), &waits)
    };
    assert_eq!(since_ns(500, 100), 500);
    assert_eq!(since_ns(500, 140), 540, "40 ns are counted, which the kernel has yet to add");
    assert_eq!(since_ns(500, 60), 500, "40 ns on another CPU");
    assert_eq!(since_ns(0, 140), 0, "it does not wait");
}
