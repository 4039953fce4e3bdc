//! Sums of counters, and matching of readings with earlier readings. Sums saturate, because a file may contain any number.

use std::collections::BTreeMap;

pub fn add(sum: &mut u64, amount: u64) {
    *sum = sum.saturating_add(amount);
}

pub fn total(amounts: impl IntoIterator<Item = u64>) -> u64 {
    amounts.into_iter().fold(0, u64::saturating_add)
}

/// Returns the sum of two readings, either of which may be missing; `None` if both are missing.
pub fn known(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).reduce(u64::saturating_add)
}

/// Adds a value to a sum. Either may be missing.
pub(crate) fn add_known<T>(sum: &mut Option<T>, other: Option<T>, add: impl FnOnce(&mut T, T)) {
    match (sum.as_mut(), other) {
        (Some(sum), Some(other)) => add(sum, other),
        (None, other) => *sum = other,
        (Some(_), None) => {}
    }
}

pub fn tally<K: Ord>(amounts: impl IntoIterator<Item = (K, u64)>) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    amounts.into_iter().for_each(|(key, amount)| add(sums.entry(key).or_default(), amount));
    sums
}

/// Declares a type that holds ns for each variant of an enum.
macro_rules! by {
    ($(#[$about:meta])* $type:ident: $key:ident, $count:expr) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type(pub [u64; $count]);

        impl $type {
            pub fn get(&self, key: $key) -> u64 {
                self.0[key as usize]
            }

            pub fn iter(&self) -> impl Iterator<Item = ($key, u64)> + '_ {
                $key::ALL.into_iter().zip(self.0)
            }

            pub fn total(&self) -> u64 {
                $crate::sum::total(self.0)
            }

            pub fn add_ns(&mut self, key: $key, ns: u64) {
                $crate::sum::add(&mut self.0[key as usize], ns);
            }

            pub fn add(&mut self, other: &Self) {
                other.iter().for_each(|(key, ns)| self.add_ns(key, ns));
            }

            /// Returns the parts, scaled down in proportion if their sum exceeds `most_ns`.
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

/// Merges adjacent elements with the same key, and sums their amounts.
pub fn merge<T, K: PartialEq>(rows: &mut Vec<T>, key: impl Fn(&T) -> K, amount: impl Fn(&mut T) -> &mut u64) {
    rows.dedup_by(|next, kept| {
        let is_same = key(next) == key(kept);
        if is_same {
            add(amount(kept), *amount(next));
        }
        is_same
    });
}

/// Returns a function that finds the element of `before` with a given key. `before` and the passed keys must ascend.
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

/// Divides an amount in proportion to the parts. The shares sum to the amount, or are 0 if all parts are.
pub fn shares(amount: u64, parts: &[u64]) -> Vec<u64> {
    let whole: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let (mut sum, mut given) = (0u128, 0);
    let share = |part: &u64| {
        sum += u128::from(*part);
        let until = u128::from(amount).saturating_mul(sum).checked_div(whole).unwrap_or(0) as u64;
        until - std::mem::replace(&mut given, until)
    };
    parts.iter().map(share).collect()
}

/// True if `part` is at least this percentage of `whole`; false if `whole` is 0.
pub(crate) fn is_share(part: u64, whole: u64, percent: u64) -> bool {
    whole != 0 && u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_stays_at_the_largest_number_and_skips_unknown_parts() {
        let mut sum = 3;
        add(&mut sum, u64::MAX);
        assert_eq!((sum, total([u64::MAX, 1, 7]), total([])), (u64::MAX, u64::MAX, 0));
        let both = [(Some(1), Some(2)), (Some(1), None), (None, Some(2)), (None, None)];
        assert_eq!(both.map(|(a, b)| known(a, b)), [Some(3), Some(1), Some(2), None]);
    }
}
