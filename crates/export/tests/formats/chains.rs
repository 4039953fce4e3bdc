//! Tests the folded stacks of sleepers and wakers.

use cgscope_export::{Error, Format};
use cgscope_made_up::small;
use cgscope_model::{ChainReading, Interval};

use crate::support::{Paper, export, try_export};

#[test]
fn a_stack_has_the_sleeper_the_kind_the_waker_and_what_it_did() {
    // Two intervals with the same chains give the same stacks with twice the time.
    let text = String::from_utf8(export(Format::Chains, &[small::shop(), small::shop()])).expect("text");
    let lines = "\
web.service;file lock;cron.service;other_cgroup 40000000
web.service;file lock;cron.service;ran 60000000
web.service;file lock;cron.service;throttled 300000000
web.service;lock;web.service;ran 40000000
web.service;lock;web.service;unknown 10000000
";
    assert!(text.contains(lines), "{text}");
    assert!(text.contains("db.service;disk;disk 150000000\n"), "{text}");
    let ns = |line: &str| line.rsplit_once(' ').expect("a time").1.parse::<u64>().expect("a number");
    let slept = small::shop().chains.iter().flatten().map(|row| row.slept_ns).sum::<u64>();
    assert_eq!(text.lines().map(ns).sum::<u64>(), 2 * slept);
}

#[test]
fn a_recording_without_chains_is_refused() {
    let without = Interval { chains: None, ..small::shop() };
    let refused = try_export(Format::Chains, std::slice::from_ref(&without), &Paper::with_room(9));
    assert!(matches!(refused, Err(Error::NoChains)), "{refused:?}");
    // A recording in which nobody slept is complete.
    assert!(export(Format::Chains, &[Interval { chains: Some(Vec::new()), ..without }]).is_empty());
}

#[test]
fn no_name_adds_a_frame() {
    let mut shop = small::shop();
    let row = ChainReading { waker_tid: 7, comm: "a;b\n 5".into(), ..shop.chains.take().unwrap()[0].clone() };
    let text = export(Format::Chains, &[Interval { chains: Some(vec![row]), ..shop }]);
    let text = String::from_utf8(text).expect("text");
    assert!(text.lines().all(|line| line.matches(';').count() == 3), "{text}");
}
