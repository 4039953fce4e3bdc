//! Where in its slot work was done.

use crate::{Profile, Slot};

impl Profile {
    /// The same profile in slots that are shorter by this factor.
    ///
    /// Only the sums of a slot are known. Work in a slot that is not full was most likely done in one piece, next to the busier one of the
    /// slots around it: a burst begins and ends within a slot. Spread over the slot, it would use up a quota too late.
    #[must_use]
    pub fn refined(self, by: u32) -> Self {
        if by <= 1 {
            return self;
        }
        let part_ns = self.slot_ns / u64::from(by);
        let slots = (0..self.slots.len()).flat_map(|at| {
            let ran = self.pieces(at, by, |slot| slot.ran_ns + slot.waited_ns);
            let wanted = self.pieces(at, by, |slot| slot.firm_ns + slot.presumed_ns);
            let slot = self.slots[at];
            let [ran_ns, waited_ns] = [slot.ran_ns, slot.waited_ns].map(|ns| shares(ns, &ran));
            let [firm_ns, presumed_ns] = [slot.firm_ns, slot.presumed_ns].map(|ns| shares(ns, &wanted));
            (0..by as usize).map(move |at| Slot {
                ran_ns: ran_ns[at],
                waited_ns: waited_ns[at],
                firm_ns: firm_ns[at],
                presumed_ns: presumed_ns[at],
            })
        });
        Self { slot_ns: part_ns, slots: slots.collect() }
    }

    /// Divides an amount of a slot among its parts: as much to each as fills whole CPUs, and the rest from the side of the busier neighbour
    /// on, to no more CPUs than there are in the slot or in that neighbour. Evenly, if no burst begins or ends there: neither this slot nor
    /// a neighbour is full, and none of them is empty.
    fn pieces(&self, at: usize, by: u32, amount: impl Fn(&Slot) -> u64) -> Vec<u64> {
        let of = |at: Option<usize>| at.and_then(|at| self.slots.get(at)).map_or(0, &amount);
        let (before, now, after) = (of(at.checked_sub(1)), of(Some(at)), of(at.checked_add(1)));
        let slot_ns = self.slot_ns.max(1);
        let part_ns = (slot_ns / u64::from(by)).max(1);
        let full = now / slot_ns;
        if full == 0 && before > 0 && after > 0 && before.max(after) < slot_ns {
            // Small pieces of work, of which nobody knows where they were.
            return shares(now, &vec![1; by as usize]);
        }
        // A burst of several tasks may end within a slot.
        let cpus = if full == 0 { now.max(before.max(after)).div_ceil(slot_ns).max(1) } else { 1 };
        let mut left = now - full * part_ns * u64::from(by);
        let mut pieces: Vec<u64> = (0..by)
            .map(|part| {
                let piece = if part + 1 == by { left } else { left.min(part_ns * cpus) };
                left -= piece;
                full * part_ns + piece
            })
            .collect();
        if after > before {
            pieces.reverse();
        }
        pieces
    }
}

/// Divides `ns` in proportion to the pieces. Nothing is lost.
fn shares(ns: u64, pieces: &[u64]) -> Vec<u64> {
    let whole: u128 = pieces.iter().map(|piece| u128::from(*piece)).sum();
    let (mut sum, mut given) = (0u128, 0);
    pieces
        .iter()
        .map(|piece| {
            sum += u128::from(*piece);
            let until = (u128::from(ns) * sum).checked_div(whole).unwrap_or(0) as u64;
            until - std::mem::replace(&mut given, until)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(ran: &[u64]) -> Profile {
        let slot = |ns: &u64| Slot { ran_ns: *ns, firm_ns: *ns, ..Slot::default() };
        Profile { slot_ns: 100, slots: ran.iter().map(slot).collect() }
    }

    #[test]
    fn a_burst_is_one_piece() {
        let refined = profile(&[0, 30, 100, 60, 0]).refined(4);
        let ran: Vec<u64> = refined.slots.iter().map(|slot| slot.ran_ns).collect();
        assert_eq!(ran, [0, 0, 0, 0, 0, 0, 5, 25, 25, 25, 25, 25, 25, 25, 10, 0, 0, 0, 0, 0]);
        assert_eq!(refined.slot_ns, 25);
        // Two tasks that end together.
        let refined = profile(&[200, 50, 0]).refined(4);
        let ran: Vec<u64> = refined.slots.iter().map(|slot| slot.ran_ns).collect();
        assert_eq!(ran[4..8], [50, 0, 0, 0]);
        // One of two ends.
        let refined = profile(&[200, 130, 100]).refined(4);
        let ran: Vec<u64> = refined.slots.iter().map(|slot| slot.ran_ns).collect();
        assert_eq!(ran[4..8], [50, 30, 25, 25]);
    }

    #[test]
    fn each_slot_keeps_its_sums() {
        let mut random = 7u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        let slots: Vec<Slot> = (0..500)
            .map(|_| {
                let most = [1, 100, 350][below(3) as usize];
                let mut amount = || below(most);
                Slot { ran_ns: amount(), waited_ns: amount(), firm_ns: amount(), presumed_ns: amount() }
            })
            .collect();
        let profile = Profile { slot_ns: 100, slots };
        for by in [1, 2, 4, 5] {
            let refined = profile.clone().refined(by);
            for (slot, parts) in profile.slots.iter().zip(refined.slots.chunks(by as usize)) {
                let sum = |of: fn(&Slot) -> u64| parts.iter().map(of).sum::<u64>();
                assert_eq!(sum(|slot| slot.ran_ns), slot.ran_ns);
                assert_eq!(sum(|slot| slot.waited_ns), slot.waited_ns);
                assert_eq!(sum(|slot| slot.firm_ns), slot.firm_ns);
                assert_eq!(sum(|slot| slot.presumed_ns), slot.presumed_ns);
            }
        }
    }
}
