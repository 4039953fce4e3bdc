//! The pressure of cgroups: reads the tables of all CPUs, and combines the CPUs as the kernel does for `cpu.pressure`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cgscope_layout::{
    Cause,
    pressure::{Entry, KeptPressure, Pressures, Union},
};
use cgscope_model::{Sample, TaskReading};

use crate::placement::Active;

/// A cgroup on a CPU.
type Place = (u64, u32);

/// No CPU: see [`CgroupPressures::take_kept`].
const KEPT: u32 = u32::MAX;

/// Time of one kind or the other, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pressure {
    /// At least one task waited for a CPU.
    contention_ns: u64,
    /// Tasks were at a limit, and none waited for a CPU.
    throttled_ns: u64,
    /// By how much the two may be off.
    uncertain_ns: u64,
}

impl Pressure {
    fn map(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            contention_ns: op(self.contention_ns, other.contention_ns),
            throttled_ns: op(self.throttled_ns, other.throttled_ns),
            uncertain_ns: op(self.uncertain_ns, other.uncertain_ns),
        }
    }

    fn add(&mut self, more: Self) {
        *self = self.map(more, u64::saturating_add);
    }

    /// The share of `part` in `whole`.
    fn share(self, part: u64, whole: u64) -> Self {
        let share = |ns: u64| (u128::from(ns) * u128::from(part) / u128::from(whole.max(1))) as u64;
        self.map(self, |ns, _| share(ns))
    }
}

/// What tasks of a cgroup, or below it, do on a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// How long they ran since the last reading, ns.
    ran_ns: u64,
    /// Since when the first of those waits that wait now, ns of `rq->clock`; 0: none.
    waits_since_ns: u64,
    /// Since when the first of those waits for a CPU, after its time at a limit; 0: none.
    behind_since_ns: u64,
}

impl Load {
    fn add(&mut self, other: &Self) {
        let first = |a: u64, b: u64| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        self.ran_ns = self.ran_ns.saturating_add(other.ran_ns);
        self.waits_since_ns = first(self.waits_since_ns, other.waits_since_ns);
        self.behind_since_ns = first(self.behind_since_ns, other.behind_since_ns);
    }

    fn of(task: &TaskReading, ran_ns: u64, clock_ns: u64) -> Self {
        let Some(pending) = &task.pending else { return Self { ran_ns, ..Self::default() } };
        let here_ns = pending.ns.saturating_sub(pending.booked_ns);
        let limit_ns = pending.by_cause.get(Cause::Throttled) + pending.by_cause.get(Cause::RtThrottled);
        let since_ns = clock_ns.saturating_sub(here_ns);
        let behind_since_ns = if limit_ns >= here_ns { 0 } else { since_ns + limit_ns };
        Self { ran_ns, waits_since_ns: since_ns, behind_since_ns }
    }
}

/// The pressure of each cgroup since the start.
#[derive(Default)]
pub(crate) struct CgroupPressures {
    /// The entries of the latest reading.
    entries: Vec<(u32, Entry)>,
    /// The start of each entry in the reading before, and its pressure, with the waits of that time.
    seen: HashMap<Place, (u64, Pressure)>,
    /// The clock of the reading before, ns.
    clock_ns: u64,
    sums: HashMap<u64, Pressure>,
    /// The pressure of the root on each CPU.
    cpus: BTreeMap<u32, Pressure>,
}

impl CgroupPressures {
    /// Begins a reading.
    pub(crate) fn begin(&mut self) {
        self.entries.clear();
    }

    /// Takes the table of a CPU.
    pub(crate) fn take(&mut self, cpu: u32, table: &Pressures) {
        let used = table.entries.iter().filter(|entry| entry.id != 0);
        self.entries.extend(used.map(|entry| (cpu, *entry)));
    }

    /// Takes what is kept for a cgroup, as an entry of one more CPU.
    pub(crate) fn take_kept(&mut self, id: u64, kept: &KeptPressure) {
        if *kept == KeptPressure::default() {
            return;
        }
        let union = |total_ns, uncertain_ns| Union { total_ns, uncertain_ns, ..Union::default() };
        let (contention, some) = (union(kept.contention_ns, kept.uncertain_ns), union(kept.whole_ns, 0));
        self.entries
            .push((KEPT, Entry { id, born_ns: 1, has_limits: 1, contention, some, ..Entry::default() }));
    }

    /// Adds the pressure to a sample. `active`: the tasks that are not the same as in the sample before. `above`: the cgroups above a
    /// cgroup.
    pub(crate) fn add_to<A: Iterator<Item = u64>>(
        &mut self,
        sample: &mut Sample,
        active: &[Active],
        clock_ns: u64,
        root_id: u64,
        above: impl Fn(u64) -> A,
    ) {
        let mut loads = loads(&sample.tasks, active, clock_ns, above);
        let mut now: Vec<(Place, Entry, Load)> = Vec::new();
        for (cpu, entry) in std::mem::take(&mut self.entries) {
            let place = (entry.id, cpu);
            now.push((place, entry, loads.remove(&place).unwrap_or_default()));
        }
        now.extend(loads.into_iter().map(|(place, load)| (place, Entry::default(), load)));
        self.advance(now, clock_ns, root_id);
        for limits in &mut sample.limits {
            let sum = self.sums.get(&limits.id).copied().unwrap_or_default();
            limits.contention_ns = Some(sum.contention_ns);
            limits.throttled_pressure_ns = Some(sum.throttled_ns);
            limits.pressure_uncertain_ns = Some(sum.uncertain_ns);
        }
        for cpu in &mut sample.cpus {
            let sum = self.cpus.get(&cpu.cpu).copied().unwrap_or_default();
            (cpu.contention_ns, cpu.throttled_pressure_ns) =
                (Some(sum.contention_ns), Some(sum.throttled_ns));
        }
        // Only removed cgroups have no limits. Their sums would be of no use.
        let is_there = |id: &u64| sample.limits.binary_search_by_key(id, |limits| limits.id).is_ok();
        self.sums.retain(|id, _| is_there(id));
    }

    /// Adds the increase since the reading before. The kernel weights each CPU by the time in which it was not idle for the cgroup
    /// (`collect_percpu_times` in `kernel/sched/psi.c`, Linux 4.20 to 7.2): here that is the time in which a task ran or waited there.
    fn advance(&mut self, now: Vec<(Place, Entry, Load)>, clock_ns: u64, root_id: u64) {
        let elapsed_ns = clock_ns.saturating_sub(self.clock_ns);
        let mut increases: HashMap<u64, Vec<(Pressure, u64)>> = HashMap::new();
        let mut seen = HashMap::new();
        for (place, entry, load) in now {
            let pressure = pressure(&entry, &load, clock_ns);
            // A cgroup without an entry had only waits that were not over. They count in the entry that it got since.
            let known =
                self.seen.get(&place).filter(|(born_ns, _)| *born_ns == entry.born_ns || *born_ns == 0);
            let known = known.map(|(_, pressure)| *pressure).unwrap_or_default();
            let increase = pressure.map(known, u64::saturating_sub);
            seen.insert(place, (entry.born_ns, pressure.map(known, u64::max)));
            let (id, cpu) = place;
            if id == root_id {
                self.cpus.entry(cpu).or_default().add(increase);
            }
            let waited_ns = increase.contention_ns.saturating_add(increase.throttled_ns);
            let weight = load.ran_ns.saturating_add(waited_ns).min(elapsed_ns);
            increases.entry(id).or_default().push((increase, weight));
        }
        for (id, cpus) in increases {
            let whole = cpus.iter().map(|(_, weight)| weight).sum();
            let sum = self.sums.entry(id).or_default();
            cpus.into_iter().for_each(|(increase, weight)| sum.add(increase.share(weight, whole)));
        }
        (self.seen, self.clock_ns) = (seen, clock_ns);
    }
}

/// The pressure of an entry, with the waits that are not over.
fn pressure(entry: &Entry, load: &Load, clock_ns: u64) -> Pressure {
    let (mut contention, mut whole) = (entry.contention, *entry.whole());
    let both = [(&mut contention, load.behind_since_ns), (&mut whole, load.waits_since_ns)];
    for (union, since_ns) in both.into_iter().filter(|(_, since_ns)| *since_ns != 0 && *since_ns < clock_ns) {
        union.add(since_ns, clock_ns, clock_ns - since_ns, 0);
    }
    Pressure {
        contention_ns: contention.total_ns,
        throttled_ns: whole.total_ns.saturating_sub(contention.total_ns),
        uncertain_ns: contention.uncertain_ns.saturating_add(whole.uncertain_ns),
    }
}

/// What the active tasks do, for their cgroups and all cgroups above.
fn loads<A: Iterator<Item = u64>>(
    tasks: &[Arc<TaskReading>],
    active: &[Active],
    clock_ns: u64,
    above: impl Fn(u64) -> A,
) -> HashMap<Place, Load> {
    let mut own: HashMap<Place, Load> = HashMap::new();
    for active in active {
        let Ok(at) = tasks.binary_search_by_key(&active.serial, |task| task.serial) else { continue };
        let task = &tasks[at];
        let load = Load::of(task, active.ran_ns, clock_ns);
        own.entry((task.cgroup_id, task.cpu)).or_default().add(&load);
    }
    let mut loads = own.clone();
    for ((id, cpu), load) in &own {
        above(*id).for_each(|id| loads.entry((id, *cpu)).or_default().add(load));
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_layout::pressure::Union;
    use cgscope_model::{ByCause, CgroupReading, CpuReading, Pending};

    const SECOND: u64 = 1_000_000_000;

    fn entry(id: u64, contention_ns: u64, whole_ns: u64) -> Entry {
        let union = |total_ns| Union { total_ns, ..Union::default() };
        let (contention, some) = (union(contention_ns), union(whole_ns));
        Entry { id, born_ns: 1, has_limits: 1, contention, some, ..Entry::default() }
    }

    fn task(serial: u64, cgroup_id: u64, cpu: u32, pending: Option<(u64, u64)>) -> Arc<TaskReading> {
        let pending = pending.map(|(ns, limit_ns)| {
            let mut by_cause = ByCause::only(Cause::Throttled, limit_ns);
            by_cause.add(&ByCause::only(Cause::OtherCgroup, ns - limit_ns));
            Arc::new(Pending { ns, booked_ns: 0, by_cause })
        });
        Arc::new(TaskReading { serial, cgroup_id, cpu, pending, ..TaskReading::default() })
    }

    fn ran(serial: u64, ran_ns: u64) -> Active {
        Active { serial, ran_ns, since_ns: ran_ns }
    }

    /// Cgroup 7 is below the root, 1.
    fn above(id: u64) -> impl Iterator<Item = u64> {
        (id != 1).then_some(1).into_iter()
    }

    /// Reads at each second. Returns the pressure of the cgroup and of the root's CPUs.
    fn read(
        pressures: &mut CgroupPressures,
        second: u64,
        entries: &[(u32, Entry)],
        tasks: Vec<Arc<TaskReading>>,
        active: &[Active],
    ) -> (u64, u64) {
        pressures.entries.extend(entries);
        let limits = [1, 7].map(|id| CgroupReading { id, ..CgroupReading::default() }).to_vec();
        let cpus = [0, 1].map(|cpu| CpuReading { cpu, ..CpuReading::default() }).to_vec();
        let mut sample = Sample { tasks, limits, cpus, ..Sample::default() };
        pressures.add_to(&mut sample, active, second * SECOND, 1, above);
        let of = &sample.limits[1];
        (of.contention_ns.expect("a figure"), of.throttled_pressure_ns.expect("a figure"))
    }

    #[test]
    fn cpus_are_weighted_by_the_time_in_which_they_were_not_idle() {
        let mut pressures = CgroupPressures::default();
        let tasks = || vec![task(1, 7, 0, None), task(2, 7, 1, None)];
        read(&mut pressures, 1, &[(0, entry(7, 0, 0)), (1, entry(7, 0, 0))], tasks(), &[]);
        // CPU 0: half of the second waited, half of it ran. CPU 1: a quarter ran, nobody waited.
        let entries = [(0, entry(7, SECOND / 2, SECOND / 2)), (1, entry(7, 0, 0))];
        let active = [ran(1, SECOND / 2), ran(2, SECOND / 4)];
        assert_eq!(read(&mut pressures, 2, &entries, tasks(), &active), (SECOND / 2 * 4 / 5, 0));
        assert_eq!(read(&mut pressures, 3, &entries, tasks(), &[]), (SECOND / 2 * 4 / 5, 0), "nothing new");
    }

    #[test]
    fn a_wait_that_is_not_over_counts_once() {
        let mut pressures = CgroupPressures::default();
        let waits = |ns, limit_ns| vec![task(1, 7, 0, Some((ns, limit_ns)))];
        read(&mut pressures, 1, &[], vec![], &[]);
        let half = SECOND / 2;
        assert_eq!(read(&mut pressures, 2, &[], waits(half, 0), &[ran(1, 0)]), (half, 0));
        assert_eq!(read(&mut pressures, 3, &[], waits(half + SECOND, 0), &[ran(1, 0)]), (half + SECOND, 0));
        // It ends, and another one begins at a limit.
        let ended = entry(7, half + SECOND, half + SECOND);
        assert_eq!(
            read(&mut pressures, 4, &[(0, ended)], waits(half, half), &[ran(1, 0)]),
            (half + SECOND, half)
        );
        // The cgroup has lost its entry and got another one.
        let again = Entry { born_ns: 5, ..entry(7, 100, 100) };
        assert_eq!(read(&mut pressures, 5, &[(0, again)], vec![], &[]), (half + SECOND + 100, half));
    }

    #[test]
    fn waits_count_for_the_cgroups_above_and_for_their_cpu() {
        let mut pressures = CgroupPressures::default();
        read(&mut pressures, 1, &[], vec![], &[]);
        pressures.entries.push((1, entry(1, SECOND / 4, SECOND / 2)));
        let limits = vec![CgroupReading { id: 1, ..CgroupReading::default() }];
        let cpus = vec![CpuReading { cpu: 1, ..CpuReading::default() }];
        let tasks = vec![task(1, 7, 1, Some((SECOND / 10, 0)))];
        let mut sample = Sample { tasks, limits, cpus, ..Sample::default() };
        pressures.add_to(&mut sample, &[ran(1, 0)], 2 * SECOND, 1, above);
        let expected = (Some(SECOND / 4 + SECOND / 10), Some(SECOND / 4));
        assert_eq!((sample.limits[0].contention_ns, sample.limits[0].throttled_pressure_ns), expected);
        assert_eq!((sample.cpus[0].contention_ns, sample.cpus[0].throttled_pressure_ns), expected);
    }
}
