//! `cgscope diff`: what changed from one recording to another, and what of it is more than noise.

mod figures;
mod headers;
mod tables;
#[cfg(test)]
mod tests;
mod words;

use std::{
    io::{self, Write},
    path::Path,
};

use cgscope_model::diff::{MOST_BLOCKS, Side, compare, json};
use serde::Serialize;

use crate::{
    cli::Diff,
    exit::{Error, Exit, Result},
    recording::{Recording, subject},
};

/// Runs the command.
pub fn run(options: &Diff) -> Result {
    // Both are opened before either is read: whoever mistypes the second name need not wait for the first file.
    let mut before = Recording::open(&options.before)?;
    let mut after = Recording::open(&options.after)?;
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| read(&mut after));
        let first = read(&mut before);
        (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let diff = compare(first?, second?, &[before.host, after.host]);
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

/// Two for each block of time that a side has at most: a long recording need not be read more finely.
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

/// Too few intervals to say anything is an incomplete answer.
fn finish(recordings: [&Recording; 2], diff: &cgscope_model::diff::Diff) -> Exit {
    let read = recordings.map(Recording::finish);
    let enough = if diff.is_enough() { Exit::Done } else { Exit::Incomplete };
    if !diff.is_enough() {
        say!("cgscope: {}", words::too_short(diff));
    }
    read.into_iter().fold(enough, Exit::max)
}

/// A recording, as it was taken.
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

fn print_json(
    out: &mut impl Write,
    recordings: [&Recording; 2],
    diff: &cgscope_model::diff::Diff,
) -> io::Result<()> {
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
        line(out, &object)?;
    }
    json::objects(diff).try_for_each(|object| line(out, &object))
}

fn line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}

/// A file by its name, where that tells both apart.
fn short_names(recordings: [&Recording; 2]) -> [String; 2] {
    let name = |recording: &Recording| {
        let name = Path::new(&recording.file).file_name();
        name.map_or_else(|| recording.file.clone(), |name| name.to_string_lossy().into_owned())
    };
    let names = recordings.map(name);
    if names[0] == names[1] { recordings.map(|recording| recording.file.clone()) } else { names }
}
