//! What a task did in a past span of time: it ran, waited because of some causes, or slept. So that at a wakeup, the sleep of the
//! woken task can be divided by what its waker did meanwhile.
//!
//! A task keeps its latest pauses, the times in which it was on no CPU. A pause is a sleep, a wait, or a sleep followed by a wait.
//! Each pause has the sums of all time up to its end, so a span is the difference of two sums. If a span begins within a pause, the
//! wait in that pause is divided in proportion, because the order of its causes is not kept.

use crate::{
    cause::{ByCause, CAUSES},
    verifier::{get, set, wrapped},
};

/// Number of pauses that a task keeps.
pub const PAUSES: usize = 16;

/// Time that a task slept, and that it waited, by cause, ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub slept_ns: u64,
    pub by_cause: ByCause,
}

/// A time in which a task was on no CPU: it slept from `from_ns` to `woken_ns`, and waited from then to `to_ns`. Without a sleep,
/// `woken_ns` is `from_ns`. All times are ns of CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    pub from_ns: u64,
    pub woken_ns: u64,
    pub to_ns: u64,
    /// All time up to `to_ns`.
    pub after: Sums,
}

/// The latest pauses of a task. Only the task's own CPU changes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// When the task began to keep its pauses.
    pub begun_ns: u64,
    /// Number of pauses so far. The latest one is at `number - 1`.
    pub number: u64,
    pub sums: Sums,
    pub pauses: [Pause; PAUSES],
}

/// What a task did in a span.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    pub ran_ns: u64,
    pub sums: Sums,
    /// The first part of the span, before the oldest pause that the task keeps, or before the task existed.
    pub unknown_ns: u64,
}

impl Past {
    pub const NONE: Self = Self {
        begun_ns: 0,
        number: 0,
        sums: Sums { slept_ns: 0, by_cause: [0; CAUSES] },
        pauses: [Pause { from_ns: 0, woken_ns: 0, to_ns: 0, after: Sums { slept_ns: 0, by_cause: [0; CAUSES] } };
            PAUSES],
    };

    /// Adds a pause that ends at `to_ns`. `waited` has the parts of its wait.
    #[inline(always)]
    pub fn add(&mut self, from_ns: u64, woken_ns: u64, to_ns: u64, waited: &ByCause) {
        self.sums.slept_ns += woken_ns.saturating_sub(from_ns);
        for cause in 0..CAUSES {
            self.sums.by_cause[cause] += waited[cause];
        }
        let after = self.sums;
        let number = get(&mut self.number);
        *wrapped(&mut self.pauses, number) = Pause { from_ns, woken_ns, to_ns, after };
        set(&mut self.number, number + 1);
    }

    /// Returns what the task did from `from_ns` to `now_ns`, at which it runs.
    #[inline(always)]
    pub fn since(&mut self, from_ns: u64, now_ns: u64) -> Did {
        let number = get(&mut self.number);
        let mut did = Did { sums: self.sums, ..Did::default() };
        let kept = if number < PAUSES as u64 { number } else { PAUSES as u64 };
        // Before the first pause, the task ran since it began. The sums before the oldest of all kept pauses are lost.
        let is_whole = number <= PAUSES as u64;
        let (mut before, mut known_ns) = (Sums::default(), self.begun_ns);
        let mut back = 1;
        while back <= kept {
            let pause = *wrapped(&mut self.pauses, number - back);
            if pause.to_ns <= from_ns || back == kept && !is_whole {
                (before, known_ns) = (pause.after, pause.to_ns);
                break;
            }
            back += 1;
        }
        subtract(&mut did.sums, &before);
        // The pause after `before` may have begun before the span.
        if back > 1 && back - 1 <= kept {
            let pause = *wrapped(&mut self.pauses, number - (back - 1));
            did.leave_out(&pause, &before, from_ns);
        }
        let span_ns = now_ns.saturating_sub(from_ns);
        did.unknown_ns = known_ns.saturating_sub(from_ns).min(span_ns);
        did.ran_ns = span_ns.saturating_sub(did.unknown_ns).saturating_sub(did.sums.total());
        did
    }
}

impl Sums {
    pub fn total(&self) -> u64 {
        self.by_cause.iter().fold(self.slept_ns, |sum, ns| sum + ns)
    }
}

impl Did {
    /// Leaves out the part of a pause before the span. `before`: the sums before the pause.
    #[inline(always)]
    fn leave_out(&mut self, pause: &Pause, before: &Sums, from_ns: u64) {
        let early_ns = from_ns.saturating_sub(pause.from_ns);
        let sleep_ns = pause.woken_ns.saturating_sub(pause.from_ns);
        self.sums.slept_ns -= if early_ns < sleep_ns { early_ns } else { sleep_ns };
        let wait_ns = pause.to_ns.saturating_sub(pause.woken_ns);
        let early_ns = early_ns.saturating_sub(sleep_ns);
        if early_ns == 0 || wait_ns == 0 {
            return;
        }
        // In 65536ths, so that no product overflows for a wait of up to a day.
        let share = (early_ns << 16) / wait_ns;
        for cause in 0..CAUSES {
            let ns = pause.after.by_cause[cause].wrapping_sub(before.by_cause[cause]);
            self.sums.by_cause[cause] -= (ns * share) >> 16;
        }
    }
}

#[inline(always)]
fn subtract(sums: &mut Sums, before: &Sums) {
    sums.slept_ns -= before.slept_ns;
    for cause in 0..CAUSES {
        sums.by_cause[cause] -= before.by_cause[cause];
    }
}

#[cfg(test)]
mod tests;
