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

/// A time until the end of a pause of a slot or more, in slots.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    ran: f64,
    stalled: f64,
    /// The pause, and shorter ones before it.
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
            turn.pause += idle;
            if is_paused && idle < 1.0 {
                // The pause ends in this slot.
                turns.push(turn);
                turn = Turn::default();
                is_paused = false;
            }
            turn.ran += slot.ran_ns as f64 / slot_ns;
            turn.stalled += slot.waited_ns as f64 / slot_ns;
            is_paused |= idle == 1.0;
        }
        turns
    }
}

/// The slope of pauses over stalls in turns with as much work, and its standard error. With little time left for a pause, several pieces
/// of work are in one turn: more work, more stalls and a longer pause.
fn pauses_by_stalls(turns: &[Turn]) -> Option<(f64, f64)> {
    let beyond_work = |of: fn(&Turn) -> f64| {
        let points: Vec<(f64, f64)> = turns.iter().map(|turn| (turn.ran, of(turn))).collect();
        let slope = slope(&points, 3, f64::MIN_POSITIVE).map_or(0.0, |(slope, _)| slope);
        points.into_iter().map(move |(ran, other)| other - slope * ran)
    };
    let points: Vec<(f64, f64)> =
        beyond_work(|turn| turn.stalled).zip(beyond_work(|turn| turn.pause)).collect();
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
