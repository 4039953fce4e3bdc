//! Compares the slots for random schedules with sums that are computed directly from all runs and waits.

extern crate std;

use std::{println, vec::Vec};

use super::*;
use crate::{
    waits::{
        WaitHost,
        tests::host::{Facts, Maps, Simulated},
    },
    wire::Waits,
};

const CPUS: u32 = 2;
const TASKS: usize = 4;
const PLACE: u32 = 1;
/// Slots of 1 us.
const SHIFT: u32 = 10;
const LAG_NS: u64 = LONGEST_LAG << SHIFT;

/// Returns a random number below `end` (splitmix64).
fn below(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % end
}

/// One run of a task, and the wait before it.
#[derive(Clone, Copy)]
struct Run {
    ready_ns: u64,
    begin_ns: u64,
    end_ns: u64,
    /// Whether the task slept before the wait.
    is_first: bool,
    /// The part of the wait, from its start, in which the quota was used up, ns.
    limited_ns: u64,
    seen: Seen,
}

/// When the hook sees that a task has switched in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Seen {
    #[default]
    AtOnce,
    /// At the next switch. The kernel has recorded when the task switched in (`last_arrival`).
    Later,
    /// At the next switch. The kernel has not recorded when the task switched in, and does not count the wait.
    Never,
}

#[derive(Default)]
struct Sim {
    quota: Quota,
    position_ns: u64,
    waits: Waits,
    by_cause: ByCause,
    limited_ns: u64,
    run_delay_ns: u64,
    /// Value of `last_queued`: the start of the wait on this CPU; 0 if the task sleeps.
    queued_ns: u64,
    ready_ns: u64,
    on_cpu: Option<u32>,
    seen: Seen,
    begin_ns: u64,
    is_first: bool,
    runs: Vec<Run>,
}

impl Sim {
    /// Switches the task in. For `limited` sixteenths of the wait, the quota was used up.
    fn switch_in(&mut self, cpu: u32, now: u64, limited: u64, seen: Seen) {
        (self.on_cpu, self.begin_ns, self.seen) = (Some(cpu), now, seen);
        self.limited_ns = (now - self.ready_ns) * limited / 16;
        match seen {
            Seen::AtOnce => {
                self.arrive(cpu);
                self.run_delay_ns += now - self.queued_ns;
                self.waits.expected_run_delay_ns = self.run_delay_ns;
            }
            Seen::Later => self.run_delay_ns += now - self.queued_ns,
            // The kernel's sum has the part of the wait before a move, which does not belong to the next wait.
            Seen::Never => self.waits.expected_run_delay_ns = self.run_delay_ns,
        }
        self.queued_ns = 0;
    }

    /// Reports the switch in to the hook, now or at the next switch.
    fn arrive(&mut self, cpu: u32) {
        let facts = Facts::waiting(self.run_delay_ns, self.queued_ns);
        let running = Simulated::running(cpu).expect("a ring");
        let (expected_ns, at_ns) = (self.waits.expected_run_delay_ns, self.begin_ns);
        ends_wait(facts, expected_ns, &self.by_cause, running, at_ns);
        // Like the ledger, add the throttled time.
        self.by_cause[Cause::Throttled as usize] += self.limited_ns;
        let (place, position_ns) = (self.quota.place, &mut self.position_ns);
        arrived::<Simulated>(&self.by_cause, place, position_ns, running, cpu, at_ns);
    }

    fn switch_out(&mut self, now: u64, is_blocked: bool) {
        let Some(cpu) = self.on_cpu.take() else { return };
        match self.seen {
            Seen::AtOnce => {}
            Seen::Later => {
                self.arrive(cpu);
                self.waits.expected_run_delay_ns = self.run_delay_ns;
            }
            Seen::Never => Simulated::ring(cpu).expect("a ring").running.place = UNSEEN,
        }
        let running = Simulated::running(cpu).expect("a ring");
        left::<Simulated>(&mut self.position_ns, running, cpu, now, is_blocked);
        self.runs.push(Run {
            ready_ns: self.ready_ns,
            begin_ns: self.begin_ns,
            end_ns: now,
            is_first: self.is_first,
            limited_ns: self.limited_ns,
            seen: self.seen,
        });
        self.is_first = is_blocked;
        self.queued_ns = if is_blocked { 0 } else { now };
        self.ready_ns = self.queued_ns;
    }

    /// Moves a waiting task to another CPU: the kernel adds the time on the old CPU to its sum, and sets `last_queued` again.
    fn change_cpu(&mut self, now: u64) {
        self.run_delay_ns += now - self.queued_ns;
        self.queued_ns = now;
    }
}

fn run(random: &mut u64, steps: usize, longest_ns: u64) -> Vec<Vec<Run>> {
    let mut tasks: Vec<Sim> = (0..TASKS).map(|_| Sim { is_first: true, ..Sim::default() }).collect();
    tasks.iter_mut().for_each(|task| task.quota.place = PLACE);
    let mut now = 1_000_000;
    for _ in 0..steps {
        now += 1 + below(random, longest_ns);
        let task = &mut tasks[below(random, TASKS as u64) as usize];
        if task.on_cpu.is_some() {
            task.switch_out(now, below(random, 3) == 0);
        } else if task.queued_ns == 0 {
            (task.queued_ns, task.ready_ns) = (now, now);
        } else if below(random, 4) == 0 {
            task.change_cpu(now);
        } else {
            let cpu = below(random, u64::from(CPUS)) as u32;
            let limited = below(random, 17);
            if tasks.iter().all(|other| other.on_cpu != Some(cpu)) {
                let waiting = tasks.iter_mut().filter(|task| task.queued_ns != 0);
                let next = waiting.min_by_key(|task| task.ready_ns).expect("this task");
                let seen = [Seen::Later, Seen::Never].into_iter().nth(below(random, 16) as usize);
                next.switch_in(cpu, now, limited, seen.unwrap_or_default());
            }
        }
    }
    tasks.iter_mut().for_each(|task| task.switch_out(now, true));
    tasks.into_iter().map(|task| task.runs).collect()
}

/// Returns the time spans of each amount, computed from the definition of positions.
fn spans(runs: &[Run]) -> Vec<(Amount, u64, u64)> {
    let (mut spans, mut position_ns) = (Vec::new(), None);
    for run in runs {
        if run.is_first {
            position_ns = None;
        }
        if run.seen == Seen::Never {
            continue;
        }
        let free_ns = run.ready_ns + run.limited_ns;
        spans.extend([(Amount::Throttled, run.ready_ns, free_ns), (Amount::Waited, free_ns, run.begin_ns)]);
        spans.push((Amount::Ran, run.begin_ns, run.end_ns));
        let first_ns = position_ns.unwrap_or(run.ready_ns);
        let latest_ns = first_ns.max(run.begin_ns - LAG_NS);
        spans.push((Amount::Presumed, first_ns, latest_ns));
        let end_ns = latest_ns + run.end_ns - run.begin_ns;
        spans.push((Amount::Wanted, latest_ns, end_ns));
        position_ns = Some(end_ns);
    }
    spans
}

/// Returns the sums of the slots of a cgroup. Each nanosecond is counted in the slot to which it belongs.
fn plain(spans: &[(Amount, u64, u64)]) -> [[u64; AMOUNTS]; SLOTS] {
    let mut slots = [[0; AMOUNTS]; SLOTS];
    for (amount, from_ns, to_ns) in spans {
        for ns in *from_ns..*to_ns {
            slots[(ns >> SHIFT) as usize % SLOTS][*amount as usize] += 1;
        }
    }
    slots
}

#[test]
fn the_slots_equal_plain_sums_on_random_schedules() {
    let mut sums = [0; AMOUNTS];
    for seed in 0..300u64 {
        let mut random = seed;
        let _maps = Maps::new(true);
        *Simulated::slots(PLACE.into()).expect("a place") = Slots::new(SHIFT);
        let longest_ns = [300, 3_000, 8_000][seed as usize % 3];
        let runs = run(&mut random, 200, longest_ns);
        let spans: Vec<_> = runs.iter().flat_map(|runs| spans(runs)).collect();
        let slots = Simulated::slots(PLACE.into()).expect("a place");
        assert!(slots.slots == plain(&spans), "{seed}");
        assert_eq!(Maps::losses().get(Loss::DemandForgotten.name()), None);
        let of = |amount: usize| slots.slots.iter().map(|slot| slot[amount]).sum::<u64>();
        assert_eq!(of(Amount::Ran as usize), of(Amount::Wanted as usize));
        sums = core::array::from_fn(|amount| sums[amount] + of(amount));
    }
    println!("{sums:?}");
    assert!(sums.iter().all(|sum| *sum > 1_000_000), "{sums:?}");
}

#[test]
fn time_that_does_not_fit_into_the_slots_is_counted_as_lost() {
    let _maps = Maps::new(true);
    *Simulated::slots(PLACE.into()).expect("a place") = Slots::new(SHIFT);
    let mut task = Sim { queued_ns: 1 << SHIFT, ready_ns: 1 << SHIFT, ..Sim::default() };
    task.quota.place = PLACE;
    task.switch_in(0, 1 << SHIFT, 0, Seen::AtOnce);
    task.switch_out((1 + 3 * LONGEST) << SHIFT, true);
    let slots = Simulated::slots(PLACE.into()).expect("a place");
    let ran: u64 = slots.slots.iter().map(|slot| slot[Amount::Ran as usize]).sum();
    assert_eq!(ran, (LONGEST - 1) << SHIFT);
    assert!(
        slots.slots.iter().all(|slot| slot[Amount::Ran as usize] <= 1 << SHIFT),
        "each slot has its own time"
    );
    assert_eq!(Maps::losses()[Loss::DemandForgotten.name()], 2, "when it ran, and its position");
    assert_eq!(KEPT + LONGEST, SLOTS as u64);
}

#[test]
fn the_longest_time_that_fits_into_the_slots_is_not_lost() {
    let _maps = Maps::new(true);
    *Simulated::slots(PLACE.into()).expect("a place") = Slots::new(SHIFT);
    let mut task = Sim { queued_ns: 1 << SHIFT, ready_ns: 1 << SHIFT, ..Sim::default() };
    task.quota.place = PLACE;
    task.switch_in(0, 1 << SHIFT, 0, Seen::AtOnce);
    task.switch_out(LONGEST << SHIFT, true);
    assert!(Maps::losses().is_empty(), "{:?}", Maps::losses());
}

#[test]
fn the_part_of_a_wait_that_ended_with_a_move_to_another_cgroup_does_not_count_again() {
    let _maps = Maps::new(true);
    *Simulated::slots(PLACE.into()).expect("a place") = Slots::new(SHIFT);
    let now = 100 << SHIFT;
    let mut task = Sim { queued_ns: now - 7, ready_ns: now - 7, ..Sim::default() };
    task.quota.place = PLACE;
    task.waits.expected_run_delay_ns = 5;
    task.switch_in(0, now, 0, Seen::AtOnce);
    let slots = Simulated::slots(PLACE.into()).expect("a place");
    let waited: u64 = slots.slots.iter().map(|slot| slot[Amount::Waited as usize]).sum();
    assert_eq!(waited, 2);
}

#[test]
fn a_period_has_at_least_four_slots_if_they_need_not_be_shorter_than_four_milliseconds() {
    let shifts = [1_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000, 1_000_000_000].map(shift_for);
    assert_eq!(shifts, [22, 22, 22, 23, 24, 24]);
    assert_eq!(shift_for(0), 22);
}
