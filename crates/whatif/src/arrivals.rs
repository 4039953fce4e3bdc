//! What a recording says about when work arrives: which loop, requests that queued, and where in its slot work was done.
//!
//! The kernel does not see requests that queue within a program: a task that is throttled or busy is not woken. What came in the
//! meantime counts from its last wakeup, as if all had come at once.

use cgscope_model::sum::shares;

use crate::{Limit, Loop, Profile, Slot};

/// Minimum number of pauses.
const PAUSES: usize = 15;
/// Minimum standard deviation of the stalls, in slots: without stalls that differ, nothing follows from pauses.
const SPREAD: f64 = 1.0;
/// A pause is longer or shorter by this part of the stall before it if a clock decides when work comes, and by none if the pause itself
/// is fixed. A slope on this side of the middle, by two standard errors, decides.
const MIDDLE: f64 = -0.5;
/// Pauses of a closed loop vary by at most this part of their mean, and of what stalls vary; so does the work between them. Pauses between
/// random arrivals vary by all of their mean, and do not depend on stalls either. Where a clock decides but work is often late, several
/// pieces of work follow each other without a pause, and what is left of the pauses does not depend on stalls.
const REGULAR: f64 = 0.2;
/// A turn with up to this many times the usual work has one piece of it.
const ONE_PIECE: f64 = 1.5;

/// The time from one pause to the end of the next one, in slots. Such a pause has at least one whole slot.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    ran: f64,
    stalled: f64,
    pause: f64,
}

impl Profile {
    /// The loops that the recording does not contradict. If stalls made the pauses after them shorter, a clock decides when work
    /// arrives; if they did not, and pauses are alike, each piece of work follows the one before. Requests that queue come by themselves.
    /// `limit`: what stalled the tasks.
    pub fn loops(&self, limit: Option<&Limit>) -> Vec<Loop> {
        if limit.is_some_and(|limit| self.has_queue(limit) == Some(true)) {
            return vec![Loop::Open];
        }
        let turns = self.turns();
        match pauses_by_stalls(&turns) {
            Some((slope, error)) if slope + 2.0 * error < MIDDLE => vec![Loop::Open],
            Some((slope, error)) if slope - 2.0 * error > MIDDLE && is_regular(&turns) => vec![Loop::Closed],
            _ => Loop::BOTH.to_vec(),
        }
    }

    fn turns(&self) -> Vec<Turn> {
        let slot_ns = self.slot_ns.max(1) as f64;
        let active = |slot: &Slot| ((slot.ran_ns + slot.waited_ns) as f64 / slot_ns).min(1.0);
        let (mut turns, mut turn, mut is_paused) = (Vec::new(), Turn::default(), false);
        for slot in &self.slots {
            let idle = 1.0 - active(slot);
            // Shorter pauses before it are not counted: by as much, a stall until the next period is shorter, whatever decides when work
            // arrives.
            turn.pause = if is_paused || idle == 1.0 { turn.pause + idle } else { idle };
            if is_paused && idle < 1.0 {
                // The pause ends in this slot.
                turns.push(turn);
                turn = Turn::default();
                is_paused = false;
            }
            let ran = slot.ran_ns as f64 / slot_ns;
            turn.ran += ran;
            // If several tasks are throttled together, one counts.
            turn.stalled += active(slot) - ran.min(1.0);
            is_paused |= idle == 1.0;
        }
        turns
    }
}

/// The slope of pauses over stalls, and its standard error. Where little time is left for a pause, the next piece of work comes in the
/// same turn, and the stalls of both. Such turns are left out.
fn pauses_by_stalls(turns: &[Turn]) -> Option<(f64, f64)> {
    let mut work: Vec<f64> = turns.iter().map(|turn| turn.ran).collect();
    work.sort_by(f64::total_cmp);
    let most = work.get(work.len() / 2)? * ONE_PIECE;
    let one_piece = turns.iter().filter(|turn| turn.ran <= most);
    let points: Vec<(f64, f64)> = one_piece.map(|turn| (turn.stalled, turn.pause)).collect();
    slope(&points, PAUSES, SPREAD)
}

/// The slope of y over x, and its standard error. `None` if there are few points, or x hardly differs: by a standard deviation below
/// `spread`.
pub(crate) fn slope(points: &[(f64, f64)], least: usize, spread: f64) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let squares: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if points.len() < least || squares < count * spread * spread {
        return None;
    }
    let both: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let slope = both / squares;
    let off = |(x, y): &(f64, f64)| (y - mean_y - slope * (x - mean_x)).powi(2);
    let error = (points.iter().map(off).sum::<f64>() / (count - 2.0) / squares).sqrt();
    Some((slope, error))
}

fn is_regular(turns: &[Turn]) -> bool {
    let count = turns.len() as f64;
    let spread = |of: fn(&Turn) -> f64| {
        let mean = turns.iter().map(of).sum::<f64>() / count;
        (mean, (turns.iter().map(|turn| (of(turn) - mean).powi(2)).sum::<f64>() / count).sqrt())
    };
    let (work, pause, stall) =
        (spread(|turn| turn.ran), spread(|turn| turn.pause), spread(|turn| turn.stalled));
    pause.1 < REGULAR * pause.0.min(stall.1) && work.1 < REGULAR * work.0
}

/// Work is late from this part of a slot on: each amount may be off by a 32nd.
const LATE: f64 = 1.0 / 8.0;
/// Minimum number of stalls.
const STALLS: usize = 15;
/// Maximum number of requests that are put into each slot.
const REQUESTS: u64 = 64;
/// Minimum standard deviation of the stalls, in slots.
const STALL_SPREAD: f64 = 0.5;
/// Only times with one stall count: less than this part of the quota was used after it. The more work there is, the more periods and so
/// stalls it takes, whenever it came.
const ONE_STALL: f64 = 0.9;
/// Where requests queue, work grows with stalls at the rate at which it usually comes, or faster. Half of that, and two standard errors
/// above none, decide.
const ENOUGH: f64 = 0.5;

/// A time in which work was late.
#[derive(Clone, Copy, Debug)]
struct Late {
    first: usize,
    end: usize,
    /// All work in it, ns.
    work: f64,
    stalled: f64,
    /// Work after the slot in which the stall began, ns.
    after: f64,
}

impl Profile {
    /// Whether more work was left after longer stalls, about as much as usually comes in such a time: requests queue, and come whether or
    /// not the earlier ones are done. `limit`: what stalled the tasks. `None`: both may be. `Some(false)` also without enough stalls that differ.
    pub fn has_queue(&self, limit: &Limit) -> Option<bool> {
        let (quota, period) = (limit.quota_ns as f64, limit.period_ns as f64);
        let has_one_stall = |late: &Late| {
            late.stalled > 0.0 && late.stalled < period - quota * ONE_STALL && late.after < quota * ONE_STALL
        };
        let times = self.late().into_iter().filter(has_one_stall);
        let points: Vec<(f64, f64)> = times.map(|late| (late.stalled, late.after)).collect();
        let Some((slope, error)) = slope(&points, STALLS, STALL_SPREAD * self.slot_ns as f64) else {
            return Some(false);
        };
        let least = ENOUGH * self.rate();
        if slope > least.max(2.0 * error) {
            return Some(true);
        }
        (slope + 2.0 * error < least).then_some(false)
    }

    /// The same demand, but queued requests are at random times until they were done. All work that is more than usual after a wakeup
    /// was queued, and a request is as much as is usual.
    #[must_use]
    pub fn unqueued(&self) -> Self {
        let (times, rate) = (self.late(), self.rate());
        // Work comes at the usual rate after what came with the wakeup. An overload would change a mean.
        let wall = |late: &Late| (late.end - late.first - 1) as f64 * self.slot_ns as f64;
        let mut first: Vec<f64> = times.iter().map(|late| late.work - rate * wall(late)).collect();
        first.sort_by(f64::total_cmp);
        let usual = first.get(first.len() / 2).copied().unwrap_or(0.0);
        let request_ns = usual.max(self.slot_ns as f64 * LATE);
        let (mut spread, mut random) = (self.clone(), 1);
        for late in &times {
            spread.spread(late, (late.work - request_ns).max(0.0) as u64, request_ns as u64, &mut random);
        }
        spread
    }

    /// CPUs used on average.
    fn rate(&self) -> f64 {
        let ran_ns: u64 = self.slots.iter().map(|slot| slot.ran_ns).sum();
        ran_ns as f64 / self.length_ns().max(1) as f64
    }

    fn late(&self) -> Vec<Late> {
        let least = self.slot_ns as f64 * LATE;
        let (mut times, mut late_ns, mut first) = (Vec::new(), 0.0f64, None);
        for (at, slot) in self.slots.iter().enumerate() {
            let is_idle = *slot == Slot::default();
            late_ns = if is_idle { 0.0 } else { late_ns + slot.firm_ns as f64 - slot.ran_ns as f64 };
            late_ns = late_ns.max(0.0);
            if late_ns > least {
                first.get_or_insert(at);
            } else if let Some(first) = first.take() {
                times.push(self.late_between(first, at + 1));
            }
        }
        times
    }

    fn late_between(&self, first: usize, end: usize) -> Late {
        let slots = &self.slots[first..end];
        let sum = |slots: &[Slot], of: fn(&Slot) -> u64| slots.iter().map(of).sum::<u64>() as f64;
        let stall = slots.iter().position(|slot| slot.waited_ns > 0).unwrap_or(0);
        Late {
            first,
            end,
            work: sum(slots, |slot| slot.firm_ns),
            stalled: sum(slots, |slot| slot.waited_ns),
            after: sum(&slots[stall + 1..], |slot| slot.ran_ns),
        }
    }

    /// Takes this much work from the end of a time, and puts it at random into its slots, one request after the other. What does not fit
    /// into a slot, as on as many CPUs as before, is put into the next one, and after the last one into the first.
    fn spread(&mut self, late: &Late, work_ns: u64, request_ns: u64, random: &mut u64) {
        let slots = &mut self.slots[late.first..late.end];
        let most_ns = slots.iter().map(|slot| slot.firm_ns).max().unwrap_or(0).next_multiple_of(self.slot_ns);
        let mut taken_ns = 0;
        for slot in slots.iter_mut().rev() {
            let more_ns = slot.firm_ns.min(work_ns - taken_ns);
            slot.firm_ns -= more_ns;
            taken_ns += more_ns;
        }
        // The work of hours of overload is put in larger pieces.
        let request_ns = request_ns.max(taken_ns / (slots.len() as u64 * REQUESTS)).max(1);
        while taken_ns > 0 {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let begin = (*random >> 33) as usize % slots.len();
            let mut left_ns = request_ns.min(taken_ns);
            taken_ns -= left_ns;
            for at in (begin..slots.len()).chain(0..begin) {
                if left_ns == 0 {
                    break;
                }
                let more_ns = left_ns.min(most_ns.saturating_sub(slots[at].firm_ns));
                slots[at].firm_ns += more_ns;
                left_ns -= more_ns;
            }
        }
    }
}

impl Profile {
    /// The same profile in slots that are shorter by this factor.
    ///
    /// Only the sums of a slot are known. Work in a slot that is not full was most likely done in one piece, next to the busier one of the
    /// slots around it: a burst begins and ends within a slot. Spread over the slot, it would use up a quota too late.
    #[must_use]
    pub fn refined(self, by: u32) -> Self {
        if by <= 1 {
            return self;
        }
        let part_ns = self.slot_ns / u64::from(by);
        let slots = (0..self.slots.len()).flat_map(|at| {
            let ran = self.pieces(at, by, |slot| slot.ran_ns + slot.waited_ns);
            let wanted = self.pieces(at, by, |slot| slot.firm_ns + slot.presumed_ns);
            let slot = self.slots[at];
            let [ran_ns, waited_ns] = [slot.ran_ns, slot.waited_ns].map(|ns| shares(ns, &ran));
            let [firm_ns, presumed_ns] = [slot.firm_ns, slot.presumed_ns].map(|ns| shares(ns, &wanted));
            (0..by as usize).map(move |at| Slot {
                ran_ns: ran_ns[at],
                waited_ns: waited_ns[at],
                firm_ns: firm_ns[at],
                presumed_ns: presumed_ns[at],
            })
        });
        Self { slot_ns: part_ns, slots: slots.collect() }
    }

    /// Divides an amount of a slot among its parts: as much to each as fills whole CPUs, and the rest from the side of the busier neighbour
    /// on, to no more CPUs than there are in the slot or in that neighbour. Evenly, if no burst begins or ends there: neither this slot nor
    /// a neighbour is full, and none of them is empty.
    fn pieces(&self, at: usize, by: u32, amount: impl Fn(&Slot) -> u64) -> Vec<u64> {
        let of = |at: Option<usize>| at.and_then(|at| self.slots.get(at)).map_or(0, &amount);
        let (before, now, after) = (of(at.checked_sub(1)), of(Some(at)), of(at.checked_add(1)));
        let slot_ns = self.slot_ns.max(1);
        let part_ns = (slot_ns / u64::from(by)).max(1);
        let full = now / slot_ns;
        if full == 0 && before > 0 && after > 0 && before.max(after) < slot_ns {
            // Small pieces of work, of which nobody knows where they were.
            return shares(now, &vec![1; by as usize]);
        }
        // A burst of several tasks may end within a slot.
        let cpus = if full == 0 { now.max(before.max(after)).div_ceil(slot_ns).max(1) } else { 1 };
        let mut left = now - full * part_ns * u64::from(by);
        let mut pieces: Vec<u64> = (0..by)
            .map(|part| {
                let piece = if part + 1 == by { left } else { left.min(part_ns * cpus) };
                left -= piece;
                full * part_ns + piece
            })
            .collect();
        if after > before {
            pieces.reverse();
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::served::{Server, random_gaps};

    #[test]
    fn a_clock_is_an_open_loop() {
        assert_eq!(Server::new(30.0, 25.0).serve_all(|| 130.0).profile.loops(None), [Loop::Open]);
    }

    /// Where a long stall leaves little of the pause, two pieces of work are one turn. There are few of them.
    #[test]
    fn a_clock_is_found_in_a_short_recording_although_some_pauses_are_short() {
        for first_ms in (0..130).map(f64::from) {
            let mut gaps = std::iter::once(first_ms).chain(std::iter::repeat(130.0));
            let server = Server { length_ms: 6_000.0, ..Server::new(30.0, 25.0) };
            let profile = server.serve_all(|| gaps.next().unwrap_or(130.0)).profile;
            assert_eq!(profile.loops(None), [Loop::Open], "{first_ms}");
        }
    }

    #[test]
    fn a_fixed_pause_after_each_piece_of_work_is_a_closed_loop() {
        let served = Server::new(30.0, 25.0).serve(&mut |_, end_ms| end_ms + 71.0);
        assert_eq!(served.profile.loops(None), [Loop::Closed]);
    }

    /// A sleep between two parts of a request makes the stall shorter, because that ends with the period.
    #[test]
    fn sleeps_within_a_request_are_no_clock() {
        // Every other request reads between its first parts. Each begins 10 ms after the start of a period, and is done 100 ms later.
        let mut part = 0u32;
        let served = Server::new(5.0, 25.0).serve(&mut |_, end_ms| {
            part += 1;
            match part % 14 {
                0 | 7 => end_ms + 100.0,
                8..=11 => end_ms + 15.0,
                _ => end_ms,
            }
        });
        assert_ne!(served.profile.loops(None), [Loop::Open]);
    }

    #[test]
    fn several_tasks_that_are_throttled_together_are_one() {
        let mut profile = Server::new(30.0, 25.0).serve_all(|| 130.0).profile;
        for slot in &mut profile.slots {
            slot.waited_ns *= 8;
        }
        assert_eq!(profile.loops(None), [Loop::Open]);
    }

    #[test]
    fn a_clock_whose_work_is_often_late_is_no_closed_loop() {
        for open_ms in [30.0, 40.0, 50.0, 62.0, 80.0] {
            for (cost_ms, quota_ms, every_ms) in
                [(30.0, 25.0, 130.0), (30.0, 28.0, 130.0), (20.0, 25.0, 90.0)]
            {
                let server = Server { open_ms, ..Server::new(cost_ms, quota_ms) };
                let profile = server.serve_all(|| every_ms).profile;
                assert!(
                    profile.loops(None).contains(&Loop::Open),
                    "{open_ms} {cost_ms} {quota_ms} {every_ms}"
                );
            }
        }
    }

    #[test]
    fn random_arrivals_and_loads_without_stalls_decide_nothing() {
        let both = [Loop::Open, Loop::Closed];
        let served = Server::new(20.0, 25.0).serve_all(random_gaps(7, 100.0));
        assert_eq!(served.profile.loops(None), both);
        let served = Server::new(10.0, 60.0).serve(&mut |_, end_ms| end_ms + 50.0);
        assert_eq!(served.profile.loops(None), both);
        assert_eq!(Profile::default().loops(None), both);
    }
}

#[cfg(test)]
mod queued_tests {
    use super::*;
    use crate::{
        Loop, Node, PHASES, Replay, Tree, settings,
        tests::served::{Served, Server, random_gaps},
    };

    /// The least quota that meets a target, ms of 100 ms, as simulated for the open loop.
    fn least(profile: &Profile, limit: Limit, target: f64) -> f64 {
        let node = Node { limit: Some(limit), profile: profile.clone().refined(4), ..Node::default() };
        let replay = Replay::new(&Tree { nodes: vec![node], capacity: 2.0 });
        let share = |limit, setting| replay.run(&[Some(limit)], &setting).unwrap()[0].throttled_share();
        let is_enough = |ms: &u64| {
            let limit = Limit { quota_ns: ms * 1_000_000, ..limit };
            let settings = settings(&[Loop::Open], PHASES, 0, limit.period_ns);
            settings.into_iter().all(|setting| share(limit, setting) <= target)
        };
        (1..=100).find(is_enough).unwrap_or(100) as f64
    }

    /// The least one with which the server is throttled in few enough periods.
    fn true_least(target: f64, serve: impl Fn(f64) -> Served) -> f64 {
        (1..=100).map(f64::from).find(|ms| serve(*ms).throttled <= target).unwrap_or(100.0)
    }

    const TARGET: f64 = 0.05;

    #[test]
    fn the_least_quota_for_random_requests_is_within_a_tenth_although_they_queue() {
        for (cost_ms, gap_ms) in [(5.0, 15.0), (2.0, 6.0), (3.0, 12.0)] {
            let (mut ratios, mut ratios_as_recorded) = (Vec::new(), Vec::new());
            for seed in 1..=10 {
                let quota_ms = 1.2 * 100.0 * cost_ms / gap_ms;
                let server = |quota_ms| Server { length_ms: 30_000.0, ..Server::new(cost_ms, quota_ms) };
                let serve = |quota_ms| server(quota_ms).serve_all(random_gaps(seed, gap_ms));
                let (profile, limit) = (serve(quota_ms).profile, server(quota_ms).limit());
                if profile.has_queue(&limit) == Some(true) {
                    let truth = true_least(TARGET, serve);
                    ratios.push(least(&profile.unqueued(), limit, TARGET) / truth);
                    ratios_as_recorded.push(least(&profile, limit, TARGET) / truth);
                }
            }
            let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
            let (ratio, as_recorded) = (mean(&ratios), mean(&ratios_as_recorded));
            assert!(ratios.len() >= 6, "{cost_ms} of {gap_ms}: found in {} of 10", ratios.len());
            assert!(
                (0.95..1.1).contains(&ratio),
                "{cost_ms} of {gap_ms}: {ratio}, as recorded {as_recorded}"
            );
            assert!(as_recorded > ratio, "{cost_ms} of {gap_ms}: {ratio}, as recorded {as_recorded}");
        }
    }

    #[test]
    fn where_work_does_not_grow_with_stalls_no_queue_is_found() {
        let loads = [(30.0, 130.0), (40.0, 150.0), (45.0, 150.0), (8.0, 18.0), (5.0, 15.0), (10.0, 30.0)];
        for (cost_ms, every_ms) in loads {
            for times in [1.05, 1.1, 1.2, 1.35, 1.6] {
                let server = Server::new(cost_ms, times * 100.0 * cost_ms / every_ms);
                let (pause_ms, limit) = (every_ms - cost_ms, server.limit());
                let (mut pauses, mut parts) = (random_gaps(3, pause_ms), random_gaps(4, 0.1 * every_ms));
                let served = [
                    server.serve_all(|| every_ms),
                    server.serve(&mut |_, end_ms| end_ms + pause_ms),
                    server.serve(&mut |_, end_ms| end_ms + pauses()),
                    server.serve(&mut |_, end_ms| end_ms + 0.9 * every_ms - cost_ms + parts()),
                ];
                let found = served.map(|served| served.profile.has_queue(&limit) == Some(true));
                assert_eq!(found, [false; 4], "{server:?} every {every_ms} ms");
                let uneven = Server { is_uneven: true, ..server }.serve(&mut |_, end_ms| end_ms + pause_ms);
                assert_ne!(
                    uneven.profile.has_queue(&limit),
                    Some(true),
                    "{server:?}, pauses of {pause_ms} ms"
                );
            }
        }
    }

    #[test]
    fn spreading_keeps_all_work_and_leaves_other_slots_as_they_are() {
        let server = Server::new(5.0, 40.0);
        let profile = server.serve_all(random_gaps(1, 15.0)).profile;
        let (times, spread) = (profile.late(), profile.unqueued());
        let firm = |profile: &Profile, late: &Late| -> u64 {
            profile.slots[late.first..late.end].iter().map(|slot| slot.firm_ns).sum()
        };
        assert!(times.len() > 20 && spread != profile);
        assert!(times.iter().all(|late| firm(&profile, late) == firm(&spread, late)));
        let is_late = |at: usize| times.iter().any(|late| (late.first..late.end).contains(&at));
        for at in (0..profile.slots.len()).filter(|at| !is_late(*at)) {
            assert_eq!(profile.slots[at], spread.slots[at]);
        }
        assert!(spread.slots.iter().all(|slot| slot.firm_ns <= profile.slot_ns), "one task");
    }

    /// Half a minute of overload among ordinary stalls neither takes long nor changes what is usual.
    #[test]
    fn an_overload_changes_nothing_elsewhere() {
        let (slot_ns, stall) = (16_800_000, 3);
        let mut slots = Vec::new();
        let mut add = |ran: u64, waited: u64, firm: u64| {
            let [ran_ns, waited_ns, firm_ns] = [ran, waited, firm].map(|parts| parts * slot_ns / 16);
            slots.push(Slot { ran_ns, waited_ns, firm_ns, presumed_ns: 0 });
        };
        for at in 0..200 {
            // A request of 4 parts before the stall, and two queued ones.
            add(2, 14, 12);
            (0..stall).for_each(|_| add(0, 16, 0));
            add(10, 0, 0);
            (0..5).for_each(|_| add(0, 0, 0));
            if at == 100 {
                add(8, 8, 16);
                (0..1_000).for_each(|_| add(8, 8, 16));
                (0..1_001).for_each(|_| add(16, 0, 8));
                add(0, 0, 0);
            }
        }
        let profile = Profile { slot_ns, slots };
        let spread = profile.unqueued();
        let late = |slot: &Slot| slot.firm_ns > slot.ran_ns;
        let moved = spread.slots[..1_000].iter().filter(|slot| late(slot)).count();
        assert!(moved > 100, "{moved} slots have work that is late");
        let sum = |profile: &Profile| profile.slots.iter().map(|slot| slot.firm_ns).sum::<u64>();
        assert_eq!(sum(&profile), sum(&spread));
    }

    #[test]
    fn an_hour_of_overload_with_tiny_requests_is_spread_at_once() {
        let slot = |ran_ns, firm_ns| Slot { ran_ns, firm_ns, ..Slot::default() };
        let mut slots = vec![slot(0, 8_192 << 22); 400_000];
        slots.extend(vec![slot(8_192 << 22, 0); 400_000]);
        slots.extend(vec![Slot::default(); 100_000]);
        let profile = Profile { slot_ns: 1 << 22, slots };
        let begun = std::time::Instant::now();
        let spread = profile.unqueued();
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        assert_eq!(spread.slots.len(), profile.slots.len());
        // Slots without a length are no error.
        let _ = Profile { slot_ns: 1, slots: vec![slot(0, 9), slot(9, 0)] }.unqueued();
    }
}

#[cfg(test)]
mod refine_tests {
    use super::*;

    fn profile(ran: &[u64]) -> Profile {
        let slot = |ns: &u64| Slot { ran_ns: *ns, firm_ns: *ns, ..Slot::default() };
        Profile { slot_ns: 100, slots: ran.iter().map(slot).collect() }
    }

    #[test]
    fn a_burst_is_one_piece() {
        let refined = profile(&[0, 30, 100, 60, 0]).refined(4);
        let ran: Vec<u64> = refined.slots.iter().map(|slot| slot.ran_ns).collect();
        assert_eq!(ran, [0, 0, 0, 0, 0, 0, 5, 25, 25, 25, 25, 25, 25, 25, 10, 0, 0, 0, 0, 0]);
        assert_eq!(refined.slot_ns, 25);
        // Two tasks that end together.
        let refined = profile(&[200, 50, 0]).refined(4);
        let ran: Vec<u64> = refined.slots.iter().map(|slot| slot.ran_ns).collect();
        assert_eq!(ran[4..8], [50, 0, 0, 0]);
        // One of two ends.
        let refined = profile(&[200, 130, 100]).refined(4);
        let ran: Vec<u64> = refined.slots.iter().map(|slot| slot.ran_ns).collect();
        assert_eq!(ran[4..8], [50, 30, 25, 25]);
    }

    #[test]
    fn each_slot_keeps_its_sums() {
        let mut random = 7u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        let slots: Vec<Slot> = (0..500)
            .map(|_| {
                let most = [1, 100, 350][below(3) as usize];
                let mut amount = || below(most);
                Slot { ran_ns: amount(), waited_ns: amount(), firm_ns: amount(), presumed_ns: amount() }
            })
            .collect();
        let profile = Profile { slot_ns: 100, slots };
        for by in [1, 2, 4, 5] {
            let refined = profile.clone().refined(by);
            for (slot, parts) in profile.slots.iter().zip(refined.slots.chunks(by as usize)) {
                let sum = |of: fn(&Slot) -> u64| parts.iter().map(of).sum::<u64>();
                assert_eq!(sum(|slot| slot.ran_ns), slot.ran_ns);
                assert_eq!(sum(|slot| slot.waited_ns), slot.waited_ns);
                assert_eq!(sum(|slot| slot.firm_ns), slot.firm_ns);
                assert_eq!(sum(|slot| slot.presumed_ns), slot.presumed_ns);
            }
        }
    }
}
