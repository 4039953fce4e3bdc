//! `cgscope report`: what happened in a recording, in words and tables, or as a page.

mod html;
mod quotas;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod when;
mod words;

use std::{
    io::{self, Write},
    path::Path,
};

use cgscope_model::{
    Finding, Interval, Losses, Timeline,
    findings::{Host, findings},
    interval::Appended,
    json::IntervalObject,
    units,
};

use crate::{
    cli::Report,
    exit::{Error, Result},
    recording::Recording,
};
use rows::{Pair, Row};
use words::About;

/// Into so many intervals a long recording is divided: two to the character of a wide terminal, and enough for a chart.
const INTERVALS: u64 = 150;
/// Slices of time that are kept: none of those is divided.
const SLICES: usize = 2 * INTERVALS as usize;

/// All of a recording.
struct Whole {
    /// Its intervals as one.
    interval: Interval,
    /// The same over time.
    timeline: Timeline,
    findings: Vec<Finding>,
    cgroups: Vec<Row>,
    processes: Vec<Row>,
    threads: Vec<Row>,
    pairs: Vec<Pair>,
}

impl Whole {
    fn new(mut interval: Interval, timeline: Timeline, losses: &Losses, host: &Host) -> Self {
        for (loss, count) in losses.nonzero() {
            interval.losses.add(loss, count);
        }
        Self {
            findings: findings(&interval, host),
            cgroups: rows::cgroups(&interval),
            processes: rows::processes(&interval),
            threads: rows::threads(&interval),
            pairs: rows::pairs(&interval),
            timeline,
            interval,
        }
    }

    fn read(recording: &mut Recording) -> Result<Self> {
        recording.at_most(INTERVALS)?;
        let (mut whole, mut timeline) = (Appended::default(), Timeline::new(SLICES));
        while let Some(interval) = recording.next_interval()? {
            timeline.add(&interval);
            whole.push(interval);
        }
        Ok(Self::new(whole.into_interval(), timeline, &recording.losses(), &recording.host))
    }
}

/// Runs the command.
pub fn run(options: &Report) -> Result {
    let mut recording = Recording::open(&options.file)?;
    match &options.html {
        Some(path) => page(&mut recording, path)?,
        None if options.json => objects(&mut recording)?,
        None => {
            let whole = Whole::read(&mut recording)?;
            let text = words::report(&About::new(&recording, &whole.interval), &whole);
            let mut out = io::stdout().lock();
            let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            done.map_err(|error| Error::output(&error))?;
        }
    }
    Ok(recording.finish())
}

fn page(recording: &mut Recording, path: &Path) -> Result<()> {
    // First, so that nobody waits for what cannot be written.
    let output = html::output::Output::new(path)?;
    let whole = Whole::read(recording)?;
    let page = html::page(&About::new(recording, &whole.interval), &whole);
    output.write(&page)?;
    if let Some(path) = output.path() {
        say!("cgscope: a page of {} is in {}", units::bytes(page.len() as u64), path.display());
    }
    Ok(())
}

fn objects(recording: &mut Recording) -> Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    while let Some(interval) = recording.next_interval()? {
        json(&mut out, &interval, &recording.host).map_err(|error| Error::output(&error))?;
    }
    out.flush().map_err(|error| Error::output(&error))
}

fn json(out: &mut impl Write, interval: &Interval, host: &Host) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &IntervalObject::new(interval, host))?;
    writeln!(out)
}
