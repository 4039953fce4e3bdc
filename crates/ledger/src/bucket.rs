//! The histogram buckets for the lengths of waits: eight buckets for each power of two of a microsecond.
//!
//! Every eighth bucket edge is a power of two of a microsecond, so eight buckets cover exactly one row of `runqlat`. Below 1 us,
//! each bucket is 125 ns wide.
//!
//! A division would take too long in the hook. Instead, `ns * 67109 >> 23` computes `ns / 125` with a relative error of 2e-6.

use crate::verifier::opaque;

/// Binary logarithm of the number of buckets for each power of two.
const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;

/// Number of buckets: 8 linear ones below 1 us, then 8 for each of 29 powers of two.
pub const BUCKETS: usize = 240;

/// `ns * NUM >> SHIFT` counts units of 125 ns (an eighth of a microsecond).
const NUM: u64 = 67_109;
const SHIFT: u32 = 23;

/// Lower edge of the last bucket, ns (about 8 min 23 s). The last bucket has no upper edge.
pub const LAST_LOW_NS: u64 = low_ns(BUCKETS - 1);

/// Maximum relative error of a value read from a bucket, for values of at least 1 us. A bucket is at most this fraction of its
/// lower edge wide. Below 1 us, the error is at most 125 ns.
pub const RELATIVE_ERROR: f64 = 1.0 / SUB as f64;

/// Returns the index of the bucket for a wait of `ns` nanoseconds, which is below [`BUCKETS`].
#[inline(always)]
pub fn bucket_of(ns: u64) -> usize {
    if ns >= LAST_LOW_NS {
        return BUCKETS - 1;
    }
    // The number of units is below 2^32, because the last bucket starts at 15 << 28 units.
    let units = (ns * NUM) >> SHIFT;
    // The exponent is 0 for the 8 linear buckets and for the next 8 buckets, which have the same width.
    let doublings = log2(units | SUB) - SUB_BITS;
    (((doublings << SUB_BITS) as u64) + (units >> doublings)) as usize
}

/// Returns the lower edge of `bucket`, ns.
pub const fn low_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let units =
        if bucket < SUB { bucket } else { (SUB + (bucket & (SUB - 1))) << ((bucket >> SUB_BITS) - 1) };
    (units << SHIFT).div_ceil(NUM)
}

/// Returns the upper edge of `bucket`, which is not part of it, ns. The last bucket also holds all longer waits.
pub const fn high_ns(bucket: usize) -> u64 {
    low_ns(bucket + 1)
}

/// Returns the binary logarithm of `v`, rounded down. `v` must be above 0 and below 2^32. BPF has no instruction to count leading
/// zeros. The function has no branches, because a CPU would often mispredict them: the lengths of successive waits differ.
#[inline(always)]
fn log2(mut v: u64) -> u32 {
    for shift in [1, 2, 4, 8, 16] {
        v |= v >> shift;
    }
    // Now all bits below the highest one are set. Each of these 32 numbers has its own five bits at the top of the product.
    let at = opaque(((v * DE_BRUIJN) as u32 >> 27) as usize);
    LOG2.get(at).copied().unwrap_or(0).into()
}

/// A number whose products with 2^n - 1 differ in the bits 27 to 31, for n from 1 to 32.
const DE_BRUIJN: u64 = 0x07c4_acdd;

/// The logarithm for each of these products.
static LOG2: [u8; 32] = {
    let mut table = [0; 32];
    let mut n = 0;
    while n < 32 {
        table[((((2u64 << n) - 1) * DE_BRUIJN) as u32 >> 27) as usize] = n as u8;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edges_fall_on_powers_of_two_of_a_microsecond() {
        for k in 0..29 {
            let edge = 1_000u64 << k;
            let low = low_ns(8 + 8 * k);
            assert!(low.abs_diff(edge) as f64 <= 2.1e-6 * edge as f64, "2^{k} us: {low} ns");
        }
        assert_eq!(low_ns(0), 0);
        assert_eq!(low_ns(8), 1_000);
        assert_eq!(bucket_of(999), 7);
        assert_eq!(bucket_of(1_000), 8);
    }

    #[test]
    fn every_bucket_begins_at_its_lower_edge_and_ends_before_its_upper_one() {
        for b in 0..BUCKETS {
            assert_eq!(bucket_of(low_ns(b)), b);
            assert_eq!(bucket_of(high_ns(b) - 1), b);
        }
    }

    #[test]
    fn the_extremes_have_a_bucket() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of(LAST_LOW_NS), BUCKETS - 1);
        assert_eq!(bucket_of(LAST_LOW_NS - 1), BUCKETS - 2);
    }

    fn any_ns() -> impl Strategy<Value = u64> {
        // Generates each order of magnitude equally often. A uniformly random `u64` would nearly always be in the last bucket.
        (0u32..64, any::<u64>()).prop_map(|(shift, v)| v >> shift)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_wait_lies_between_the_edges_of_its_bucket(ns in any_ns()) {
            let b = bucket_of(ns);
            prop_assert!(b < BUCKETS);
            prop_assert!(low_ns(b) <= ns);
            prop_assert!(ns < high_ns(b) || b == BUCKETS - 1);
        }

        #[test]
        fn a_longer_wait_is_never_in_an_earlier_bucket(a in any_ns(), b in any_ns()) {
            let (shorter, longer) = (a.min(b), a.max(b));
            prop_assert!(bucket_of(shorter) <= bucket_of(longer));
        }

        #[test]
        fn a_bucket_is_at_most_an_eighth_of_its_lower_edge_wide(b in 8..BUCKETS) {
            let width = (high_ns(b) - low_ns(b)) as f64;
            // The edges are rounded to whole nanoseconds, so allow an error of 1 ns.
            prop_assert!(width <= RELATIVE_ERROR * low_ns(b) as f64 + 1.0);
        }
    }
}
