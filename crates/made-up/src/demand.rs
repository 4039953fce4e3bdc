//! Generates a host whose cgroups have quotas, and the demand of their tasks as cgscope records it.

use std::{collections::VecDeque, sync::Arc};

use cgscope_ledger::demand::{AMOUNTS, Amount, LONGEST_LAG};
use cgscope_model::{
    CgroupReading, CpuReading, DemandReading, Sample, TaskReading, Totals,
    demand::{ns_of, parts},
};

use crate::{BOOTED_NS, CPUS, Chance, ROUND_NS};

/// Binary logarithm of a slot's length, ns.
const SHIFT: u32 = 24;
const PERIOD_NS: u64 = 100_000_000;
/// Number of slots before the current slot in which a run may still be counted.
const KEPT: u64 = LONGEST_LAG + 8;
const FIRST_ID: u64 = 1_000;
/// One of this many cgroups is the only container of a pod, and the pod's quota is higher.
const IN_PODS: u64 = 5;

/// When the next piece of work begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Next {
    /// Immediately, as in a busy loop.
    #[default]
    AtOnce,
    /// At fixed times.
    Clock,
    /// At random times, as requests arrive.
    Random,
    Pause,
}

/// A load: what the tasks of a cgroup do. All tasks of a load do the same at the same time.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    next: Next,
    tasks: u64,
    /// CPU time that each task needs for a piece of work, and the time until the next piece of work, µs.
    cost_us: u64,
    gap_us: u64,
    /// Quota in each period, divided by the number of tasks, µs.
    quota_us: u64,
}

const fn load(next: Next, tasks: u64, cost_us: u64, gap_us: u64, quota_us: u64) -> Load {
    Load { next, tasks, cost_us, gap_us, quota_us }
}

/// A load of three busy loops. Few cgroups have this load.
const LOOP: Load = load(Next::AtOnce, 3, 50_000, 0, 60_000);

/// The other loads. Nearly half of these loads use up their quotas.
const LOADS: [Load; 12] = [
    load(Next::Random, 1, 1_000, 25_000, 50_000),
    load(Next::Random, 2, 24_000, 150_000, 30_000),
    load(Next::Clock, 1, 2_000, 50_000, 20_000),
    load(Next::Random, 4, 50_000, 180_000, 35_000),
    load(Next::Random, 4, 3_000, 33_000, 50_000),
    load(Next::Clock, 1, 18_000, 110_000, 25_000),
    load(Next::Pause, 1, 5_000, 60_000, 40_000),
    load(Next::Pause, 2, 30_000, 71_000, 25_000),
    load(Next::Random, 1, 700, 9_000, 100_000),
    load(Next::Clock, 3, 30_000, 100_000, 32_000),
    load(Next::Clock, 1, 10_000, 1_000_000, 60_000),
    load(Next::Random, 1, 60_000, 400_000, 30_000),
];

#[derive(Default)]
struct Service {
    id: u64,
    load: Load,
    chance: Chance,
    now_ns: u64,
    /// When the current or next piece of work was due, and the CPU time that it still needs, ns.
    due_ns: u64,
    left_ns: u64,
    /// When the next run would begin if the tasks had not waited since their wakeup.
    position_ns: u64,
    /// Number of the current period, and the used part of its quota, ns.
    period: u64,
    used_ns: u64,
    is_throttled: bool,
    /// Sums for each task.
    ran_ns: u64,
    throttled_ns: u64,
    periods: u64,
    throttled_periods: u64,
    first: u64,
    slots: VecDeque<[u64; AMOUNTS]>,
    /// Remainders of each amount that are shorter than the unit in which slots are stored, ns.
    rest_ns: [u64; AMOUNTS],
}

impl Service {
    fn new(number: u64) -> Self {
        Self {
            id: FIRST_ID + number,
            load: if number % 40 == 9 { LOOP } else { LOADS[(number % LOADS.len() as u64) as usize] },
            chance: Chance::of(number),
            now_ns: BOOTED_NS,
            due_ns: BOOTED_NS + number * 1_234_567 % 100_000_000,
            position_ns: BOOTED_NS,
            first: (BOOTED_NS >> SHIFT) - KEPT,
            ..Self::default()
        }
    }

    fn path(&self) -> String {
        match self.id % IN_PODS {
            0 => format!("/kubepods.slice/kubepods-pod{0}.slice/cri-containerd-{0}.scope", self.id),
            _ => format!("/system.slice/service-{}.service", self.id),
        }
    }

    /// Adds the time from `from_ns` to `to_ns` to the slots, for all tasks together.
    fn add(&mut self, amount: Amount, mut from_ns: u64, to_ns: u64) {
        while from_ns < to_ns {
            let slot = from_ns >> SHIFT;
            let end_ns = ((slot + 1) << SHIFT).min(to_ns);
            let at = slot.saturating_sub(self.first) as usize;
            if at >= self.slots.len() {
                self.slots.resize(at + 1, [0; AMOUNTS]);
            }
            self.slots[at][amount as usize] += (end_ns - from_ns) * self.load.tasks;
            from_ns = end_ns;
        }
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            if self.now_ns / PERIOD_NS > self.period {
                self.periods += u64::from(self.used_ns != 0);
                (self.period, self.used_ns, self.is_throttled) = (self.now_ns / PERIOD_NS, 0, false);
            }
            if self.left_ns != 0 {
                self.work(until_ns);
            } else if self.due_ns > self.now_ns {
                self.now_ns = self.due_ns.min(until_ns).min((self.period + 1) * PERIOD_NS);
                self.position_ns = self.now_ns;
            } else {
                self.begin();
            }
        }
    }

    /// Begins the piece of work that is due now. The size of this work depends on the minute.
    fn begin(&mut self) {
        let minute = self.now_ns / (60 * ROUND_NS) % 15;
        let percent = if minute == 7 { 170 } else { 70 + minute % 5 * 15 };
        self.left_ns = self.load.cost_us * 10 * percent;
        if self.chance.below(4) == 0 {
            let waited_ns = self.chance.below(2_000_000);
            self.add(Amount::Waited, self.now_ns, self.now_ns + waited_ns);
            self.now_ns += waited_ns;
        }
    }

    /// Runs, or waits for quota, until something changes.
    fn work(&mut self, until_ns: u64) {
        let quota_ns = self.load.quota_us * 1_000;
        let end_ns = until_ns.min((self.period + 1) * PERIOD_NS);
        if self.used_ns >= quota_ns {
            self.throttled_periods += u64::from(!std::mem::replace(&mut self.is_throttled, true));
            self.throttled_ns += end_ns.saturating_sub(self.now_ns);
            self.add(Amount::Throttled, self.now_ns, end_ns);
            self.now_ns = self.now_ns.max(end_ns);
            return;
        }
        let run_ns = self.left_ns.min(quota_ns - self.used_ns).min(end_ns.saturating_sub(self.now_ns));
        let latest_ns = self.now_ns - (LONGEST_LAG << SHIFT);
        if self.position_ns < latest_ns {
            self.add(Amount::Presumed, self.position_ns, latest_ns);
            self.position_ns = latest_ns;
        }
        self.add(Amount::Ran, self.now_ns, self.now_ns + run_ns);
        self.add(Amount::Wanted, self.position_ns, self.position_ns + run_ns);
        self.now_ns += run_ns;
        self.position_ns += run_ns;
        self.used_ns += run_ns;
        self.ran_ns += run_ns;
        self.left_ns -= run_ns;
        if self.left_ns == 0 {
            self.end();
        }
    }

    /// Ends a piece of work, and sets the time of the next one.
    fn end(&mut self) {
        let gap_ns = self.load.gap_us * 1_000;
        match self.load.next {
            Next::AtOnce => self.due_ns = self.now_ns,
            Next::Clock => self.due_ns += gap_ns,
            Next::Pause => self.due_ns = self.now_ns + gap_ns,
            Next::Random => {
                let uniform = (self.chance.below(1 << 32) as f64 + 0.5) / (1u64 << 32) as f64;
                self.due_ns += (-uniform.ln() * gap_ns as f64) as u64;
            }
        }
    }

    /// Returns the demand that was not returned yet.
    fn demand(&mut self) -> Option<DemandReading> {
        let mut whole = Vec::with_capacity(self.slots.len());
        for slot in &mut self.slots {
            whole.push(std::array::from_fn(|amount| rounded(slot[amount], &mut self.rest_ns[amount])));
            *slot = [0; AMOUNTS];
        }
        let reading = DemandReading::new(self.id, SHIFT, self.first, &whole);
        let oldest = (self.now_ns >> SHIFT) - KEPT;
        while self.first < oldest {
            self.slots.pop_front();
            self.first += 1;
        }
        reading
    }

    fn limits(&self) -> CgroupReading {
        let all = |ns: u64| Some(ns * self.load.tasks);
        CgroupReading {
            quota_us: Some(self.load.quota_us * self.load.tasks),
            nr_periods: Some(self.periods),
            nr_throttled: Some(self.throttled_periods),
            throttled_ns: all(self.throttled_ns),
            ..self.unlimited(self.id)
        }
    }

    /// Returns the reading of a cgroup without a quota. The tasks of this service are the only tasks in the cgroup.
    fn unlimited(&self, id: u64) -> CgroupReading {
        let used_ns = self.ran_ns * self.load.tasks;
        CgroupReading {
            id,
            period_us: Some(PERIOD_NS / 1_000),
            cpus: Some(CPUS),
            usage_ns: Some(used_ns),
            user_ns: Some(used_ns / 4 * 3),
            system_ns: Some(used_ns / 4),
            pressure_some_ns: Some(self.throttled_ns),
            ..CgroupReading::default()
        }
    }

    fn tasks(&self) -> impl Iterator<Item = Arc<TaskReading>> {
        (0..self.load.tasks).map(|task| {
            Arc::new(TaskReading {
                serial: self.id << 20 | task,
                tid: (self.id * 10 + task) as u32,
                tgid: (self.id * 10) as u32,
                comm: "service".into(),
                cgroup_id: self.id,
                totals: Totals { on_cpu_ns: self.ran_ns, ..Totals::default() },
                ..TaskReading::default()
            })
        })
    }
}

/// Returns `ns` in the unit in which slots are stored. The remainder is added to later amounts.
fn rounded(ns: u64, rest_ns: &mut u64) -> u64 {
    if ns == 0 {
        return 0;
    }
    let parts = parts(ns + *rest_ns, SHIFT);
    *rest_ns = ns + *rest_ns - ns_of(parts, SHIFT);
    parts
}

/// An endless series of samples of a host, one sample each second. The same numbers of cgroups always produce the same samples.
pub struct Limited {
    services: Vec<Service>,
    round: u64,
}

impl Limited {
    /// Creates a host with this many cgroups that have a quota and tasks. A fifth of these cgroups are in pods whose quotas never
    /// run out.
    pub fn new(cgroups: u64) -> Self {
        Self { services: (0..cgroups).map(Service::new).collect(), round: 0 }
    }

    /// Returns the pods. The quota of a pod is 1.5 times the quota of its only container.
    fn pods(&self) -> impl Iterator<Item = (CgroupReading, String)> {
        let count = self.services.len() as u64;
        self.services.iter().filter(|service| service.id % IN_PODS == 0).map(move |service| {
            let reading = CgroupReading {
                quota_us: Some(service.load.quota_us * service.load.tasks * 3 / 2),
                nr_periods: Some(service.periods),
                nr_throttled: Some(0),
                throttled_ns: Some(0),
                ..service.unlimited(service.id + count)
            };
            (reading, format!("/kubepods.slice/kubepods-pod{}.slice", service.id))
        })
    }
}

impl Iterator for Limited {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let now_ns = BOOTED_NS + self.round * ROUND_NS;
        self.services.iter_mut().for_each(|service| service.run(now_ns));
        let demand = self.services.iter_mut().filter_map(Service::demand).collect();
        let services = self.services.iter().map(|service| (service.limits(), service.path()));
        let (limits, paths): (Vec<_>, Vec<_>) = services.chain(self.pods()).unzip();
        let half_ns = Some(self.round * ROUND_NS / 2);
        let cpu = |cpu| CpuReading { cpu, busy_ns: half_ns, idle_ns: half_ns, ..CpuReading::default() };
        self.round += 1;
        Some(Sample {
            unix_ns: 1_700_000_000 * ROUND_NS + now_ns,
            mono_ns: now_ns,
            demand_until_ns: Some(now_ns),
            demand,
            tasks: self.services.iter().flat_map(Service::tasks).collect(),
            cgroups: limits.iter().map(|reading| reading.id).zip(paths.into_iter().map(Arc::from)).collect(),
            limits,
            cpus: (0..CPUS).map(cpu).collect(),
            ..Sample::default()
        })
    }
}
