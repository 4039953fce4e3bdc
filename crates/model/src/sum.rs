//! Sums of counters, and readings matched with earlier ones. A file may hold any figure: what goes beyond 64 bits stays at the largest
//! number.

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
