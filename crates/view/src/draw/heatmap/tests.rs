use std::sync::Arc;

use cgscope_model::{Hist, Interval, findings::Host};

use super::*;
use crate::{
    data::{Data, Key},
    history::History,
};

#[test]
fn every_count_has_a_shade_and_higher_counts_are_never_lighter() {
    for most in [1, 2, 3, 7, 400, 100_000] {
        let shades: Vec<char> = (0..=most).map(|count| shade(count, &steps(most))).collect();
        assert_eq!((shades[0], shades[1] == ' ', shades[most as usize]), (' ', false, '█'));
        let place = |shade: &char| SHADES.iter().position(|one| one == shade);
        assert!(shades.windows(2).all(|pair| place(&pair[0]) <= place(&pair[1])), "{most}");
    }
    assert_eq!(scale(1), "  █ 1");
    assert_eq!(scale(255), "  ░ 1-3  ▒ 4-15  ▓ 16-63  █ 64-255");
}

#[test]
fn times_are_below_their_columns() {
    let ends = |count: u64| (0..count).map(|at| (1_700_000_000 + at) * 1_000_000_000).collect::<Vec<_>>();
    let line = ticks(&ends(40), 40);
    assert_eq!(line, "╵22:13:20           ╵22:13:40  22:13:59╵");
    assert_eq!(ticks(&ends(3), 20), format!("{:>20}", "22:13:22╵"));
    let line = ticks(&ends(292), 292);
    assert_eq!(width(&line), 292);
    // Each mark is in the column of its second. The first column is that of 22:13:20.
    assert!(line.chars().nth(40) == Some('╵') && line.contains("╵22:14:00"), "{line}");
    assert_eq!((ticks(&[], 40), ticks(&ends(5), 3)), Default::default());
}

fn map(past: &[Past], unit: Unit, room: usize) -> Map {
    Map::new(&past.iter().map(|one| doublings(&one.wait, unit)).collect::<Vec<_>>(), unit, room)
}

fn past(waits: &[&[u64]]) -> Vec<Past> {
    let mut history = History::default();
    for ns in waits {
        let mut data = Data::new(Arc::new(Interval::default()), &Host::default());
        data.total.wait.hist = Hist::of_cause(Cause::Throttled, ns.iter().copied());
        history.push(&data, None);
    }
    history.past(&Key::All, Vec::new())
}

#[test]
fn only_lengths_that_occur_have_rows_and_joined_rows_lose_no_wait() {
    let past = past(&[&[5_000, 6_000], &[], &[300_000]]);
    let shape = |room| {
        let map = map(&past, Unit::Micro, room);
        let count: u64 = map.cells.iter().flatten().map(|cell| cell.count).sum();
        assert_eq!(count, 3);
        (map.rows, map.doublings, map.label(0))
    };
    // The waits are from 4 us to below 512 us long.
    assert_eq!(shape(20), (7, 1, "4.00us".into()));
    assert_eq!(shape(4), (4, 2, "4.00us".into()));
    assert_eq!(shape(1), (1, 7, "4.00us".into()));
    assert_eq!(map(&past, Unit::Milli, 9).label(0), "0");
    let map = map(&past, Unit::Micro, 9);
    assert_eq!(cause(&map.cells[2][6]), Some(Cause::Throttled));
    assert_eq!((cause(&map.cells[1][0]), map.most), (None, 2));
}

#[test]
fn a_map_without_waits_has_no_rows() {
    assert_eq!(map(&past(&[&[], &[]]), Unit::Micro, 9).rows, 0);
    assert_eq!(largest(&past(&[&[]]), true), None);
}
