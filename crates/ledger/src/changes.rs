//! The list of tasks that changed on one CPU since their last report. A reading visits only these tasks, not all tasks of the
//! host.
//!
//! No lock is needed, because only the CPU's hook appends entries and only the reader removes entries. If a list is full, the
//! next reading visits all tasks.

use crate::verifier::{exchange, get, opaque, set, wrapped};

/// Maximum number of entries in a list, a power of two.
pub const CHANGES: usize = 1024;

/// The number of a reading is shifted by this, to leave room for the number of a list: that of a CPU, or one more.
pub const TURN_SHIFT: u32 = 16;

/// A task that changed: its id, which is below 2^32; or, if it has exited, its [`serial`](crate::wire::serial), which is at least
/// 2^42, because no task has the id 0.
pub type Change = u64;

/// The list of changed tasks of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    appended: u64,
    taken: u64,
    /// The current reading covers the entries with a number below this one.
    until: u64,
    turn: u64,
    overflowed: u64,
    /// Address of the CPU's `struct rq`; 0 if the address is not known yet.
    pub queue: u64,
    entries: [Change; CHANGES],
}

impl Changes {
    /// Appends an entry. If the list is full, sets `overflowed` and returns false.
    #[inline(always)]
    pub fn append(&mut self, change: Change) -> bool {
        let (appended, taken) = (get(&mut self.appended), get(&mut self.taken));
        if appended.wrapping_sub(taken) >= CHANGES as u64 {
            set(&mut self.overflowed, 1);
            return false;
        }
        *self.at(appended) = change;
        // Other CPUs see the exchange only after all earlier writes. (On x86 every write is ordered like this; on other machines
        // the exchange is a full barrier.)
        exchange(&mut self.appended, appended.wrapping_add(1));
        true
    }

    /// Begins the reading with the number `turn`, unless that reading has already begun. The reading covers the entries that are
    /// in the list now.
    #[inline(always)]
    pub fn begin(&mut self, turn: u64) {
        if get(&mut self.turn) != turn {
            set(&mut self.turn, turn);
            let appended = get(&mut self.appended);
            set(&mut self.until, appended);
        }
    }

    /// Returns whether the current reading has removed all entries that it covers.
    #[inline(always)]
    pub fn is_done(&mut self) -> bool {
        get(&mut self.taken) == get(&mut self.until)
    }

    /// Removes the next entry and returns it. The caller must check first that [`Self::is_done`] is false.
    #[inline(always)]
    pub fn take(&mut self) -> Change {
        let taken = get(&mut self.taken);
        let change = *self.at(taken);
        // As in `append`.
        exchange(&mut self.taken, taken.wrapping_add(1));
        change
    }

    /// Returns whether the list was full at any [`Self::append`] since the last call of this function.
    #[inline(always)]
    pub fn take_overflow(&mut self) -> bool {
        exchange(&mut self.overflowed, 0) != 0
    }

    #[inline(always)]
    fn at(&mut self, number: u64) -> &mut Change {
        wrapped(&mut self.entries, opaque(number as usize & (CHANGES - 1)) as u64)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::{boxed::Box, collections::VecDeque};

    proptest! {
        #[test]
        fn a_list_holds_what_was_appended_and_not_yet_taken(steps in prop::collection::vec((0..2 * CHANGES, 0..2 * CHANGES), 1..12)) {
            // SAFETY: the type holds only integers.
            let mut list = unsafe { Box::<Changes>::new_zeroed().assume_init() };
            let mut expected = VecDeque::new();
            let (mut number, mut turn) = (0, 0);
            for (appended, taken) in steps {
                let mut fits = true;
                for _ in 0..appended {
                    number += 1;
                    let is_appended = list.append(number);
                    prop_assert_eq!(is_appended, expected.len() < CHANGES);
                    if is_appended {
                        expected.push_back(number);
                    } else {
                        fits = false;
                    }
                }
                prop_assert_eq!(list.take_overflow(), !fits);
                turn += 1;
                list.begin(turn);
                // This entry is appended during the reading, so it belongs to the next reading.
                let until = expected.len();
                if expected.len() < CHANGES {
                    number += 1;
                    list.append(number);
                    expected.push_back(number);
                }
                list.begin(turn);
                for _ in 0..taken.min(until) {
                    prop_assert!(!list.is_done());
                    prop_assert_eq!(Some(list.take()), expected.pop_front());
                }
                prop_assert_eq!(list.is_done(), taken >= until);
            }
        }
    }
}
