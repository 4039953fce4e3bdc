//! What is not the same about two recordings before any figure is compared.

use cgscope_model::{
    Mode,
    diff::{Diff, Length},
    units::{self, duration},
};
use cgscope_record::Header;

use crate::recording::{Recording, subject};

/// A line for each recording.
pub fn lines(recordings: [&Recording; 2], diff: &Diff) -> String {
    let line = |side: usize, name: &str| {
        let (recording, length) = (recordings[side], &diff.lengths[side]);
        format!(
            "{name} {}: the {}, {} over {}{}\n",
            recording.file,
            subject(recording.header()),
            units::count(length.intervals, "interval"),
            duration(length.duration_ns),
            if length.mode == Mode::Coarse { ", COARSE" } else { "" },
        )
    };
    line(0, "before") + &line(1, "after ")
}

/// Each difference in a sentence: figures of other hosts or selections are compared with care.
pub fn differences(recordings: [&Recording; 2], diff: &Diff) -> Vec<String> {
    let [before, after] = recordings.map(Recording::header);
    let mut said = Vec::new();
    let mut differ = |what: &str, before: String, after: String| {
        if before != after {
            said.push(format!("{what}: {before} before, {after} after"));
        }
    };
    differ("another host", before.hostname.clone(), after.hostname.clone());
    let kernel = |header: &Header| format!("Linux {} {}", header.kernel_release, header.architecture);
    differ("another kernel", kernel(before), kernel(after));
    let cpus = |header: &Header| units::count(header.cpus.len() as u64, "CPU");
    differ("another number of CPUs", cpus(before), cpus(after));
    if before.selection.pids.is_empty() && after.selection.pids.is_empty() {
        differ("another selection", subject(before), subject(after));
    }
    differ("another interval", duration(before.interval_ns), duration(after.interval_ns));
    differ("another version of cgscope", before.cgscope_version.clone(), after.cgscope_version.clone());
    said.extend(modes(diff));
    said
}

fn modes(diff: &Diff) -> Option<String> {
    let [before, after] = diff.lengths.map(|Length { mode, .. }| mode);
    let coarse = match (before, after) {
        (Mode::Bpf, Mode::Bpf) => return None,
        (Mode::Coarse, Mode::Coarse) => "both recordings are coarse",
        (Mode::Coarse, Mode::Bpf) => "the first recording is coarse, the second one exact",
        (Mode::Bpf, Mode::Coarse) => "the first recording is exact, the second one coarse",
    };
    Some(format!(
        "{coarse}: lengths of waits, causes other than quotas, culprits and moves between CPUs are not compared"
    ))
}
