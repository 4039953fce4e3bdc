//! `cgscope diff`: what changed between two recordings, and which changes are more than noise.

mod figures;
mod tables;
#[cfg(test)]
mod tests;
mod words;

use std::{
    io::{self, Write},
    thread,
};

use cgscope_model::diff::{Diff, MOST_BLOCKS, Side, compare, json};
use serde::Serialize;

use crate::{
    cli,
    exit::{Error, Exit, Result},
    ndjson::json_line,
    recording::{Recording, subject},
};

pub fn run(options: &cli::Diff) -> Result {
    // Open both files before reading one, so that a mistyped second name fails before the first file is read.
    let mut before = Recording::open(&options.before)?;
    let mut after = Recording::open(&options.after)?;
    let (first, second) = thread::scope(|scope| -> Result<_> {
        let second = thread::Builder::new().spawn_scoped(scope, || read(&mut after));
        let second = second.map_err(|error| Error::no_thread(&error))?;
        let first = read(&mut before);
        Ok((first?, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?))
    })?;
    let diff = compare(first, second, &[before.host, after.host]);
    let recordings = [&before, &after];
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = if options.json {
        print_json(&mut out, recordings, &diff)
    } else {
        out.write_all(words::text(recordings, &diff, options.all).as_bytes())
    };
    written.and_then(|()| out.flush()).map_err(|error| Error::output(&error))?;
    Ok(finish(recordings, &diff))
}

/// Maximum number of intervals to read from a recording: two per block.
const INTERVALS: u64 = 2 * MOST_BLOCKS as u64;

fn read(recording: &mut Recording) -> Result<Side> {
    recording.at_most(INTERVALS)?;
    let mut side = Side::default();
    let mut seen = 1;
    while let Some(interval) = recording.next_interval()? {
        side.add_long(interval, recording.samples() - seen);
        seen = recording.samples();
    }
    Ok(side)
}

fn finish(recordings: [&Recording; 2], diff: &Diff) -> Exit {
    let [before, after] = recordings.map(Recording::finish);
    if diff.is_enough() {
        return before.max(after);
    }
    say!("cgscope: {}", words::too_short(diff));
    before.max(after).max(Exit::Incomplete)
}

#[derive(Serialize)]
struct RecordingObject<'a> {
    schema: &'static str,
    kind: &'static str,
    side: &'static str,
    file: &'a str,
    hostname: &'a str,
    kernel_release: &'a str,
    architecture: &'a str,
    cpus: usize,
    selection: String,
    interval_ns: u64,
    start_unix_ns: u64,
    ending: Option<String>,
    losses: std::collections::BTreeMap<&'static str, u64>,
}

fn print_json(out: &mut impl Write, recordings: [&Recording; 2], diff: &Diff) -> io::Result<()> {
    for (recording, side) in recordings.into_iter().zip(["before", "after"]) {
        let header = recording.header();
        let object = RecordingObject {
            schema: json::SCHEMA,
            kind: "recording",
            side,
            file: &recording.file,
            hostname: &header.hostname,
            kernel_release: &header.kernel_release,
            architecture: &header.architecture,
            cpus: header.cpus.len(),
            selection: subject(header),
            interval_ns: header.interval_ns,
            start_unix_ns: header.start_unix_ns,
            ending: recording.ending().map(ToString::to_string),
            losses: recording.losses().nonzero().map(|(loss, count)| (loss.name(), count)).collect(),
        };
        json_line(out, &object)?;
    }
    json::objects(diff).try_for_each(|object| json_line(out, &object))
}
