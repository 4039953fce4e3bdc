//! `cgscope report`: what happened in a recording, in words and tables.

mod tables;
mod words;

use std::io::{self, Write};

use cgscope_model::{Interval, Sample, findings::Host, json::IntervalObject, units};
use cgscope_record::{Ending, FileReader, open};

use crate::{
    cli::Report,
    exit::{Error, Exit, Result},
    run::losses,
};

/// Runs the command.
pub fn run(options: &Report) -> Result {
    let mut reader = open(&options.file).map_err(|error| Error::could_not_run(error.to_string()))?;
    let header = reader.header().clone();
    let host = Host {
        cpus: u32::try_from(header.cpus.len()).ok(),
        whole: header.selection.is_whole_host() && header.command.is_none(),
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut whole = Interval::default();
    let mut samples = 0;
    let mut earlier: Option<Sample> = None;
    for sample in reader.by_ref() {
        let sample = sample.map_err(|error| Error::incomplete(error.to_string()))?;
        samples += 1;
        if let Some(earlier) = &earlier {
            let mut interval = Interval::between(earlier, &sample);
            header.selection.apply(&mut interval).map_err(|error| Error::could_not_run(error.to_string()))?;
            if options.json {
                json(&mut out, &interval, &host).map_err(|error| Error::output(&error))?;
            }
            whole.append(interval);
        }
        earlier = Some(sample);
    }
    let ending = reader.ending();
    if let Some(ending) = ending {
        for (loss, count) in ending.losses().nonzero() {
            whole.losses.add(loss, count);
        }
    }
    if !options.json {
        let recording = words::Recording { file: options.file.display().to_string(), header, samples, host };
        let text = recording.report(&whole, ending);
        out.write_all(text.as_bytes()).map_err(|error| Error::output(&error))?;
    }
    out.flush().map_err(|error| Error::output(&error))?;
    Ok(losses(&whole).max(said_ending(&reader, ending)))
}

fn json(out: &mut impl Write, interval: &Interval, host: &Host) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &IntervalObject::new(interval, host))?;
    writeln!(out)
}

/// How the recording ended, on standard error where something is missing.
fn said_ending(reader: &FileReader, ending: Option<&Ending>) -> Exit {
    if reader.skipped() != 0 {
        say!(
            "cgscope: {} of kinds that this version does not know were left out",
            units::count(reader.skipped(), "frame")
        );
    }
    match ending {
        Some(Ending::Clean(_)) => Exit::Done,
        Some(ending) => {
            say!("cgscope: {ending}");
            Exit::Incomplete
        }
        None => Exit::Incomplete,
    }
}
