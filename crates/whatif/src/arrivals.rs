//! What a recording says about when work arrives.

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
            _ => vec![Loop::Open, Loop::Closed],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::{Server, random_gaps};

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
