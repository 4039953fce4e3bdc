//! `cgscope report`: what happened in a recording, as text with tables, or as an HTML page.

mod html;
mod tables;
#[cfg(test)]
mod tests;
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

use crate::report::tables::{Pair, Row};
use crate::{
    cli::Report,
    exit::{Error, Result},
    ndjson::json_line,
    recording::Recording,
    whatif::brief,
};
use words::About;

/// Maximum number of intervals to read: two for each column of a wide terminal, and enough for a chart.
const INTERVALS: u64 = 150;
/// The number of timeline slices, large enough that no interval is split.
const SLICES: usize = 2 * INTERVALS as usize;

/// A whole recording.
struct Whole {
    /// All intervals joined.
    interval: Interval,
    timeline: Timeline,
    findings: Vec<Finding>,
    cgroups: Vec<Row>,
    processes: Vec<Row>,
    threads: Vec<Row>,
    pairs: Vec<Pair>,
    /// The quotas that would have been enough, a line for each cgroup.
    enough: Vec<String>,
}

impl Whole {
    fn new(mut interval: Interval, timeline: Timeline, losses: &Losses, host: &Host) -> Self {
        for (loss, count) in losses.nonzero() {
            interval.losses.add(loss, count);
        }
        Self {
            findings: findings(&interval, host),
            cgroups: tables::cgroups(&interval),
            processes: tables::processes(&interval),
            threads: tables::threads(&interval),
            pairs: tables::pairs(&interval),
            enough: Vec::new(),
            timeline,
            interval,
        }
    }

    fn read(recording: &mut Recording, path: &Path) -> Result<Self> {
        recording.at_most(INTERVALS)?;
        let (mut whole, mut timeline) = (Appended::default(), Timeline::new(SLICES));
        while let Some(interval) = recording.next_interval()? {
            timeline.add(&interval);
            whole.push(interval);
        }
        let whole = Self::new(whole.into_interval(), timeline, &recording.losses(), &recording.host);
        Ok(Self { enough: brief::lines(path, &whole.interval), ..whole })
    }
}

pub fn run(options: &Report) -> Result {
    let mut recording = Recording::open(&options.file)?;
    match &options.html {
        Some(path) => page(&mut recording, &options.file, path)?,
        None if options.json => objects(&mut recording, options.all)?,
        None => {
            let whole = Whole::read(&mut recording, &options.file)?;
            print(&words::report(&About::new(&recording, &whole.interval), &whole))?;
        }
    }
    Ok(recording.finish())
}

fn page(recording: &mut Recording, file: &Path, path: &Path) -> Result<()> {
    // Check the file first, so that no long recording is read for a page that cannot be written.
    let place = html::place(path)?;
    let whole = Whole::read(recording, file)?;
    let page = html::page(&About::new(recording, &whole.interval), &whole);
    let Some(place) = place else { return print(&page) };
    html::write(&place, &page)?;
    say!("cgscope: wrote a page of {} to {}", units::bytes(page.len() as u64), place.path().display());
    Ok(())
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    done.map_err(|error| Error::output(&error))
}

fn objects(recording: &mut Recording, all: bool) -> Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    while let Some(interval) = recording.next_interval()? {
        let object = IntervalObject::new(&interval, &recording.host).listing(all);
        json_line(&mut out, &object).map_err(|error| Error::output(&error))?;
    }
    out.flush().map_err(|error| Error::output(&error))
}
