//! `cgscope report`: what happened in a recording, in words and tables.

mod tables;
mod words;

use std::io::{self, Write};

use cgscope_model::{Interval, findings::Host, json::IntervalObject};

use crate::{
    cli::Report,
    exit::{Error, Result},
    recording::Recording,
};

/// Runs the command.
pub fn run(options: &Report) -> Result {
    let mut recording = Recording::open(&options.file)?;
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut whole = Interval::default();
    while let Some(interval) = recording.next_interval()? {
        if options.json {
            json(&mut out, &interval, &recording.host).map_err(|error| Error::output(&error))?;
        } else {
            whole.append(interval);
        }
    }
    if !options.json {
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
