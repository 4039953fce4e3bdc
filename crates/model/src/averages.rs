//! Averages of pressure over the last 10, 60 and 300 seconds, as the kernel shows them for `cpu.pressure`.

use std::{collections::BTreeMap, sync::Arc};

use crate::Interval;

/// The seconds of each average.
pub const AVERAGED_S: [u64; 3] = [10, 60, 300];
/// Below this share an average counts as 0.
const LEAST: f64 = 1e-4;

/// The averages of a cgroup, as shares of the time, 0 to 1, over each of [`AVERAGED_S`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Averages {
    /// See [`CgroupReading::contention_ns`](crate::CgroupReading::contention_ns).
    pub contention: [f64; 3],
    /// See [`CgroupReading::throttled_pressure_ns`](crate::CgroupReading::throttled_pressure_ns).
    pub limit: [f64; 3],
}

/// The averages of all cgroups. Older intervals count exponentially less, as in the kernel (`calc_avgs` in `kernel/sched/psi.c`). The
/// kernel's averages start at 0; these start with the first interval, so that they are right from the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PressureAverages {
    /// How much of each average is known, 0 to 1.
    known: [f64; 3],
    /// The sums of cgroups with pressure, by path.
    sums: BTreeMap<Arc<str>, Averages>,
}

impl PressureAverages {
    /// Adds the next interval.
    pub fn push(&mut self, interval: &Interval) {
        let length_ns = interval.duration_ns as f64;
        if length_ns == 0.0 {
            return;
        }
        let decay = AVERAGED_S.map(|seconds| (-length_ns / (seconds as f64 * 1e9)).exp());
        let add = |sums: &mut [f64; 3], share: f64| {
            sums.iter_mut().zip(decay).for_each(|(sum, decay)| *sum = *sum * decay + share * (1.0 - decay));
        };
        add(&mut self.known, 1.0);
        let before = std::mem::take(&mut self.sums);
        for limits in &interval.limits {
            let pressure = limits.contention_ns.zip(limits.throttled_pressure_ns);
            let (Some((contention, limit)), Some(path)) = (pressure, interval.cgroup_path(limits.id)) else {
                continue;
            };
            let mut sums = before.get(path).copied().unwrap_or_default();
            add(&mut sums.contention, contention as f64 / length_ns);
            add(&mut sums.limit, limit as f64 / length_ns);
            if sums.contention.iter().chain(&sums.limit).any(|sum| *sum >= LEAST) {
                self.sums.insert(path.clone(), sums);
            }
        }
    }

    /// The averages of a cgroup; all 0 if it has no pressure.
    pub fn of(&self, path: &str) -> Averages {
        let mut averages = self.sums.get(path).copied().unwrap_or_default();
        for shares in [&mut averages.contention, &mut averages.limit] {
            for (share, known) in shares.iter_mut().zip(self.known) {
                *share = if known > 0.0 { *share / known } else { 0.0 };
            }
        }
        averages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CgroupReading, Sample};

    const SECOND: u64 = 1_000_000_000;

    /// An interval of a second with this contention of a cgroup.
    fn second(contention_ns: u64) -> Interval {
        let at = |mono_ns: u64, ns: u64| Sample {
            mono_ns,
            limits: vec![CgroupReading {
                id: 7,
                contention_ns: Some(ns),
                throttled_pressure_ns: Some(ns / 4),
                ..CgroupReading::default()
            }],
            cgroups: vec![(7, "/a".into())],
            ..Sample::default()
        };
        Interval::between(&at(SECOND, 0), &at(2 * SECOND, contention_ns))
    }

    #[test]
    fn averages_are_right_from_the_start_and_follow_as_in_the_kernel() {
        let mut averages = PressureAverages::default();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        for _ in 0..5 {
            averages.push(&second(SECOND / 2));
            let Averages { contention, limit } = averages.of("/a");
            assert!(contention.iter().all(|share| near(*share, 0.5)), "{contention:?}");
            assert!(limit.iter().all(|share| near(*share, 0.125)), "{limit:?}");
        }
        for _ in 0..10 {
            averages.push(&second(0));
        }
        // Ten seconds later the first one counts 1 / e, of what is known after 15 s.
        let known = 1.0 - (-1.5f64).exp();
        let expected = 0.5 * (1.0 - (-0.5f64).exp()) * (-1.0f64).exp() / known;
        let [ten, minute, _] = averages.of("/a").contention;
        assert!(near(ten, expected), "{ten} {expected}");
        assert!(minute > ten);
        assert_eq!(averages.of("/b"), Averages::default());
    }

    #[test]
    fn a_cgroup_without_pressure_is_dropped_in_the_end() {
        let mut averages = PressureAverages::default();
        averages.push(&second(SECOND));
        (0..3_600).for_each(|_| averages.push(&second(0)));
        assert!(averages.sums.is_empty());
    }
}
