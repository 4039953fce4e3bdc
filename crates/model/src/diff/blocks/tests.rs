use super::*;

fn rows(amounts: &[u64]) -> SubjectBlocks {
    let mut rows = SubjectBlocks::default();
    for (block, amount) in amounts.iter().enumerate() {
        let mut sums = BlockSums::default();
        sums.add(Measure::OnCpu, *amount);
        sums.add(Measure::Longest, *amount);
        rows.0.push(sums.row(block));
    }
    rows
}

#[test]
fn merging_blocks_loses_nothing_and_the_last_block_gets_a_short_rest() {
    let amounts: Vec<u64> = (1..=10).collect();
    for (factor, expected) in [
        (2, vec![3.0, 7.0, 11.0, 15.0, 19.0]),
        (3, vec![6.0, 15.0, 34.0]),
        (4, vec![10.0, 26.0, 19.0]),
        (20, vec![55.0]),
    ] {
        let mut rows = rows(&amounts);
        rows.merge_blocks(factor, 10);
        let mut blocks = Blocks { lengths_ns: amounts.clone(), intervals_each: 1, ..Blocks::default() };
        blocks.merge(factor);
        assert_eq!(rows.series(Measure::OnCpu as usize, blocks.lengths_ns.len()), expected, "{factor}");
        assert_eq!(blocks.lengths_ns.iter().map(|ns| *ns as f64).collect::<Vec<_>>(), expected);
        assert_eq!(rows.sum().get(Measure::Longest), 10);
    }
}

#[test]
fn a_bucket_counts_beyond_32_bits() {
    const MANY: u64 = u32::MAX as u64;
    let mut rows = SubjectBlocks::default();
    for block in 0..4 {
        let mut sums = BlockSums::default();
        let counts = [(10, MANY), (200, 3 * MANY)];
        let hist = Hist::from_counts(
            (0..BUCKETS).map(|at| counts.iter().find(|(of, _)| *of == at).map_or(0, |(_, count)| *count)),
            [],
        );
        let totals = Totals { waits: 4 * MANY, ..Totals::default() };
        sums.add_tasks(&totals, u64::MAX, &hist, &Observed::default());
        rows.0.push(sums.row(block));
    }
    assert_eq!(rows.above(10, 4), [3.5 * MANY as f64; 4]);
    assert_eq!(rows.waits(4), [4.0 * MANY as f64; 4]);
    rows.merge_blocks(2, 4);
    let sum = rows.sum();
    assert_eq!((sum.get(Measure::Waits), sum.hist().count()), (16 * MANY, 16 * MANY));
    assert_eq!(sum.hist().counts().collect::<Vec<_>>(), [(10, 4 * MANY), (200, 12 * MANY)]);
}

#[test]
fn two_subjects_are_added_block_by_block() {
    let mut one = rows(&[1, 2, 3]);
    one.merge(rows(&[10, 20, 30, 40]));
    assert_eq!(one.series(Measure::OnCpu as usize, 4), [11.0, 22.0, 33.0, 40.0]);
}

#[test]
fn blocks_grow_with_the_recording_and_enough_blocks_remain() {
    let factor = |intervals| Blocks { intervals, intervals_each: 1, ..Blocks::default() }.final_factor();
    assert_eq!([1, 8, 16, 30, 48].map(factor), [1, 1, 2, 3, 3]);
    let hour = Blocks { intervals: 3_600, intervals_each: 128, ..Blocks::default() };
    assert_eq!(hour.final_factor(), 1);
}
