//! For tests: computes the recording of a server with one task under a quota, without any code of the simulation.

use crate::{Limit, Profile, Slot};

const SLOT_MS: f64 = 16.8;
const PERIOD_MS: f64 = 100.0;

/// A server with one task. Each request takes `cost_ms` of CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub cost_ms: f64,
    pub quota_ms: f64,
    /// In each period, the quota of an ancestor is used up at this time.
    pub open_ms: f64,
    pub length_ms: f64,
    /// Whether costs are random, with the mean `cost_ms`.
    pub is_uneven: bool,
}

/// The recording of a [`Server`].
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub profile: Profile,
    /// Share of the periods that were throttled, 0 to 1.
    pub throttled: f64,
}

impl Server {
    pub fn new(cost_ms: f64, quota_ms: f64) -> Self {
        Self { cost_ms, quota_ms, open_ms: PERIOD_MS, length_ms: 20_000.0, is_uneven: false }
    }

    pub fn limit(&self) -> Limit {
        let [quota_ns, period_ns] = [self.quota_ms, PERIOD_MS].map(|ms| (ms * 1e6) as u64);
        Limit { quota_ns, period_ns, burst_ns: 0 }
    }

    /// Serves requests one after the other. `next` gets the begin and the end of a request, and returns the arrival of the next
    /// request, ms. If that time has passed, the next request begins at once.
    pub fn serve(self, next: &mut dyn FnMut(f64, f64) -> f64) -> Served {
        let mut slots = vec![Slot::default(); (self.length_ms / SLOT_MS) as usize + 1];
        let (mut now_ms, mut used_ms, mut period, mut throttled) = (3.0f64, 0.0, 0.0, 0.0);
        let mut costs_ms = random_gaps(5, self.cost_ms);
        // The time at which the work would be done if the task had not been throttled since its wakeup.
        let mut position_ms = now_ms;
        while now_ms < self.length_ms {
            let begin_ms = now_ms;
            let mut left_ms = if self.is_uneven { costs_ms() } else { self.cost_ms };
            while left_ms > 1e-9 {
                if (now_ms / PERIOD_MS).floor() > period {
                    (period, used_ms) = ((now_ms / PERIOD_MS).floor(), 0.0);
                }
                let open_ms = (period * PERIOD_MS + self.open_ms - now_ms).max(0.0);
                let run_ms = left_ms.min(self.quota_ms - used_ms).min(open_ms);
                add(&mut slots, now_ms, run_ms, |slot| &mut slot.ran_ns);
                add(&mut slots, position_ms, run_ms, |slot| &mut slot.firm_ns);
                position_ms += run_ms;
                (now_ms, used_ms, left_ms) = (now_ms + run_ms, used_ms + run_ms, left_ms - run_ms);
                if left_ms > 1e-9 {
                    let end_ms = (period + 1.0) * PERIOD_MS;
                    add(&mut slots, now_ms, end_ms - now_ms, |slot| &mut slot.waited_ns);
                    throttled += f64::from(end_ms - now_ms > 1e-6);
                    now_ms = end_ms;
                }
            }
            let next_ms = next(begin_ms, now_ms);
            if next_ms > now_ms {
                (now_ms, position_ms) = (next_ms, next_ms);
            }
        }
        let profile = Profile { slot_ns: (SLOT_MS * 1e6) as u64, slots };
        Served { profile, throttled: throttled / (self.length_ms / PERIOD_MS) }
    }

    /// Serves requests that arrive with these gaps (ms), whether the server is busy or not.
    pub fn serve_all(self, mut gap_ms: impl FnMut() -> f64) -> Served {
        let mut due_ms = 3.0;
        self.serve(&mut |_, _| {
            due_ms += gap_ms();
            due_ms
        })
    }
}

fn add(slots: &mut [Slot], from_ms: f64, length_ms: f64, amount: impl Fn(&mut Slot) -> &mut u64) {
    let (mut at_ms, to_ms) = (from_ms, from_ms + length_ms);
    while at_ms < to_ms {
        let slot = (at_ms / SLOT_MS) as usize;
        let end_ms = ((slot + 1) as f64 * SLOT_MS).min(to_ms).max(at_ms + 1e-6);
        if let Some(slot) = slots.get_mut(slot) {
            *amount(slot) += ((end_ms - at_ms) * 1e6) as u64;
        }
        at_ms = end_ms;
    }
}

/// Returns random gaps (ms) with an exponential distribution and this mean.
pub(crate) fn random_gaps(mut random: u64, mean_ms: f64) -> impl FnMut() -> f64 {
    move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        -mean_ms * (((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln()
    }
}
