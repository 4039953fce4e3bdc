//! `cgscope report`: what happened in a recording, in words and tables.

mod tables;
mod words;

use std::io::{self, Write};

use cgscope_model::{Interval, findings::Host, interval::Appended, json::IntervalObject};

use crate::{
    cli::Report,
    exit::{Error, Result},
    recording::Recording,
};

/// Into so many intervals a long recording is divided for the words, the tables and the timeline.
const INTERVALS: u64 = 300;

/// Runs the command.
pub fn run(options: &Report) -> Result {
    let mut recording = Recording::open(&options.file)?;
    if !options.json {
        recording.at_most(INTERVALS)?;
    }
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut whole = Appended::default();
    while let Some(interval) = recording.next_interval()? {
        if options.json {
            json(&mut out, &interval, &recording.host).map_err(|error| Error::output(&error))?;
        } else {
            whole.push(interval);
        }
    }
    if !options.json {
        let mut whole = whole.into_interval();
        for (loss, count) in recording.losses().nonzero() {
            whole.losses.add(loss, count);
        }
        let text = words::report(&recording, &whole);
        out.write_all(text.as_bytes()).map_err(|error| Error::output(&error))?;
    }
    out.flush().map_err(|error| Error::output(&error))?;
    Ok(recording.finish())
}

fn json(out: &mut impl Write, interval: &Interval, host: &Host) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &IntervalObject::new(interval, host))?;
    writeln!(out)
}
