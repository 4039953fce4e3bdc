//! Computes the pressure of cgroups. Reads the tables of all CPUs, and combines CPUs as the kernel does for `cpu.pressure`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cgscope_ledger::{
    Cause,
    pressure::{Entry, KeptPressure, Pressures, Union},
    wire::names,
};
use cgscope_model::{Sample, TaskReading};

use crate::{
    Failure,
    cgroups::CgroupTree,
    domain::{Domain, Draft},
    placement::Active,
};

/// A cgroup on a CPU.
type Place = (u64, u32);

/// Stands for no CPU: see [`CgroupPressures::take_kept`].
const KEPT: u32 = u32::MAX;
/// Value of [`Entry::born_ns`] if there is no entry.
const NO_ENTRY: u64 = 0;

/// Pressure, split into contention and throttling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pressure {
    /// Time during which at least one task waited for a CPU, ns.
    contention_ns: u64,
    /// Time during which at least one task was throttled and no task waited for a CPU, ns.
    throttled_ns: u64,
    /// Maximum error of the two times, ns.
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

    /// Returns the time during which tasks waited or were throttled.
    fn waited_ns(self) -> u64 {
        self.contention_ns.saturating_add(self.throttled_ns)
    }

    /// Limits the pressure to the elapsed time. The excess becomes uncertainty.
    fn at_most(self, elapsed_ns: u64) -> Self {
        let waited_ns = self.waited_ns();
        let left_out_ns = waited_ns.saturating_sub(elapsed_ns);
        if left_out_ns == 0 {
            return self;
        }
        let uncertain_ns = self.uncertain_ns.saturating_add(left_out_ns).min(elapsed_ns);
        Self { uncertain_ns, ..self.share(elapsed_ns, waited_ns) }
    }

    /// Returns the share `part / whole` of the pressure.
    fn share(self, part: u64, whole: u64) -> Self {
        let share = |ns: u64| (u128::from(ns) * u128::from(part) / u128::from(whole.max(1))) as u64;
        self.map(self, |ns, _| share(ns))
    }
}

/// What the tasks of a cgroup and of its descendants do on a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// How long the tasks ran since the last reading, ns.
    ran_ns: u64,
    /// Start of the oldest wait that still lasts, ns of `rq->clock`; 0: no task waits.
    waits_since_ns: u64,
    /// Like `waits_since_ns`, but the start of each wait is later by its throttled time; 0: no task waits for another reason.
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

/// The unions of a cgroup on a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Unions {
    id: u64,
    /// See [`Entry::born_ns`].
    born_ns: u64,
    contention: Union,
    whole: Union,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The start of the cgroup's entry, or [`NO_ENTRY`].
    born_ns: u64,
    /// The pressure of the entry, including that of pending waits.
    pressure: Pressure,
    /// The pressure of pending waits. When such a wait ends, its whole time is also added to an entry. We must not
    /// count it twice.
    pending: Pressure,
}

/// The pressure of each cgroup since the start of the measurement.
#[derive(Default)]
pub(crate) struct CgroupPressures {
    /// Entries of the latest reading, each with its CPU.
    entries: Vec<(u32, Unions)>,
    seen: HashMap<Place, Seen>,
    /// Clock of the previous reading, ns.
    clock_ns: u64,
    sums: HashMap<u64, Pressure>,
    /// Pressure of the root cgroup on each CPU.
    cpus: BTreeMap<u32, Pressure>,
}

impl Domain for CgroupPressures {
    fn read(&mut self, draft: &mut Draft) -> Result<(), Failure> {
        self.entries.clear();
        draft.side.each_cpu("read the pressure", names::PRESSURES, |cpu, table| self.take(cpu, table))?;
        draft.kept_pressure.drain(..).for_each(|(id, kept)| self.take_kept(id, &kept));
        Ok(())
    }

    fn complete(&mut self, draft: &mut Draft, tree: Option<&CgroupTree>) -> Result<(), Failure> {
        let above = |id| tree.into_iter().flat_map(move |tree| tree.ancestors(id));
        let root_id = draft.config.root_cgroup_id;
        self.add_to(&mut draft.sample, &draft.tasks.active, draft.clock_ns, root_id, above);
        Ok(())
    }
}

impl CgroupPressures {
    fn take(&mut self, cpu: u32, table: &Pressures) {
        for entry in table.entries.iter().filter(|entry| entry.id != 0) {
            let Entry { id, born_ns, contention, .. } = *entry;
            self.entries.push((cpu, Unions { id, born_ns, contention, whole: table.whole(entry) }));
        }
    }

    /// Adds the kernel's sum of those waits of a cgroup that found no entry on their CPU. The sum is over all CPUs.
    fn take_kept(&mut self, id: u64, kept: &KeptPressure) {
        let union = |total_ns, uncertain_ns| Union { total_ns, uncertain_ns, ..Union::default() };
        let (contention, whole) = (union(kept.contention_ns, kept.uncertain_ns), union(kept.whole_ns, 0));
        self.entries.push((KEPT, Unions { id, born_ns: 1, contention, whole }));
    }

    /// Adds the pressure to a sample. `active` holds the changed tasks. `above` returns the ancestors of a cgroup.
    fn add_to<A: Iterator<Item = u64>>(
        &mut self,
        sample: &mut Sample,
        active: &[Active],
        clock_ns: u64,
        root_id: u64,
        above: impl Fn(u64) -> A,
    ) {
        let mut loads = loads(&sample.tasks, active, clock_ns, above);
        let mut now: Vec<(Place, Unions, Load)> = Vec::new();
        for (cpu, entry) in std::mem::take(&mut self.entries) {
            let place = (entry.id, cpu);
            now.push((place, entry, loads.remove(&place).unwrap_or_default()));
        }
        now.extend(loads.into_iter().map(|(place, load)| (place, Unions::default(), load)));
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
        // Only removed cgroups have no limits. Drop their sums.
        let is_there = |id: &u64| sample.limits.binary_search_by_key(id, |limits| limits.id).is_ok();
        self.sums.retain(|id, _| is_there(id));
    }

    /// Adds the increase since the previous reading. Like the kernel, we weight each CPU by the time in which the cgroup was not
    /// idle there (`collect_percpu_times` in `kernel/sched/psi.c`, Linux 4.20 to 7.2). For us, this is the time in which a task
    /// of the cgroup ran or waited.
    fn advance(&mut self, now: Vec<(Place, Unions, Load)>, clock_ns: u64, root_id: u64) {
        let elapsed_ns = clock_ns.saturating_sub(self.clock_ns);
        let mut increases: HashMap<u64, Vec<OnCpu>> = HashMap::new();
        let mut lately: HashMap<u64, Lately> = HashMap::new();
        let mut seen = HashMap::new();
        for ((id, cpu), entry, load) in now {
            let pressure = pressure(&entry, &load, clock_ns);
            let before = self.seen.remove(&(id, cpu));
            if cpu == KEPT {
                let known = before.map(|seen| seen.pressure).unwrap_or_default();
                lately.entry(id).or_default().kept = pressure.map(known, u64::saturating_sub);
                let kept = Seen { born_ns: entry.born_ns, pressure, pending: Pressure::default() };
                seen.insert((id, cpu), kept);
                continue;
            }
            let ended = self::pressure(&entry, &Load::default(), clock_ns);
            let pending = pressure.map(ended, u64::saturating_sub);
            let mut place = Seen { born_ns: entry.born_ns, pressure, pending };
            let same = before.filter(|seen| seen.born_ns == entry.born_ns && entry.born_ns != NO_ENTRY);
            let on_cpu = |increase| OnCpu { cpu, increase, ran_ns: load.ran_ns };
            if let Some(same) = same {
                place.pressure = pressure.map(same.pressure, u64::max);
                let increase = pressure.map(same.pressure, u64::saturating_sub);
                increases.entry(id).or_default().push(on_cpu(increase));
            } else {
                let pending = before.map(|seen| seen.pending).unwrap_or_default();
                lately.entry(id).or_default().on.push((on_cpu(pressure), pending));
            }
            seen.insert((id, cpu), place);
        }
        for ((id, _), seen) in &self.seen {
            if let Some(lately) = lately.get_mut(id) {
                lately.left.add(seen.pending);
            }
        }
        for (id, lately) in lately {
            increases.entry(id).or_default().extend(lately.by_cpu(elapsed_ns));
        }
        for (id, cpus) in increases {
            if id == root_id {
                cpus.iter().for_each(|on| self.cpus.entry(on.cpu).or_default().add(on.increase));
            }
            let weight = |on: &OnCpu| on.ran_ns.saturating_add(on.increase.waited_ns()).min(elapsed_ns);
            let whole = cpus.iter().map(weight).sum();
            let sum = self.sums.entry(id).or_default();
            cpus.iter().for_each(|on| sum.add(on.increase.share(weight(on), whole)));
        }
        (self.seen, self.clock_ns) = (seen, clock_ns);
    }
}

/// The increase of a cgroup's pressure on a CPU, and how long the cgroup's tasks ran there.
struct OnCpu {
    cpu: u32,
    increase: Pressure,
    ran_ns: u64,
}

/// The recent pressure of a cgroup on the CPUs where it lost, got or lacked an entry since the previous reading. If a wait ended
/// on such a CPU without an entry, the kernel added it only to a sum over all CPUs.
#[derive(Default)]
struct Lately {
    /// The increase of that sum.
    kept: Pressure,
    /// The pressure on each of these CPUs, with the pressure of the waits that were pending at the previous reading. Subtract the
    /// latter, because it was already counted.
    on: Vec<(OnCpu, Pressure)>,
    /// The pressure of waits that lasted at the previous reading, on CPUs where the cgroup now has neither tasks nor an entry.
    left: Pressure,
}

impl Lately {
    /// Divides the pressure among the CPUs in proportion to the cgroup's activity. For one CPU this is exact. For several CPUs,
    /// all of `kept` is uncertain.
    fn by_cpu(self, elapsed_ns: u64) -> Vec<OnCpu> {
        let Self { kept, mut on, left } = self;
        if kept == Pressure::default() {
            let less = |(on, before): (OnCpu, Pressure)| OnCpu {
                increase: on.increase.map(before, u64::saturating_sub),
                ..on
            };
            return on.into_iter().map(less).collect();
        }
        if on.is_empty() {
            on.push((OnCpu { cpu: KEPT, increase: Pressure::default(), ran_ns: 0 }, Pressure::default()));
        }
        let (mut sum, mut before) = (kept, left);
        for (on, pending) in &on {
            sum.add(on.increase);
            before.add(*pending);
        }
        let mut sum = sum.map(before, u64::saturating_sub);
        let several = on.len() as u64;
        if several > 1 {
            sum.uncertain_ns = sum.uncertain_ns.saturating_add(kept.waited_ns());
        }
        let did = |on: &OnCpu| on.ran_ns.saturating_add(on.increase.waited_ns());
        let all: u64 = on.iter().map(|(on, _)| did(on)).sum();
        let share = |on: &OnCpu| if all == 0 { sum.share(1, several) } else { sum.share(did(on), all) };
        let on_cpu = |(on, _): (OnCpu, _)| OnCpu { increase: share(&on).at_most(elapsed_ns), ..on };
        on.into_iter().map(on_cpu).collect()
    }
}

/// Returns the pressure of an entry, including the waits that still last.
fn pressure(entry: &Unions, load: &Load, clock_ns: u64) -> Pressure {
    let Unions { mut contention, mut whole, .. } = *entry;
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

/// Returns the loads of the active tasks, by cgroup and CPU. A load counts for the cgroup of its task and for all ancestors.
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
    use cgscope_model::{ByCause, CgroupReading, CpuReading, Pending};
    use proptest::{collection, prelude::*};

    const SECOND: u64 = 1_000_000_000;

    fn entry(id: u64, contention_ns: u64, whole_ns: u64) -> Unions {
        let union = |total_ns| Union { total_ns, ..Union::default() };
        Unions { id, born_ns: 1, contention: union(contention_ns), whole: union(whole_ns) }
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

    /// Returns the ancestors of a cgroup. Cgroup 1 is the root, and all others are its children.
    fn above(id: u64) -> impl Iterator<Item = u64> {
        (id != 1).then_some(1).into_iter()
    }

    /// Adds a reading at the given second. Returns the contention and the throttled pressure of cgroup 7, ns.
    fn read(
        pressures: &mut CgroupPressures,
        second: u64,
        entries: &[(u32, Unions)],
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
        // On CPU 0, a task waited for half of the second, and a task ran for half of it. On CPU 1, a task ran for a quarter of
        // the second, and no task waited.
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
        // The wait ends, and a throttled wait begins.
        let ended = entry(7, half + SECOND, half + SECOND);
        assert_eq!(
            read(&mut pressures, 4, &[(0, ended)], waits(half, half), &[ran(1, 0)]),
            (half + SECOND, half)
        );
        // The cgroup lost its entry and got a new one.
        let again = Unions { born_ns: 5, ..entry(7, 100, 100) };
        assert_eq!(read(&mut pressures, 5, &[(0, again)], vec![], &[]), (half + SECOND + 100, half));
    }

    /// Adds the kernel's sum of the waits of cgroup 7 without an entry. All of it is contention.
    fn kept(pressures: &mut CgroupPressures, ns: u64) {
        pressures.take_kept(7, &KeptPressure { contention_ns: ns, whole_ns: ns, uncertain_ns: 0 });
    }

    #[test]
    fn a_cgroup_without_an_entry_on_its_cpu_has_the_figures_of_one_with_an_entry() {
        let (half, tenth) = (SECOND / 2, SECOND / 10);
        for has_entry in [true, false] {
            let mut pressures = CgroupPressures::default();
            let mut at = |second, ns, pending: Option<u64>| {
                let entries = [(0, entry(7, ns, ns))];
                if !has_entry && ns != 0 {
                    kept(&mut pressures, ns);
                }
                let entries = if has_entry { &entries[..] } else { &[] };
                let tasks = vec![task(1, 7, 0, pending.map(|ns| (ns, 0)))];
                read(&mut pressures, second, entries, tasks, &[ran(1, 9 * tenth)]).0
            };
            assert_eq!(at(1, 0, None), 0);
            assert_eq!(at(2, tenth, None), tenth, "nine tenths ran");
            // A wait still lasts. Then it ends, and another wait begins.
            assert_eq!(at(3, tenth, Some(half)), tenth + half);
            assert_eq!(at(4, tenth + half + tenth, Some(tenth)), tenth + half + 2 * tenth);
            assert_eq!(at(5, tenth + half + tenth + tenth, None), tenth + half + 2 * tenth);
        }
    }

    #[test]
    fn a_wait_that_is_not_over_counts_once_although_its_entry_comes_and_goes() {
        let half = SECOND / 2;
        let mut pressures = CgroupPressures::default();
        let waits = |ns| vec![task(1, 7, 0, Some((ns, 0)))];
        let active = [ran(1, 0)];
        read(&mut pressures, 1, &[(0, entry(7, 100, 100))], vec![], &[]);
        assert_eq!(read(&mut pressures, 2, &[(0, entry(7, 100, 100))], waits(half), &active).0, 100 + half);
        // Another cgroup took the entry.
        assert_eq!(read(&mut pressures, 3, &[], waits(half + SECOND), &active).0, 100 + half + SECOND);
        kept(&mut pressures, half + SECOND + 5);
        assert_eq!(
            read(&mut pressures, 4, &[], vec![task(1, 7, 0, None)], &active).0,
            100 + half + SECOND + 5
        );
        // The task waits again, and this wait ends in a new entry.
        kept(&mut pressures, half + SECOND + 5);
        assert_eq!(read(&mut pressures, 5, &[], waits(half), &active).0, 105 + 2 * half + SECOND);
        kept(&mut pressures, half + SECOND + 5);
        let again = Unions { born_ns: 9, ..entry(7, half + 3, half + 3) };
        assert_eq!(read(&mut pressures, 6, &[(0, again)], vec![], &[]).0, 108 + 2 * half + SECOND);
    }

    proptest! {
        /// A task alternately runs and waits on one CPU, while its cgroup gets and loses its entry. The pressure must be the sum
        /// of the waits.
        #[test]
        fn the_pressure_of_one_task_is_the_sum_of_its_waits(steps in collection::vec((0u8..5, 1u64..SECOND), 1..200)) {
            let mut pressures = CgroupPressures::default();
            let (mut now_ns, mut waits_since_ns, mut waited_ns, mut ran_ns) = (SECOND, None, 0, 0);
            let (mut own, mut is_charged, mut kept_ns) = (None::<Unions>, false, 0);
            let mut readings = vec![];
            for (step, ns) in steps {
                now_ns += ns;
                match waits_since_ns {
                    None => ran_ns += ns,
                    Some(_) => waited_ns += ns,
                }
                match (step, waits_since_ns) {
                    (0, None) => waits_since_ns = Some(now_ns),
                    (0, Some(since_ns)) => {
                        match &mut own {
                            Some(entry) => {
                                entry.contention.total_ns += now_ns - since_ns;
                                entry.whole = entry.contention;
                            }
                            None => kept_ns += now_ns - since_ns,
                        }
                        (waits_since_ns, is_charged) = (None, own.is_some());
                    }
                    (1, _) if own.is_none() => {
                        own = Some(Unions { born_ns: now_ns, ..entry(7, 0, 0) });
                        is_charged = true;
                    }
                    // Another cgroup can take an entry only after we have read the latest charge in the entry.
                    (2, _) if !is_charged => own = None,
                    _ => {
                        let pending = waits_since_ns.map(|since_ns| (now_ns - since_ns, 0));
                        let tasks = vec![task(1, 7, 0, pending)];
                        pressures.entries.clear();
                        pressures.entries.extend(own.map(|entry| (0, entry)));
                        kept(&mut pressures, kept_ns);
                        let limits = vec![CgroupReading { id: 7, ..CgroupReading::default() }];
                        let mut sample = Sample { tasks, limits, ..Sample::default() };
                        pressures.add_to(&mut sample, &[ran(1, ran_ns)], now_ns, 1, above);
                        readings.push((sample.limits[0].contention_ns, Some(waited_ns)));
                        (ran_ns, is_charged) = (0, false);
                    }
                }
            }
            prop_assert!(readings.iter().all(|(ours, theirs)| ours == theirs), "{readings:?}");
        }
    }

    #[test]
    fn waits_on_cpus_that_are_not_known_are_at_most_the_time_that_passed() {
        let mut pressures = CgroupPressures::default();
        read(&mut pressures, 1, &[], vec![], &[]);
        kept(&mut pressures, 64 * SECOND);
        assert_eq!(read(&mut pressures, 2, &[], vec![], &[]).0, SECOND);
        assert_eq!(pressures.sums[&7].uncertain_ns, SECOND);
        // With two CPUs, all of the pressure may belong to either CPU.
        let tasks = vec![task(1, 7, 0, None), task(2, 7, 1, None)];
        kept(&mut pressures, 64 * SECOND + SECOND / 2);
        let sum_ns = read(&mut pressures, 3, &[], tasks, &[ran(1, SECOND / 4), ran(2, SECOND / 4)]).0;
        assert_eq!(sum_ns, SECOND + SECOND / 4, "a quarter of the second on each, of equal weight");
        assert_eq!(pressures.sums[&7].uncertain_ns, SECOND + SECOND / 4);
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
