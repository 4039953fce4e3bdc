//! Compares the ledger with the reference.

extern crate std;

use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use super::{CPUS, Flavour, Kernel, Maps, ROOT, Simulated, TASKS, task::State};
use crate::{
    BUCKETS, ByCause, Cause, bucket_of,
    culprits::kind,
    look_back::cause_of,
    pressure::{self, PressureHost},
    waits,
};

impl Kernel {
    /// Returns the unfinished wait of a task by cause, and the current cause: first from the ledger, then from the reference.
    fn pending(&mut self, at: usize) -> ((ByCause, Cause), (ByCause, Cause)) {
        let mut ours = ByCause::default();
        let facts = self.facts(at);
        let cause = waits::pending::<Simulated>(facts, &self.tasks[at].storage, &mut ours);
        let mut theirs = self.tasks[at].moved;
        let is_throttled = self.tasks[at].is_throttled;
        let current = self.segment(at).filter(|segment| segment.span.0 < segment.span.1);
        let Some(segment) = current else {
            let now = if is_throttled { Cause::Throttled } else { Cause::Unattributed };
            return ((ours, cause), (theirs, now));
        };
        let parts = self.log.split(&segment, false);
        theirs.iter_mut().zip(parts).for_each(|(sum, ns)| *sum += ns);
        let only = |cause: &Cause| parts[*cause as usize] == segment.span.1 - segment.span.0;
        let held = [Cause::Throttled, Cause::RtThrottled, Cause::Unattributed];
        // A task that is no longer throttled now waits for its CPU.
        let now = match held.into_iter().find(only) {
            _ if is_throttled => Cause::Throttled,
            Some(cause) if cause != Cause::Throttled || self.flavour == Flavour::ThrottlesQueues => cause,
            _ => cause_of(self.log.latest(segment.cpu), segment.victim),
        };
        ((ours, cause), (theirs, now))
    }

    /// Compares all figures with the reference. Returns the number of waits.
    pub(in crate::waits::tests) fn check(&mut self) -> u64 {
        let (seed, flavour) = (self.seed, self.flavour);
        let is_cut = Maps::losses().contains_key("look_back_cut");
        assert!(!is_cut, "schedule {seed}: too dense");
        let pending: Vec<_> = (0..TASKS).map(|at| self.pending(at)).collect();
        (0..TASKS).for_each(|at| self.report(at));
        for (at, task) in self.all_tasks().enumerate() {
            let storage = &task.storage;
            let of = std::format!("schedule {seed} ({flavour:?}), task {at}");
            assert_eq!(storage.by_cause, task.parts, "{of}");
            assert_eq!(storage.waits.max_ns, task.waits.iter().copied().max().unwrap_or(0), "{of}");
            assert_eq!(storage.throttled_waits, task.throttled_waits, "{of}");
            assert_eq!(storage.unstamped_ns, task.unstamped_ns, "{of}");
            assert_eq!(storage.unstamped_count, task.unstamped_count, "{of}");
            if matches!(task.state, State::Queued) {
                let (ours, theirs) = pending[at];
                assert_eq!(ours, theirs, "{of}: unfinished");
            }
            let booked_ns: u64 = task.moved.iter().sum();
            let kernels_ns = task.run_delay_ns + task.ended_ns;
            let waited_ns: u64 = storage.by_cause.iter().sum();
            assert_eq!(waited_ns + booked_ns, kernels_ns, "{of}: the kernel's own sum");
            let mut counts = [0; BUCKETS];
            task.waits.iter().for_each(|ns| counts[bucket_of(*ns)] += 1);
            let (mut ours, _) = Maps::histogram(storage.serial).counts_and_shares();
            ours.iter_mut().zip(task.reported.counts_and_shares().0).for_each(|(sum, count)| *sum += count);
            assert_eq!(ours, counts, "{of}");
        }
        self.check_names();
        let ours = Maps::losses();
        for loss in ours.keys().chain(self.log.losses.keys()) {
            let ours = ours.get(loss).copied().unwrap_or(0);
            let (split, empty) = self.log.losses.get(loss).copied().unwrap_or_default();
            assert!(
                (split..=split + empty).contains(&ours),
                "schedule {seed} ({flavour:?}), {loss}: {ours} {split} {empty}"
            );
        }
        self.all_tasks().map(|task| task.waits.len() as u64).sum()
    }

    /// Compares the charges with the reference. If a victim has more culprits than entries, some of its time has no culprit.
    fn check_names(&self) {
        let of = std::format!("schedule {} ({:?})", self.seed, self.flavour);
        let (ours, theirs) = (Maps::charges(), &self.log.charges);
        let sums = |charges: &BTreeMap<(u64, u64, u32), u64>| {
            let mut sums: BTreeMap<(u64, u32), u64> = BTreeMap::new();
            charges
                .iter()
                .for_each(|((victim, _, kind), ns)| *sums.entry((*victim, *kind)).or_default() += ns);
            sums
        };
        assert_eq!(sums(&ours), sums(theirs), "{of}");
        for (&(victim, culprit, kind), ns) in theirs {
            let is_complete = kind == kind::LIMITED || !ours.contains_key(&(victim, 0, kind));
            let named = ours.get(&(victim, culprit, kind)).copied().unwrap_or(0);
            assert!(named == *ns || !is_complete && named < *ns, "{of}, {victim} {culprit}: {named} of {ns}");
        }
    }

    /// Compares the pressure with the reference, within the uncertainty. Returns the total pressure and the total uncertainty,
    /// ns.
    pub(in crate::waits::tests) fn check_pressure(&mut self) -> (u64, u64) {
        let (seed, flavour) = (self.seed, self.flavour);
        let (mut sum_ns, mut uncertain_ns) = (0, 0);
        for cpu in 0..CPUS as u32 {
            pressure::count_batch::<Simulated>(cpu);
            let table = Simulated::pressures(cpu).expect("a CPU");
            let cgroups = self.all_tasks().map(|task| task.cgroup).chain([ROOT]).collect::<BTreeSet<_>>();
            for cgroup in cgroups {
                let entry =
                    table.entries.iter().find(|entry| entry.id == cgroup).copied().unwrap_or_default();
                let (behind_ns, whole_ns) = self.log.pressure(cgroup, cpu);
                let of = std::format!("schedule {seed} ({flavour:?}), cgroup {cgroup}, CPU {cpu}: {entry:?}");
                for (ours, theirs) in [(entry.contention, behind_ns), (table.whole(&entry), whole_ns)] {
                    assert!(ours.total_ns.abs_diff(theirs) <= ours.uncertain_ns, "{of}: {theirs}");
                    (sum_ns, uncertain_ns) = (sum_ns + theirs, uncertain_ns + ours.uncertain_ns);
                }
            }
        }
        (sum_ns, uncertain_ns)
    }

    /// Compares completed waits with the reference, within the uncertainty. Returns the total waiting time and the total
    /// uncertainty, ns.
    pub(in crate::waits::tests) fn check_long(&mut self) -> (u64, u64) {
        let seed = self.seed;
        // The history explains all waits completely, unless a schedule makes the waits longer on purpose.
        let is_cut = Maps::losses().contains_key("look_back_cut");
        assert!(self.is_plain || !is_cut, "schedule {seed}: too dense");
        for (at, task) in self.all_tasks().enumerate() {
            let (ours, theirs) = (task.storage.by_cause, task.parts);
            assert_eq!(ours.iter().sum::<u64>(), theirs.iter().sum::<u64>(), "schedule {seed}, task {at}");
            for cause in Cause::ALL {
                let (ours, theirs) = (ours[cause as usize], theirs[cause as usize]);
                let of = std::format!("schedule {seed}, task {at}, {cause:?}: {ours} {theirs}");
                assert!(ours.abs_diff(theirs) <= task.uncertain_ns, "{of}, {} uncertain", task.uncertain_ns);
            }
        }
        let uncertain_ns = self.all_tasks().map(|task| task.uncertain_ns).sum();
        let ours = Maps::charges();
        for of in ours.keys().chain(self.log.charges.keys()) {
            let [ours, theirs] = [&ours, &self.log.charges].map(|sums| sums.get(of).copied().unwrap_or(0));
            // The culprits of the time before the history are unknown.
            let is_missing = self.is_plain && ours < theirs;
            assert!(
                is_missing || ours.abs_diff(theirs) <= uncertain_ns,
                "schedule {seed}, {of:?}: {ours} {theirs}"
            );
        }
        (self.all_tasks().flat_map(|task| task.parts).sum(), uncertain_ns)
    }

    /// Checks that no cause except `Unattributed` has more time than in the reference, within the uncertainty.
    pub(in crate::waits::tests) fn check_unattributed(&mut self) {
        for (at, task) in self.all_tasks().enumerate() {
            for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Unattributed) {
                let (ours, theirs) = (task.storage.by_cause[cause as usize], task.parts[cause as usize]);
                let of = std::format!("schedule {}, task {at}, {cause:?}: {ours} {theirs}", self.seed);
                assert!(ours <= theirs + task.uncertain_ns, "{of}");
            }
        }
    }

    pub(in crate::waits::tests) fn segments_beyond_history(&self) -> u64 {
        self.all_tasks().map(|task| task.beyond).sum()
    }

    /// Checks that no cause except `Unattributed` has more time than in the reference. Returns the total time of segments that
    /// the hook missed, ns.
    pub(in crate::waits::tests) fn check_missed(&mut self) -> u64 {
        let seed = self.seed;
        for (at, task) in self.all_tasks().enumerate() {
            let (ours, theirs) = (task.storage.by_cause, task.parts);
            assert_eq!(ours.iter().sum::<u64>(), theirs.iter().sum::<u64>(), "schedule {seed}, task {at}");
            for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::Unattributed) {
                let (ours, theirs) = (ours[cause as usize], theirs[cause as usize]);
                assert!(ours <= theirs, "schedule {seed}, task {at}, {cause:?}: {ours} > {theirs}");
            }
        }
        let missed_ns = self.all_tasks().map(|task| task.missed_ns).sum();
        let is_counted = Maps::losses().contains_key("moved_unseen");
        let waited_ns = |cause: Cause| -> u64 {
            self.all_tasks().map(|task| task.storage.by_cause[cause as usize]).sum()
        };
        let more_ns = waited_ns(Cause::Unattributed)
            - self.all_tasks().map(|task| task.parts[Cause::Unattributed as usize]).sum::<u64>();
        assert!(is_counted || more_ns == 0, "schedule {seed}: {more_ns} ns without a loss");
        missed_ns
    }
}
