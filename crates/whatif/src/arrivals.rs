//! What a recording says about when work arrives.

use crate::{Loop, Profile, Slot};

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

/// A time in which tasks ran or were throttled, and the pause after it, in slots.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    ran: f64,
    stalled: f64,
    pause: f64,
}

impl Profile {
    /// The loops that the recording does not contradict. If stalls made the pauses after them shorter, a clock decides when work
    /// arrives; if they did not, and pauses are alike, each piece of work follows the one before.
    pub fn loops(&self) -> Vec<Loop> {
        let turns = self.turns();
        match slope(&turns) {
            Some((slope, error)) if slope + 2.0 * error < MIDDLE => vec![Loop::Open],
            Some((slope, error)) if slope - 2.0 * error > MIDDLE && is_regular(&turns) => vec![Loop::Closed],
            _ => vec![Loop::Open, Loop::Closed],
        }
    }

    fn turns(&self) -> Vec<Turn> {
        let slot_ns = self.slot_ns.max(1) as f64;
        let active = |slot: &Slot| ((slot.ran_ns + slot.waited_ns) as f64 / slot_ns).min(1.0);
        let (mut turns, mut turn, mut is_paused) = (Vec::new(), Turn::default(), false);
        for slot in &self.slots {
            let idle = 1.0 - active(slot);
            if is_paused && idle < 1.0 {
                // The pause ends in this slot.
                turns.push(Turn { pause: turn.pause + idle, ..turn });
                turn = Turn::default();
                is_paused = false;
            } else if idle > 0.0 {
                turn.pause = if is_paused { turn.pause + idle } else { idle };
            }
            turn.ran += slot.ran_ns as f64 / slot_ns;
            turn.stalled += slot.waited_ns as f64 / slot_ns;
            is_paused |= idle == 1.0;
        }
        turns
    }
}

/// The slope of the pauses over the stalls, and its standard error.
fn slope(turns: &[Turn]) -> Option<(f64, f64)> {
    let count = turns.len() as f64;
    let mean = |of: fn(&Turn) -> f64| turns.iter().map(of).sum::<f64>() / count;
    let (stalled, pause) = (mean(|turn| turn.stalled), mean(|turn| turn.pause));
    let squares: f64 = turns.iter().map(|turn| (turn.stalled - stalled).powi(2)).sum();
    if turns.len() < PAUSES || squares < count * SPREAD * SPREAD {
        return None;
    }
    let both: f64 = turns.iter().map(|turn| (turn.stalled - stalled) * (turn.pause - pause)).sum();
    let slope = both / squares;
    let off = |turn: &Turn| (turn.pause - pause - slope * (turn.stalled - stalled)).powi(2);
    let error = (turns.iter().map(off).sum::<f64>() / (count - 2.0) / squares).sqrt();
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

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: f64 = 16.8;

    /// When the next work comes after one that began at `begin_ms` and ended at `end_ms`.
    type Next<'n> = &'n mut dyn FnMut(f64, f64) -> f64;

    /// A task under a quota of `quota_ms` in each 100 ms, whose pieces of work take `cost_ms`.
    fn recorded(cost_ms: f64, quota_ms: f64, next: Next<'_>) -> Profile {
        nested(cost_ms, quota_ms, 100.0, next)
    }

    /// The same below another quota, which is used up after `open_ms` of each 100 ms.
    fn nested(cost_ms: f64, quota_ms: f64, open_ms: f64, next: Next<'_>) -> Profile {
        let mut slots = vec![Slot::default(); 1_200];
        let mut add = |from_ms: f64, to_ms: f64, is_run: bool| {
            let mut at_ms = from_ms;
            while at_ms < to_ms {
                let slot = (at_ms / SLOT) as usize;
                let end_ms = ((slot + 1) as f64 * SLOT).min(to_ms).max(at_ms + 1e-6);
                if let Some(slot) = slots.get_mut(slot) {
                    let ns = ((end_ms - at_ms) * 1e6) as u64;
                    *(if is_run { &mut slot.ran_ns } else { &mut slot.waited_ns }) += ns;
                }
                at_ms = end_ms;
            }
        };
        let (mut now_ms, mut used_ms, mut period) = (3.0f64, 0.0, 0.0);
        while now_ms < 20_000.0 {
            let (begin_ms, mut left_ms) = (now_ms, cost_ms);
            while left_ms > 1e-9 {
                if (now_ms / 100.0).floor() > period {
                    (period, used_ms) = ((now_ms / 100.0).floor(), 0.0);
                }
                let end_ms = (period + 1.0) * 100.0;
                let open_ms = (period * 100.0 + open_ms - now_ms).max(0.0);
                let run_ms = left_ms.min(quota_ms - used_ms).min(open_ms);
                add(now_ms, now_ms + run_ms, true);
                (now_ms, used_ms, left_ms) = (now_ms + run_ms, used_ms + run_ms, left_ms - run_ms);
                if left_ms > 1e-9 {
                    add(now_ms, end_ms, false);
                    now_ms = end_ms;
                }
            }
            now_ms = next(begin_ms, now_ms).max(now_ms);
        }
        Profile { slot_ns: (SLOT * 1e6) as u64, slots }
    }

    #[test]
    fn a_clock_is_an_open_loop() {
        let mut due_ms = 3.0;
        let profile = recorded(30.0, 25.0, &mut |_, _| {
            due_ms += 130.0;
            due_ms
        });
        assert_eq!(profile.loops(), [Loop::Open]);
    }

    #[test]
    fn a_fixed_pause_after_each_piece_of_work_is_a_closed_loop() {
        let profile = recorded(30.0, 25.0, &mut |_, end_ms| end_ms + 71.0);
        assert_eq!(profile.loops(), [Loop::Closed]);
    }

    #[test]
    fn a_clock_whose_work_is_often_late_is_no_closed_loop() {
        for open_ms in [30.0, 40.0, 50.0, 62.0, 80.0] {
            for (cost_ms, quota_ms, every_ms) in
                [(30.0, 25.0, 130.0), (30.0, 28.0, 130.0), (20.0, 25.0, 90.0)]
            {
                let mut due_ms = 3.0;
                let profile = nested(cost_ms, quota_ms, open_ms, &mut |_, _| {
                    due_ms += every_ms;
                    due_ms
                });
                assert!(profile.loops().contains(&Loop::Open), "{open_ms} {cost_ms} {quota_ms} {every_ms}");
            }
        }
    }

    #[test]
    fn random_arrivals_and_loads_without_stalls_decide_nothing() {
        let both = [Loop::Open, Loop::Closed];
        let (mut random, mut due_ms) = (7u64, 3.0);
        let profile = recorded(20.0, 25.0, &mut |_, _| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            due_ms -= 100.0 * (((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln();
            due_ms
        });
        assert_eq!(profile.loops(), both);
        assert_eq!(recorded(10.0, 60.0, &mut |_, end_ms| end_ms + 50.0).loops(), both);
        assert_eq!(Profile::default().loops(), both);
    }
}
