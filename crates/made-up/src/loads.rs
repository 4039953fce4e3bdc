//! Generates samples of a service with a quota. Each load has known results.

use std::sync::Arc;

use cgscope_model::{CgroupReading, CpuReading, DemandReading, Sample, demand::parts};

pub const S: u64 = 1_000_000_000;
pub const MS: u64 = 1_000_000;
/// Binary logarithm of a slot's length, ns.
pub const SHIFT: u32 = 24;
/// Duration of the samples, seconds.
pub const SECONDS: u64 = 20;

/// Paths of a slice with a quota of 1 CPU, of a service in this slice with 0.5 CPUs, and of a batch job in the service without a
/// quota.
pub const PATHS: [&str; 3] = ["/shop.slice", "/shop.slice/web.service", "/shop.slice/web.service/batch"];

/// A load: when its tasks run under a quota of 50 ms in periods of 100 ms. All times are ms since the start of a cycle. A period
/// is not a whole number of slots.
pub struct Load {
    pub tasks: u64,
    pub cycle_ms: u64,
    pub ran: &'static [(u64, u64)],
    /// When the tasks would run without a limit.
    pub wanted: &'static [(u64, u64)],
    pub throttled: &'static [(u64, u64)],
    pub waited: &'static [(u64, u64)],
    /// When the tasks could have used a CPU in addition.
    pub presumed: &'static [(u64, u64)],
    /// Number of throttled periods in a cycle.
    pub throttled_periods: u64,
}

pub const NONE: Load = Load {
    tasks: 1,
    cycle_ms: 100,
    ran: &[],
    wanted: &[],
    throttled: &[],
    waited: &[],
    presumed: &[],
    throttled_periods: 0,
};
pub const LOOP: Load = Load {
    ran: &[(0, 50)],
    wanted: &[(0, 50)],
    throttled: &[(50, 100)],
    presumed: &[(50, 100)],
    throttled_periods: 1,
    ..NONE
};
/// Two busy loops, each on its own CPU.
pub const TWO_LOOPS: Load = Load {
    tasks: 2,
    ran: &[(0, 25)],
    wanted: &[(0, 25)],
    throttled: &[(25, 100)],
    presumed: &[(25, 100)],
    ..LOOP
};
/// A task that needs 20 ms in each period.
pub const SMALL: Load = Load { ran: &[(0, 20)], wanted: &[(0, 20)], ..NONE };
/// A task that needs 60 ms in every other period.
pub const BURSTS: Load = Load {
    cycle_ms: 200,
    ran: &[(0, 50), (100, 110)],
    wanted: &[(0, 60)],
    throttled: &[(50, 100)],
    throttled_periods: 1,
    ..NONE
};

impl Load {
    /// Returns how much of `spans` lies between two times, summed over the tasks, ns.
    fn within(&self, spans: &[(u64, u64)], begin: u64, end: u64) -> u64 {
        let cycle = self.cycle_ms * MS;
        let one = |at: u64| {
            let part =
                |(from, to): &(u64, u64)| (at + to * MS).min(end).saturating_sub((at + from * MS).max(begin));
            spans.iter().map(part).sum::<u64>()
        };
        (begin / cycle..=end / cycle).map(|number| one(number * cycle)).sum::<u64>() * self.tasks
    }

    fn amounts(&self, slot: u64) -> [u64; 5] {
        [self.ran, self.wanted, self.throttled, self.waited, self.presumed]
            .map(|spans| parts(self.within(spans, slot << SHIFT, (slot + 1) << SHIFT), SHIFT))
    }
}

/// Returns samples of the load, one sample each second.
pub fn samples(load: &Load) -> Vec<Sample> {
    let sample = |second: u64| {
        let slots: Vec<_> = (0..=(SECONDS * S) >> SHIFT)
            .filter(|slot| (slot << SHIFT) / S + 1 == second)
            .map(|slot| (slot, load.amounts(slot)))
            .collect();
        let only: Vec<_> = slots.iter().map(|(_, amounts)| *amounts).collect();
        let first = slots.first().map_or(0, |(slot, _)| *slot);
        let of = |id: u64, sum: u64| if id == 2 { sum } else { 0 };
        let limits = |id: u64, quota_us: Option<u64>| CgroupReading {
            id,
            quota_us,
            period_us: Some(100_000),
            usage_ns: Some(load.within(load.ran, 0, second * S)),
            nr_periods: Some(second * 10),
            nr_throttled: Some(of(id, second * S / (load.cycle_ms * MS) * load.throttled_periods)),
            throttled_ns: Some(of(id, load.within(load.throttled, 0, second * S))),
            ..CgroupReading::default()
        };
        Sample {
            unix_ns: second * S,
            mono_ns: second * S,
            demand_until_ns: Some(second * S),
            demand: DemandReading::new(2, SHIFT, first, &only).into_iter().collect(),
            limits: vec![limits(1, Some(100_000)), limits(2, Some(50_000)), limits(3, None)],
            cgroups: (1..).zip(PATHS.map(Arc::from)).collect(),
            cpus: [0, 1].map(|cpu| CpuReading { cpu, ..Default::default() }).to_vec(),
            ..Sample::default()
        }
    };
    (0..=SECONDS).map(sample).collect()
}
