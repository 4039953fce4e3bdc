//! Adds up victim-culprit pairs from the culprit table of each CPU, and from each victim's entry in the table of exited tasks.

use std::{
    cell::LazyCell,
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use cgscope_ledger::culprits::{Comm, Kept, Pair, kind};
use cgscope_model::{Blame, ByCause, Cause, PairKey, PairReading, REST, comm, rest_of};

/// Maximum number of culprits per victim: twice as many as outputs show. Without this maximum, memory would grow with the square
/// of the number of cgroups.
const DISTINCT: usize = 32;

/// Maximum number of charges per victim that we hold back until a sample has the throttled time.
const EARLY: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// The table of a CPU.
    Cpu(u32),
    /// The entry of a victim in the table of exited tasks.
    Victim(u64),
}

/// Sums of all pairs over all readings. A pair can lose its slot in the kernel to another pair, but its sum stays here.
#[derive(Default)]
pub(crate) struct Culprits {
    /// Start and sum of each key in the latest reading of its origin. Only the increase since then is added to `sums`. If the entry
    /// of a victim is freed, remove it here, because a new entry counts from 0.
    pub(crate) seen: HashMap<Origin, HashMap<PairKey, (u64, u64)>>,
    sums: BTreeMap<PairKey, Sum>,
    /// Charges of quotas, by victim. A charge may belong to a wait that is not in the sample yet.
    early: HashMap<u64, VecDeque<Early>>,
    /// Number of the current reading.
    turn: u64,
    merged: u64,
}

/// A charge of a quota, and the number of the reading that found the charge.
struct Early {
    key: PairKey,
    ns: u64,
    turn: u64,
}

/// Increase of the tasks' throttled time in a reading, by cgroup, ns.
#[derive(Default)]
pub(crate) struct Throttled(pub(crate) HashMap<u64, u64>);

impl Throttled {
    /// Adds the increase of the throttled time of one task, or of the exited tasks of a cgroup.
    pub(crate) fn add(&mut self, cgroup_id: u64, before: &ByCause, now: &ByCause) {
        let more_ns = now.get(Cause::Throttled).saturating_sub(before.get(Cause::Throttled));
        if more_ns != 0 {
            *self.0.entry(cgroup_id).or_default() += more_ns;
        }
    }
}

#[derive(Default)]
struct Sum {
    comm: Arc<str>,
    ns: u64,
    /// Recent time, ns. Each reading halves this value.
    lately_ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        self.lately_ns = self.lately_ns.saturating_add(ns);
    }
}

impl Culprits {
    /// Adds pairs to the sums. `comms` holds the names of their threads; if it is shorter, other threads have no name.
    pub(crate) fn take(&mut self, origin: Origin, pairs: &[Pair], comms: &[Comm]) {
        let seen = self.seen.entry(origin).or_default();
        let before = std::mem::take(seen);
        for (at, pair) in pairs.iter().enumerate() {
            let Some(key) = key(pair).filter(|_| pair.ns != 0) else { continue };
            seen.insert(key, (pair.born_ns, pair.ns));
            // If the start differs, the pair lost its slot and got a new one.
            let known =
                before.get(&key).filter(|(born_ns, _)| *born_ns == pair.born_ns).map_or(0, |(_, ns)| *ns);
            let new = pair.ns.checked_sub(known).unwrap_or(pair.ns);
            if new != 0 && key.2 == Blame::Limited {
                let charge = Early { key, ns: new, turn: self.turn };
                self.early.entry(key.0).or_default().push_back(charge);
            } else if new != 0 {
                let none = || Sum { comm: name(comms.get(at)), ..Sum::default() };
                self.sums.entry(key).or_insert_with(none).add(new);
            }
        }
    }

    /// Adds quota charges to the sums, at most as much as the victim's throttled time has grown. The other charges are held back,
    /// because they belong to waits in a later sample: we read tasks before charges, and a wait that continues after a move is
    /// already charged for its first part. If the wait of a charge was lost, the charge is added without it. `waiting` returns
    /// the cgroups with waiting tasks.
    pub(crate) fn book(&mut self, throttled: &Throttled, waiting: impl FnOnce() -> HashSet<u64>) {
        let (turn, sums, waiting) = (self.turn, &mut self.sums, LazyCell::new(waiting));
        self.early.retain(|victim, charges| {
            let mut left_ns = throttled.0.get(victim).copied().unwrap_or(0);
            loop {
                let are_many = charges.len() > EARLY;
                let Some(charge) = charges.front_mut() else { break };
                let is_late = are_many || charge.turn + 1 < turn && !waiting.contains(victim);
                let ns = if is_late { charge.ns } else { charge.ns.min(left_ns) };
                left_ns = left_ns.saturating_sub(ns);
                charge.ns -= ns;
                if ns != 0 {
                    sums.entry(charge.key).or_default().add(ns);
                }
                if charge.ns != 0 {
                    break;
                }
                charges.pop_front();
            }
            !charges.is_empty()
        });
        self.turn += 1;
    }

    /// Adds the pairs that the kernel keeps with a victim.
    pub(crate) fn take_kept(&mut self, victim: u64, kept: &Kept) {
        let unnamed = [kind::RAN, kind::LIMITED].map(|kind| {
            let ns = kept.unnamed_ns[kind as usize - 1];
            Pair { victim, culprit: REST, kind, ns, ..Pair::default() }
        });
        let pairs: Vec<Pair> = kept.pairs.into_iter().chain(unnamed).collect();
        // Most victims have no such pairs.
        if pairs.iter().any(|pair| pair.ns != 0) {
            self.take(Origin::Victim(victim), &pairs, &kept.comms);
        }
    }

    /// Returns all pairs so far, ascending by key. The pairs of a victim sum to all time that was ever charged for it.
    pub(crate) fn readings(&mut self) -> Vec<PairReading> {
        self.bound();
        self.sums.values_mut().for_each(|sum| sum.lately_ns /= 2);
        let reading = |(&(victim, culprit, blame, tid), sum): (&PairKey, &Sum)| PairReading {
            victim,
            culprit,
            blame,
            tid,
            comm: sum.comm.clone(),
            ns: sum.ns,
        };
        self.sums.iter().map(reading).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    pub(crate) fn take_merged(&mut self) -> u64 {
        std::mem::take(&mut self.merged)
    }

    /// Drops removed victims, and merges removed culprits. If a later reading finds the same figures, they do not count again.
    pub(crate) fn drop_entries(&mut self, is_removed: impl Fn(u64) -> bool) {
        self.sums.retain(|(victim, ..), _| !is_removed(*victim));
        self.early.retain(|victim, _| !is_removed(*victim));
        let removed: Vec<PairKey> =
            self.sums.keys().filter(|(_, culprit, ..)| is_removed(*culprit)).copied().collect();
        removed.into_iter().for_each(|key| self.merge(key));
    }

    /// Keeps the culprits of each victim that recently took the most time, and merges the others.
    fn bound(&mut self) {
        let mut surplus: Vec<PairKey> = Vec::new();
        let mut of_one: Vec<(u64, u64, PairKey)> = Vec::new();
        let mut pairs = self.sums.iter().filter(|(key, _)| rest_of(**key) != **key).peekable();
        while let Some((key, sum)) = pairs.next() {
            of_one.push((sum.lately_ns, sum.ns, *key));
            if pairs.peek().is_some_and(|(next, _)| next.0 == key.0) {
                continue;
            }
            if let Some(least) = of_one.len().checked_sub(DISTINCT + 1) {
                of_one.select_nth_unstable(least);
                surplus.extend(of_one[..=least].iter().map(|(.., key)| *key));
            }
            of_one.clear();
        }
        self.merged += surplus.len() as u64;
        surplus.into_iter().for_each(|key| self.merge(key));
    }

    fn merge(&mut self, key: PairKey) {
        if let Some(sum) = self.sums.remove(&key) {
            self.sums.entry(rest_of(key)).or_default().add(sum.ns);
        }
    }
}

fn name(words: Option<&Comm>) -> Arc<str> {
    comm(words.copied().unwrap_or_default().map(u64::to_ne_bytes).as_flattened())
}

fn key(pair: &Pair) -> Option<PairKey> {
    let blame = match pair.kind {
        kind::RAN => Blame::Ran,
        kind::LIMITED => Blame::Limited,
        _ => return None,
    };
    Some((pair.victim, pair.culprit, blame, pair.tid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::{culprits::PAIRS, history::KERNEL};
    use cgscope_model::{Interval, REST, Sample};
    use proptest::{collection::vec, prelude::*};

    fn table(pairs: &[Pair]) -> [Pair; PAIRS] {
        let mut table = [Pair::default(); PAIRS];
        table[7..7 + pairs.len()].copy_from_slice(pairs);
        table
    }

    #[test]
    fn pairs_add_up_over_cpus_and_outlive_their_slot() {
        let pair = |ns| Pair { victim: 5, culprit: 6, kind: kind::RAN, ns, ..Pair::default() };
        let mut culprits = Culprits::default();
        culprits.take(Origin::Cpu(0), &table(&[pair(100)]), &[]);
        culprits.take(Origin::Cpu(1), &table(&[pair(40)]), &[]);
        let ns = |culprits: &mut Culprits| culprits.readings().iter().map(|pair| pair.ns).collect::<Vec<_>>();
        assert_eq!(ns(&mut culprits), [140]);
        culprits.take(Origin::Cpu(0), &table(&[pair(130)]), &[]);
        assert_eq!(ns(&mut culprits), [170]);
        // The pair lost its slot and got a new one, first with a smaller sum and then with a larger sum.
        culprits.take(Origin::Cpu(0), &table(&[Pair { born_ns: 1, ..pair(30) }]), &[]);
        assert_eq!(ns(&mut culprits), [200]);
        culprits.take(Origin::Cpu(0), &table(&[Pair { born_ns: 2, ..pair(45) }]), &[]);
        assert_eq!(ns(&mut culprits), [245]);
        // The pair is missing from one reading, so the next reading counts its whole sum.
        culprits.take(Origin::Cpu(0), &table(&[]), &[]);
        culprits.take(Origin::Cpu(0), &table(&[pair(50)]), &[]);
        assert_eq!(ns(&mut culprits), [295]);
        culprits.drop_entries(|id| id == 6);
        assert_eq!(ns(&mut culprits), [295], "the removed culprit has no name");
        culprits.drop_entries(|id| id == 5);
        assert_eq!((culprits.readings().len(), culprits.len()), (0, 0));
        culprits.take(Origin::Cpu(0), &table(&[pair(50)]), &[]);
        assert!(ns(&mut culprits).is_empty(), "nothing new");
        culprits.take(Origin::Cpu(0), &table(&[pair(57)]), &[]);
        assert_eq!(ns(&mut culprits), [7]);
    }

    #[test]
    fn charges_of_quotas_wait_for_the_throttled_time_of_their_victim() {
        let limited = |culprit, ns| Pair { victim: 5, culprit, kind: kind::LIMITED, ns, ..Pair::default() };
        let mut culprits = Culprits::default();
        let mut read = |pairs: &[Pair], throttled_ns: u64| {
            culprits.take(Origin::Cpu(0), &table(pairs), &[]);
            culprits.book(&Throttled([(5, throttled_ns)].into()), HashSet::new);
            culprits.readings().iter().map(|pair| (pair.culprit, pair.ns)).collect::<Vec<_>>()
        };
        assert_eq!(read(&[limited(5, 100)], 100), [(5, 100)]);
        assert_eq!(read(&[limited(5, 180), limited(6, 50)], 20), [(5, 120)], "the others are of later waits");
        assert_eq!(read(&[limited(5, 180), limited(6, 50)], 110), [(5, 180), (6, 50)]);
        // The figures of the victim's task were lost.
        assert_eq!(read(&[limited(5, 190), limited(6, 50)], 0), [(5, 180), (6, 50)]);
        assert_eq!(read(&[limited(5, 190), limited(6, 50)], 0), [(5, 180), (6, 50)]);
        assert_eq!(read(&[limited(5, 190), limited(6, 50)], 0), [(5, 190), (6, 50)]);
        // Pairs in the victim's entry also count once.
        let mut kept = Kept::default();
        (kept.pairs[6], kept.unnamed_ns) = (limited(5, 7), [3, 4]);
        culprits.take_kept(5, &kept);
        kept.unnamed_ns = [5, 4];
        culprits.take_kept(5, &kept);
        culprits.book(&Throttled([(5, 11)].into()), HashSet::new);
        let all: Vec<_> =
            culprits.readings().iter().map(|pair| (pair.culprit, pair.blame, pair.ns)).collect();
        assert_eq!(all.iter().map(|(.., ns)| ns).sum::<u64>(), 190 + 50 + 7 + 4 + 5, "{all:?}");
        assert!(all.contains(&(REST, Blame::Ran, 5)) && all.contains(&(REST, Blame::Limited, 4)), "{all:?}");
    }

    #[test]
    fn a_charge_of_a_wait_that_goes_on_for_many_readings_waits_for_it() {
        let limited = |ns| Pair { victim: 5, culprit: 6, kind: kind::LIMITED, ns, ..Pair::default() };
        let mut culprits = Culprits::default();
        let mut read = |ns: u64, throttled_ns: u64, waiting: &[u64]| {
            culprits.take(Origin::Cpu(0), &table(&[limited(ns)]), &[]);
            culprits.book(&Throttled([(5, throttled_ns)].into()), || waiting.iter().copied().collect());
            culprits.readings().iter().map(|pair| pair.ns).sum::<u64>()
        };
        assert_eq!([1, 2, 3, 4].map(|_| read(100, 0, &[5])), [0; 4]);
        assert_eq!(read(130, 30, &[5]), 30, "another task of the cgroup");
        assert_eq!(read(130, 100, &[]), 130);
        // The number of charges that we hold back is limited, even if a task waits forever.
        let sum_ns = (1..=100).map(|more| read(130 + more, 0, &[5])).last();
        assert_eq!(sum_ns, Some(130 + 100 - EARLY as u64));
    }

    /// Charges as (victim, culprit, ns). All of them fit into the table.
    type Charges = Vec<(u64, u64, u64)>;

    fn sum_of(pairs: &[PairReading], victim: u64) -> u64 {
        pairs.iter().filter(|pair| pair.victim == victim).map(|pair| pair.ns).sum()
    }

    /// Returns a sample for each round of charges, and the sums of all charges up to this round, by victim.
    fn samples(turns: &[(Charges, Option<u64>)]) -> Vec<(Sample, BTreeMap<u64, u64>)> {
        let (mut culprits, mut charged) = (Culprits::default(), BTreeMap::new());
        let mut born_ns = 0;
        let mut after = |(charges, removed): &(Charges, Option<u64>)| {
            let mut pairs: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            for (victim, culprit, ns) in charges {
                *charged.entry(*victim).or_default() += ns;
                *pairs.entry((*victim, *culprit)).or_default() += ns;
            }
            // A new `born_ns` makes each round's table new, so its whole sums count.
            born_ns += 1;
            let ran = |((victim, culprit), ns)| Pair {
                victim,
                culprit,
                kind: kind::RAN,
                ns,
                born_ns,
                ..Pair::default()
            };
            culprits.take(Origin::Cpu(0), &table(&pairs.into_iter().map(ran).collect::<Vec<_>>()), &[]);
            let sample = Sample { pairs: culprits.readings(), ..Sample::default() };
            if let Some(removed) = removed {
                culprits.drop_entries(|id| id == *removed);
            }
            (sample, charged.clone())
        };
        turns.iter().map(&mut after).collect()
    }

    fn turn() -> impl Strategy<Value = (Charges, Option<u64>)> {
        // This test never removes victims, because that would also remove their sums.
        (vec((1..4u64, 10..200u64, 1..1_000u64), 0..150), proptest::option::of(10..200u64))
    }

    proptest! {
        #[test]
        fn the_culprits_of_a_victim_sum_to_everything_charged(turns in vec(turn(), 1..8)) {
            let samples = samples(&turns);
            for (at, (later, charged)) in samples.iter().enumerate() {
                for (victim, ns) in charged {
                    prop_assert_eq!(sum_of(&later.pairs, *victim), *ns);
                    let pairs = later.pairs.iter().filter(|pair| pair.victim == *victim).count();
                    prop_assert!(pairs <= DISTINCT + 1, "{} pairs", pairs);
                }
                for (earlier, before) in &samples[..at] {
                    let interval = Interval::between(earlier, later);
                    prop_assert!(interval.pairs.is_sorted_by_key(PairReading::key));
                    for (victim, ns) in charged {
                        let before = before.get(victim).copied().unwrap_or(0);
                        prop_assert_eq!(sum_of(&interval.pairs, *victim), ns - before);
                    }
                }
            }
        }
    }

    #[test]
    fn the_most_recently_active_culprits_are_kept() {
        let pair = |culprit, ns| Pair { victim: 5, culprit, kind: kind::RAN, ns, ..Pair::default() };
        let many: Vec<Pair> = (10..110).map(|culprit| pair(culprit, culprit)).collect();
        let mut culprits = Culprits::default();
        culprits.take(Origin::Cpu(0), &table(&many), &[]);
        let readings = culprits.readings();
        let reported: Vec<u64> = readings.iter().map(|pair| pair.culprit).collect();
        assert_eq!(reported, (78..110).chain([REST]).collect::<Vec<_>>());
        assert_eq!(
            (readings[32].ns, culprits.take_merged(), culprits.take_merged()),
            ((10..78).sum(), 68, 0)
        );
        // A merged culprit becomes active, and replaces an inactive culprit.
        for reading in 1..8 {
            culprits.take(Origin::Cpu(0), &table(&[pair(10, 10 + 30 * reading)]), &[]);
            let readings = culprits.readings();
            let new = readings.iter().find(|pair| pair.culprit == 10).map(|pair| pair.ns);
            assert_eq!((new.is_some(), readings.len()), (reading > 1, 33), "{reading}");
        }
    }

    #[test]
    fn the_own_cgroup_and_kernel_threads_have_their_own_sums() {
        let pair = |culprit, tid| Pair { victim: 5, culprit, tid, kind: kind::RAN, ns: 1, ..Pair::default() };
        let many: Vec<Pair> =
            (1..=50u32).flat_map(|tid| [pair(5, tid), pair(KERNEL, tid), pair(7, tid)]).collect();
        let mut culprits = Culprits::default();
        culprits.take(Origin::Cpu(0), &table(&many), &[]);
        let readings = culprits.readings();
        let ns =
            |culprit| readings.iter().filter(|pair| pair.culprit == culprit).map(|pair| pair.ns).sum::<u64>();
        assert_eq!((ns(5), ns(KERNEL), ns(7) + ns(REST)), (50, 50, 50));
        assert!(readings.len() <= DISTINCT + 3);
    }

    #[test]
    fn memory_does_not_grow_with_the_square_of_the_cgroups() {
        let mut culprits = Culprits::default();
        let cgroups = 2_000u64;
        for turn in 0..200 {
            let pair = |at: u64| {
                let (victim, culprit) = ((turn * 400 + at) % cgroups, (turn * 7 + at * 13) % cgroups);
                Pair {
                    victim: 1 + victim,
                    culprit: 10_000 + culprit,
                    kind: kind::RAN,
                    ns: 5,
                    born_ns: turn,
                    ..Pair::default()
                }
            };
            culprits.take(Origin::Cpu(0), &table(&(0..400).map(pair).collect::<Vec<_>>()), &[]);
            let readings = culprits.readings();
            assert_eq!(readings.iter().map(|pair| pair.ns).sum::<u64>(), (turn + 1) * 400 * 5);
        }
        assert!(culprits.len() as u64 <= cgroups * (DISTINCT as u64 + 1), "{} pairs", culprits.len());
        assert!(culprits.take_merged() > 0);
    }
}
