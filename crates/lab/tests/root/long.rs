//! Tests that take minutes: `cargo xtask test --long`.

mod stolen;
mod threads;

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

/// Over time, every cgroup waits for every other cgroup, so without a limit there would be four million pairs of victim and
/// culprit.
#[test]
#[ignore = "all CPUs: 2,000 busy cgroups"]
fn two_thousand_cgroups_that_yield_for_ten_minutes_use_no_more_memory_than_after_five() {
    const MINUTES: u32 = 10;
    let _spread = Spread::yielding("many-yield", 2_000, u64::from(MINUTES) * 60 + 120);
    let dir = Dir::new("many-yield");
    let mut recording = cgscope();
    recording
        .args(["record", "-o", &dir.file("a.rec"), "-d", "630"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut recording = recording.spawn().expect("cgscope starts");
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
    // After five minutes, each victim has the maximum number of separately counted culprits.
    let (fifth, last) = (by_minute[4], by_minute[by_minute.len() - 1]);
    // Allow 5 % more, because the allocator does not always keep the same amount of free memory.
    assert!(last <= fifth + fifth / 20, "KiB by minute: {by_minute:?}");
}
