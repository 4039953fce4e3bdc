//! Tests that take minutes: `cargo xtask test --long`. The latest results are in docs/long.md.

use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use crate::{
    bench::{cgscope, rss_bytes},
    files::Dir,
    spread::Spread,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Every cgroup waits behind every other one sooner or later: four million pairs of a victim and a culprit.
#[test]
#[ignore = "ten minutes"]
fn two_thousand_cgroups_that_all_yield_for_ten_minutes_take_no_more_memory_than_in_the_fifth() {
    const MINUTES: u32 = 10;
    let _spread = Spread::yielding("many-yield", 2_000, u64::from(MINUTES) * 60 + 120);
    let dir = Dir::new("many-yield");
    let mut recording = cgscope();
    recording
        .args(["record", "-o", &dir.file("a.rec"), "-d", "630"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut recording = recording.spawn().expect("cgscope is executed");
    let begun = Instant::now();
    let by_minute: Vec<u64> = (1..=MINUTES)
        .map(|minute| {
            thread::sleep((MINUTE * minute).saturating_sub(begun.elapsed()));
            rss_bytes(recording.id()) >> 10
        })
        .collect();
    println!("KiB by minute: {by_minute:?}");
    let _ = recording.kill();
    let _ = recording.wait();
    // By the fifth minute, each cgroup has met as many others as are kept apart.
    let (fifth, last) = (by_minute[4], by_minute[by_minute.len() - 1]);
    // Allow a twentieth more: the memory that the allocator keeps varies.
    assert!(last <= fifth + fifth / 20, "KiB by minute: {by_minute:?}");
}
