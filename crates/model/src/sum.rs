//! Sums of counters, and readings matched with earlier ones. A file may hold any figure: what goes beyond 64 bits stays at the largest
//! number.

use std::collections::BTreeMap;

/// Adds to a sum.
pub fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}

/// The sum of all.
pub fn total(amounts: impl IntoIterator<Item = u64>) -> u64 {
    amounts.into_iter().fold(0, u64::saturating_add)
}

/// The sum of two that may not have been read: of what is known.
pub fn known(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (known, None) | (None, known) => known,
    }
}

/// Sums by key.
pub fn tally<K: Ord>(amounts: impl IntoIterator<Item = (K, u64)>) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    amounts.into_iter().for_each(|(key, amount)| add(sums.entry(key).or_default(), amount));
    sums
}

/// Declares a type of ns by the variants of an enum.
macro_rules! by {
    ($(#[$about:meta])* $type:ident: $key:ident, $count:expr) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type(pub [u64; $count]);

        impl $type {
            /// ns of one.
            pub fn get(&self, key: $key) -> u64 {
                self.0[key as usize]
            }

            /// Each and its ns.
            pub fn iter(&self) -> impl Iterator<Item = ($key, u64)> + '_ {
                $key::ALL.into_iter().zip(self.0)
            }

            /// The sum of all, ns.
            pub fn total(&self) -> u64 {
                $crate::sum::total(self.0)
            }

            /// Adds to one.
            pub fn add_ns(&mut self, key: $key, ns: u64) {
                $crate::sum::add(&mut self.0[key as usize], ns);
            }

            /// Adds the time of another task or wait.
            pub fn add(&mut self, other: &Self) {
                other.iter().for_each(|(key, ns)| self.add_ns(key, ns));
            }

            /// The parts in proportion, at most `most_ns` in all.
            pub fn at_most(&self, most_ns: u64) -> Self {
                let total = u128::from(self.total());
                if total <= u128::from(most_ns) {
                    return *self;
                }
                Self(self.0.map(|ns| (u128::from(ns) * u128::from(most_ns) / total) as u64))
            }
        }
    };
}

pub(crate) use by;

/// Makes one of neighbours with the same key, with the sum of their amounts.
pub fn merge<T, K: PartialEq>(
    sorted: &mut Vec<T>,
    key: impl Fn(&T) -> K,
    amount: impl Fn(&mut T) -> &mut u64,
) {
    sorted.dedup_by(|next, kept| {
        let is_same = key(next) == key(kept);
        if is_same {
            add(amount(kept), *amount(next));
        }
        is_same
    });
}

/// Finds the one of `before` with a key, for keys that ascend as theirs do.
pub(crate) fn earlier<'a, T, K: Ord>(
    before: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> impl FnMut(K) -> Option<&'a T> {
    let mut rest = before.iter().peekable();
    move |wanted| {
        while rest.next_if(|before| key(before) < wanted).is_some() {}
        rest.next_if(|before| key(before) == wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_stays_at_the_largest_number_and_takes_what_is_known() {
        let mut sum = 3;
        add(&mut sum, u64::MAX);
        assert_eq!((sum, total([u64::MAX, 1, 7]), total([])), (u64::MAX, u64::MAX, 0));
        let both = [(Some(1), Some(2)), (Some(1), None), (None, Some(2)), (None, None)];
        assert_eq!(both.map(|(a, b)| known(a, b)), [Some(3), Some(1), Some(2), None]);
    }
}
