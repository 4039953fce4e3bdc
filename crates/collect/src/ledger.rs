//! The tables of culprits: one a CPU, read whole and added up.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cgscope_layout::ledger::{Pair, Pairs, kind};
use cgscope_model::{Blame, PairReading};

use crate::readings::comm;

/// A pair, as [`PairReading::key`].
type Key = (u64, u64, Blame, u32);

/// What has been read of the tables so far. In the kernel a pair may lose its place to another; its sum is kept here.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Of each CPU by key, as last read: when it began, and its sum. What the sum has risen by is new. Only what its table still
    /// has.
    seen: HashMap<u32, HashMap<Key, (u64, u64)>>,
    sums: BTreeMap<Key, (Arc<str>, u64)>,
}

impl Ledger {
    /// Takes in the table of one CPU.
    pub(crate) fn take(&mut self, cpu: u32, table: &Pairs) {
        let seen = self.seen.entry(cpu).or_default();
        let before = std::mem::take(seen);
        for pair in &table.pairs {
            let Some(key) = key(pair) else { continue };
            seen.insert(key, (pair.born_ns, pair.ns));
            // One that began anew has lost its place meanwhile and found another.
            let known =
                before.get(&key).filter(|(born_ns, _)| *born_ns == pair.born_ns).map_or(0, |(_, ns)| *ns);
            let new = pair.ns.checked_sub(known).unwrap_or(pair.ns);
            if new != 0 {
                self.sums.entry(key).or_insert_with(|| (comm(&pair.comm), 0)).1 += new;
            }
        }
    }

    /// All pairs so far, ascending by key.
    pub(crate) fn readings(&self) -> Vec<PairReading> {
        let reading = |(&(victim, culprit, blame, tid), (comm, ns)): (&Key, &(Arc<str>, u64))| PairReading {
            victim,
            culprit,
            blame,
            tid,
            comm: comm.clone(),
            ns: *ns,
        };
        self.sums.iter().map(reading).collect()
    }

    /// How many pairs are known.
    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    /// Forgets the pairs of cgroups that are no more. What the tables still have of them is not new when it is read again.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(u64) -> bool) {
        let keep = |(victim, culprit, ..): &Key| !is_gone(*victim) && !is_gone(*culprit);
        self.sums.retain(|key, _| keep(key));
    }
}

fn key(pair: &Pair) -> Option<Key> {
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
    use cgscope_layout::ledger::PAIRS;

    fn table(pairs: &[Pair]) -> Pairs {
        let mut table = Pairs { pairs: [Pair::default(); PAIRS] };
        table.pairs[7..7 + pairs.len()].copy_from_slice(pairs);
        table
    }

    #[test]
    fn pairs_add_up_over_cpus_and_outlive_their_place() {
        let pair = |ns| Pair { victim: 5, culprit: 6, kind: kind::RAN, ns, ..Pair::default() };
        let mut ledger = Ledger::default();
        ledger.take(0, &table(&[pair(100)]));
        ledger.take(1, &table(&[pair(40)]));
        let ns = |ledger: &Ledger| ledger.readings().iter().map(|pair| pair.ns).collect::<Vec<_>>();
        assert_eq!(ns(&ledger), [140]);
        ledger.take(0, &table(&[pair(130)]));
        assert_eq!(ns(&ledger), [170]);
        // Its place was taken and it came back, with less and with more.
        ledger.take(0, &table(&[Pair { born_ns: 1, ..pair(30) }]));
        assert_eq!(ns(&ledger), [200]);
        ledger.take(0, &table(&[Pair { born_ns: 2, ..pair(45) }]));
        assert_eq!(ns(&ledger), [245]);
        // It was not there at one reading, so all of it is new.
        ledger.take(0, &table(&[]));
        ledger.take(0, &table(&[pair(50)]));
        assert_eq!(ns(&ledger), [295]);
        ledger.forget(|id| id == 6);
        assert_eq!((ledger.readings().len(), ledger.len()), (0, 0));
        ledger.take(0, &table(&[pair(50)]));
        assert!(ns(&ledger).is_empty(), "nothing new");
        ledger.take(0, &table(&[pair(57)]));
        assert_eq!(ns(&ledger), [7]);
    }
}
