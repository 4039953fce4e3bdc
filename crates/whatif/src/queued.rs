//! Requests that queue within a program.
//!
//! The kernel does not see them: a task that is throttled or busy is not woken. What came in the meantime counts from its last wakeup,
//! as if all had come at once.

use crate::{Limit, Profile, Slot, arrivals::slope};

/// Work is late from this part of a slot on: each amount may be off by a 32nd.
const LATE: f64 = 1.0 / 8.0;
/// Minimum number of stalls.
const STALLS: usize = 15;
/// Maximum number of requests that are put into each slot.
const REQUESTS: u64 = 64;
/// Minimum standard deviation of the stalls, in slots.
const SPREAD: f64 = 0.5;
/// Only times with one stall count: less than this part of the quota was used after it. The more work there is, the more periods and so
/// stalls it takes, whenever it came.
const ONE_STALL: f64 = 0.9;
/// Where requests queue, work grows with stalls at the rate at which it usually comes, or faster. Half of that, and two standard errors
/// above none, decide.
const ENOUGH: f64 = 0.5;

/// A time in which work was late.
#[derive(Clone, Copy, Debug)]
struct Late {
    /// Its slots.
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
        let Some((slope, error)) = slope(&points, STALLS, SPREAD * self.slot_ns as f64) else {
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
            late_ns = if slot.is_idle() { 0.0 } else { late_ns + slot.firm_ns as f64 - slot.ran_ns as f64 };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cells, Loop, Replay, Tree,
        served::{Served, Server, random_gaps},
    };

    /// The least quota that meets a target, ms of 100 ms, as simulated for the open loop.
    fn least(profile: &Profile, limit: Limit, target: f64) -> f64 {
        let replay = Replay::new(&Tree::single(profile.clone().refined(4), Some(limit), 2.0)).unwrap();
        let cells = Cells { loops: vec![Loop::Open], ..Cells::default() };
        let share = |limit, setting| replay.run(&[Some(limit)], &setting).unwrap()[0].throttled_share();
        let is_enough = |ms: &u64| {
            let limit = Limit { quota_ns: ms * 1_000_000, ..limit };
            cells.settings(0, limit.period_ns).all(|setting| share(limit, setting) <= target)
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
