//! For whom tasks slept: who woke a task, and what the waker did while the task slept.
//!
//! A task keeps its past: the times in which it was on no CPU. A pause is a sleep, a wait, or a sleep followed by a wait. Each pause
//! has the sums of all time up to its end, so what a task did in a span is the difference of two sums. The latest pauses are kept
//! one by one. If a span begins within such a pause, the wait in it is divided in proportion, because the order of its causes is
//! not kept. Before that, only every [`STRIDE`]th pause is kept: there, everything is divided in proportion.

use crate::{
    cause::{ByCause, CAUSES},
    named,
    verifier::{get, set, wrapped},
};

/// Number of pauses that a task keeps one by one, and number of those that it keeps from before.
pub const KEPT: usize = 8;
/// From before the latest pauses, one of this many is kept.
pub const STRIDE: u64 = 8;

/// Number of bits of the number of a system call.
pub const CALL_BITS: u32 = 16;
/// In `i_mode`, the kind of a file (S_IFMT) begins at this bit.
pub const MODE_SHIFT: u32 = 12;

/// Maximum number of pairs of sleeper and waker.
pub const PAIRS: usize = 16_384;

named! {
    /// What woke a sleeping task.
    Waker {
        /// Another task.
        Task = "task",
        /// The completion of block I/O (`in_iowait`).
        Disk = "disk",
        /// A hardware interrupt: a timer or a device.
        Interrupt = "interrupt",
        /// A soft interrupt whose sender is unknown: a packet, or a timer of the kernel.
        SoftInterrupt = "soft_interrupt",
        /// The wakeup was not seen, or the kernel does not show in which context it happened.
        Unknown = "unknown",
    }
}

/// Time that a task slept, and that it waited, by cause, ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub slept_ns: u64,
    pub by_cause: ByCause,
}

/// A time in which a task was on no CPU: it slept from `from_ns` to `woken_ns`, and waited from then to `to_ns`. Without a sleep,
/// `woken_ns` is `from_ns`. All times are ns of `rq->clock`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    pub from_ns: u64,
    pub woken_ns: u64,
    pub to_ns: u64,
    /// All time up to `to_ns`.
    pub after: Sums,
}

/// The past of a task. Only the CPU on which the task switches in, or runs, reads or changes it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// Number of pauses so far, including an empty one at the time when the task began to keep its past. The latest pause is at
    /// `number - 1`.
    pub number: u64,
    /// Sum of all waits up to the latest pause, ns.
    waited_ns: u64,
    /// The latest pauses, by number modulo [`KEPT`]; and each [`STRIDE`]th pause, by number divided by it, modulo [`KEPT`].
    pauses: [Pause; 2 * KEPT],
}

/// What a task did in a span. `ran_ns`, `sums` and `unknown_ns` sum to its length.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Set by [`Self::complete`].
    pub ran_ns: u64,
    pub sums: Sums,
    /// The first part of the span, of which the task keeps nothing.
    pub unknown_ns: u64,
    /// A part of the span that was divided in proportion. It contributes to `ran_ns` and `sums`.
    pub estimated_ns: u64,
}

impl Did {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        ran_ns: 0,
        sums: Sums { slept_ns: 0, by_cause: [0; CAUSES] },
        unknown_ns: u64::MAX,
        estimated_ns: 0,
    };

    /// Sets the length of the span. Its end was not known exactly before.
    #[inline(always)]
    pub fn complete(&mut self, span_ns: u64) {
        let known_ns = self.sums.total();
        let rest_ns = span_ns.saturating_sub(known_ns);
        if self.unknown_ns > rest_ns {
            self.unknown_ns = rest_ns;
        }
        // The clocks of two CPUs may differ a little.
        self.sums.slept_ns = self.sums.slept_ns.saturating_sub(known_ns.saturating_sub(span_ns));
        self.ran_ns = rest_ns - self.unknown_ns;
    }
}

/// The current sleep of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    /// 0: the task does not sleep.
    pub from_ns: u64,
    /// A [`Waker`] plus one; 0: it was not woken yet.
    pub waker: u64,
    /// The sleep ended at this time or up to a tick later. Only if `waker` is set.
    pub woken_ns: u64,
    /// The waker's cgroup, or [`KERNEL`](crate::history::KERNEL), and its id and name. Only if the waker is a task.
    pub cgroup_id: u64,
    pub tid: u64,
    pub comm: [u64; 2],
    /// 1: the waker ran during the whole sleep. Then `did` is not set.
    pub ran: u64,
    /// What the waker did during the sleep, not [complete](Did::complete).
    pub did: Did,
}

/// The storage of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    pub past: Past,
    pub sleep: Sleep,
    pub pending: Pending,
}

/// Sleeps that are not in the table of pairs yet, because the next sleep may be of the same pair. The hook adds them when another pair
/// follows, and the reader at each reading.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Not 0 while a program uses the other members.
    pub lock: u64,
    pub key: PairKey,
    /// The number of the system call, and above 32 bits the descriptor of the file. They show whether the kind of the file in `key`
    /// must be read again.
    pub call: u64,
    pub count: u64,
    pub slept_ns: u64,
    pub comm: [u64; 2],
}

/// The key of the table of pairs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PairKey {
    /// Cgroup of the task that slept.
    pub sleeper: u64,
    /// See [`Sleep::cgroup_id`].
    pub waker_cgroup: u64,
    /// Thread ids, if pairs are single tasks; otherwise 0.
    pub sleeper_tid: u32,
    pub waker_tid: u32,
    /// A [`Waker`].
    pub waker: u32,
    /// The number of the system call in which the task slept, in the low [`CALL_BITS`]. Above them, for calls that read or write a
    /// file, its kind plus one: `i_mode` shifted right by [`MODE_SHIFT`]. -1: in no call, or unknown.
    pub call: i32,
}

/// The value of the table of pairs. All sums only increase.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSums {
    pub count: u64,
    /// How long the task slept, ns. If the waker is a task, it ran for the time that is in no part of `did`.
    pub slept_ns: u64,
    /// Without `ran_ns`.
    pub did: Did,
    /// Name of the waker.
    pub comm: [u64; 2],
}

impl Past {
    pub const NONE: Self = Self {
        number: 0,
        waited_ns: 0,
        pauses: [Pause {
            from_ns: 0,
            woken_ns: 0,
            to_ns: 0,
            after: Sums { slept_ns: 0, by_cause: [0; CAUSES] },
        }; 2 * KEPT],
    };

    /// Begins to keep the past of a task. `waited` are the parts of all its waits so far, and `waited_ns` is their sum.
    #[inline(always)]
    pub fn begin(&mut self, now_ns: u64, waited_ns: u64, waited: &ByCause) {
        self.waited_ns = waited_ns;
        self.keep([now_ns; 3], 0, waited);
    }

    /// Adds a pause that ends at `now_ns`: a sleep that began at `slept_from_ns` (0: none), and then a wait. `waited` and `waited_ns`
    /// are as for [`Self::begin`]. Returns the time of the wakeup.
    #[inline(always)]
    pub fn add(&mut self, slept_from_ns: u64, now_ns: u64, waited_ns: u64, waited: &ByCause) -> u64 {
        let wait_ns = waited_ns.wrapping_sub(self.waited_ns);
        self.waited_ns = waited_ns;
        let latest = recent(get(&mut self.number).wrapping_sub(1));
        let mut slept_ns = wrapped(&mut self.pauses, latest).after.slept_ns;
        let mut woken_ns = now_ns.saturating_sub(wait_ns);
        let mut from_ns = woken_ns;
        if slept_from_ns != 0 {
            from_ns = slept_from_ns;
            // The two clocks may differ a little.
            woken_ns = if woken_ns < from_ns { from_ns } else { woken_ns };
            slept_ns += woken_ns - from_ns;
        } else if wait_ns == 0 {
            return now_ns;
        }
        self.keep([from_ns, woken_ns, now_ns], slept_ns, waited);
        woken_ns
    }

    /// Keeps a pause with these times: its beginning, the wakeup, and its end.
    #[inline(always)]
    fn keep(&mut self, times: [u64; 3], slept_ns: u64, waited: &ByCause) {
        let number = get(&mut self.number);
        let pause = wrapped(&mut self.pauses, recent(number));
        [pause.from_ns, pause.woken_ns, pause.to_ns] = times;
        (pause.after.slept_ns, pause.after.by_cause) = (slept_ns, *waited);
        if number.is_multiple_of(STRIDE) {
            let pause = *pause;
            *wrapped(&mut self.pauses, older(number / STRIDE)) = pause;
        }
        set(&mut self.number, number + 1);
    }

    /// Returns whether the task, which runs, has run since `from_ns`.
    #[inline(always)]
    pub fn runs_since(&mut self, from_ns: u64) -> bool {
        let number = get(&mut self.number);
        number != 0 && wrapped(&mut self.pauses, recent(number - 1)).to_ns <= from_ns
    }

    /// Returns what the task, which runs, has done since `from_ns`. `did` is [`Did::UNKNOWN`] before.
    #[inline(always)]
    pub fn since(&mut self, from_ns: u64, did: &mut Did) {
        let number = get(&mut self.number);
        let kept = if number < KEPT as u64 { number } else { KEPT as u64 };
        // The pause before the span, and the one after that: their places.
        let (mut before, mut after) = (NONE, NONE);
        let mut back = 1;
        while back <= KEPT as u64 {
            if back > kept {
                break;
            }
            let place = recent(number - back);
            if wrapped(&mut self.pauses, place).to_ns <= from_ns {
                before = place;
                break;
            }
            after = place;
            back += 1;
        }
        if before != NONE {
            self.sum_since(before, did);
            did.unknown_ns = 0;
            if after != NONE {
                self.leave_out_of_pause(before, after, from_ns, did);
            }
        } else if after != NONE {
            let mut group = number.div_ceil(STRIDE);
            let mut looks = 0;
            while looks < KEPT as u64 {
                if group == 0 {
                    break;
                }
                group -= 1;
                let place = older(group);
                let to_ns = wrapped(&mut self.pauses, place).to_ns;
                if to_ns <= from_ns {
                    before = place;
                    break;
                }
                if to_ns < wrapped(&mut self.pauses, after).to_ns {
                    after = place;
                }
                looks += 1;
            }
            self.sum_since(after, did);
            did.unknown_ns = wrapped(&mut self.pauses, after).to_ns.wrapping_sub(from_ns);
            if before != NONE {
                self.add_estimate(before, after, did);
            }
        }
    }

    #[inline(always)]
    fn sum_since(&mut self, place: u64, did: &mut Did) {
        let latest = recent(get(&mut self.number).wrapping_sub(1));
        did.sums.slept_ns = self.slept(place, latest);
        for (cause, sum) in did.sums.by_cause.iter_mut().enumerate() {
            *sum = self.more(place, latest, cause);
        }
    }

    /// Leaves out the part of the pause `of` that is before the span. `before`: the pause before it.
    #[inline(always)]
    fn leave_out_of_pause(&mut self, before: u64, of: u64, from_ns: u64, did: &mut Did) {
        let Pause { from_ns: begun_ns, woken_ns, to_ns, .. } = *wrapped(&mut self.pauses, of);
        let early_ns = from_ns.saturating_sub(begun_ns);
        let sleep_ns = woken_ns.wrapping_sub(begun_ns);
        did.sums.slept_ns -= if early_ns < sleep_ns { early_ns } else { sleep_ns };
        let wait_ns = to_ns.saturating_sub(woken_ns);
        let early_ns = early_ns.saturating_sub(sleep_ns);
        if early_ns == 0 || wait_ns == 0 {
            return;
        }
        let share = share(early_ns, wait_ns);
        for (cause, sum) in did.sums.by_cause.iter_mut().enumerate() {
            *sum -= scaled(self.more(before, of, cause), share);
        }
    }

    /// Adds the part of the time between two older pauses that is in the span, in proportion.
    #[inline(always)]
    fn add_estimate(&mut self, before: u64, after: u64, did: &mut Did) {
        let whole_ns = wrapped(&mut self.pauses, after).to_ns - wrapped(&mut self.pauses, before).to_ns;
        if whole_ns == 0 {
            return;
        }
        let share = share(did.unknown_ns, whole_ns);
        let slept_ns = self.slept(before, after);
        did.sums.slept_ns += scaled(slept_ns, share);
        for (cause, sum) in did.sums.by_cause.iter_mut().enumerate() {
            *sum += scaled(self.more(before, after, cause), share);
        }
        (did.estimated_ns, did.unknown_ns) = (did.unknown_ns, 0);
    }

    #[inline(always)]
    fn slept(&mut self, before: u64, after: u64) -> u64 {
        let earlier_ns = wrapped(&mut self.pauses, before).after.slept_ns;
        wrapped(&mut self.pauses, after).after.slept_ns.wrapping_sub(earlier_ns)
    }

    #[inline(always)]
    fn more(&mut self, before: u64, after: u64, cause: usize) -> u64 {
        let earlier_ns = wrapped(&mut self.pauses, before).after.by_cause[cause];
        wrapped(&mut self.pauses, after).after.by_cause[cause].wrapping_sub(earlier_ns)
    }
}

/// No pause is at this place.
const NONE: u64 = u64::MAX;
/// Shares are in units of 2^-`SHIFT`, so that no product overflows for a wait of up to three days.
const SHIFT: u32 = 16;

#[inline(always)]
fn recent(number: u64) -> u64 {
    number % KEPT as u64
}

#[inline(always)]
fn older(group: u64) -> u64 {
    KEPT as u64 + group % KEPT as u64
}

/// Returns the share of `part` in `whole`. `whole` is not 0.
#[inline(always)]
fn share(part: u64, whole: u64) -> u64 {
    (part << SHIFT) / whole
}

#[inline(always)]
fn scaled(ns: u64, share: u64) -> u64 {
    (ns * share) >> SHIFT
}

impl Sums {
    #[inline(always)]
    pub fn total(&self) -> u64 {
        self.by_cause.iter().fold(self.slept_ns, |sum, ns| sum + ns)
    }
}

#[cfg(test)]
mod tests;
