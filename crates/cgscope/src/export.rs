//! `cgscope export`: writes a recording in the format of another tool.

use std::{
    io::{self, BufWriter, IsTerminal},
    path::Path,
};

use cgscope_export::{About, Error as ExportError, Format, Out};
use cgscope_model::{Losses, units};
use cgscope_record::{Beside, Header, Place};

use crate::exit::{Error, Result};
use crate::{cli::Export, output, recording::Recording, text};

pub fn run(options: &Export) -> Result {
    let mut recording = Recording::open(&options.file)?;
    let format = options.format;
    let (output, out) = open(&options.output, format)?;
    let failed = |error: ExportError| failed(options, output.as_ref(), error);
    let mut sink = format.sink(out, about(&recording)).map_err(failed)?;
    let (mut intervals, mut losses) = (0, Losses::default());
    // If reading fails, the intervals before the failure are still exported, as in every command.
    let ended = loop {
        match recording.next_interval() {
            Ok(Some(interval)) => {
                sink.interval(&interval).map_err(failed)?;
                intervals += 1;
                losses.append(&interval.losses);
            }
            ended => break ended,
        }
    };
    sink.finish().map_err(failed)?;
    if let Some((place, beside)) = output {
        beside.keep().map_err(|error| cannot_write(&place.path, error))?;
    }
    say(options, &recording, intervals, losses);
    let exit = recording.finish();
    ended.map(|_| exit)
}

fn about(recording: &Recording) -> About {
    let header = recording.reader.header.clone();
    let Header { cgscope_version, hostname, kernel_release, architecture, start_unix_ns, .. } = header;
    let measured_by =
        format!("cgscope {cgscope_version} on {hostname}, Linux {kernel_release} {architecture}");
    About { cgscope_version, hostname, measured_by, start_unix_ns, host: recording.host }
}

fn failed(options: &Export, output: Option<&(Place, Beside)>, error: ExportError) -> Error {
    let file = options.file.display();
    match error {
        ExportError::Io(error) => match output {
            Some((place, _)) if !place.is_direct() || error.kind() != io::ErrorKind::BrokenPipe => {
                cannot_write(&place.path, error)
            }
            _ => Error::output(error),
        },
        ExportError::NoHistogram => Error::could_not_run(format!(
            "{file} was recorded in the coarse mode, which measures sums of waits and no histogram, so it cannot be \
             exported as hdr: use csv, parquet, perfetto or pprof, or record with --mode bpf"
        )),
        ExportError::NoChains => Error::could_not_run(format!(
            "{file} was recorded without --chains, so it has no sleepers and wakers to export: record again with --chains, \
             or use another format"
        )),
        ExportError::Refused(why) => Error::could_not_run(format!(
            "{file} could not be exported: {why}; this is a bug of cgscope, please report it"
        )),
    }
}

fn say(options: &Export, recording: &Recording, intervals: u64, mut losses: Losses) {
    let file = options.file.display();
    if intervals == 0 {
        say!(
            "cgscope: {file} has {}, but an interval needs two samples, so the exported file has no data",
            units::count(recording.samples, "sample")
        );
        return;
    }
    losses.append(&recording.reader.losses());
    if !is_stdout(&options.output) {
        let intervals = units::count(intervals, "interval");
        let losses = text::loss_line(&losses);
        say!("cgscope: wrote {intervals} of {file} to {}; {losses}", options.output.display());
    } else if losses != Losses::default() {
        say!("cgscope: {file}: {}", text::loss_line(&losses));
    }
}

const BUFFER: usize = 1 << 16;

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file, which is deleted unless it is kept, or standard output (`None`). Never overwrites a file that is not empty,
/// because it may be an older export.
fn open(path: &Path, format: Format) -> Result<(Option<(Place, Beside)>, Out)> {
    if is_stdout(path) {
        if format.is_binary() && io::stdout().is_terminal() {
            return Err(Error::could_not_run(
                "this format is not text, and standard output is a terminal, so nothing is exported: name a file \
                 with -o, or send the output to another program",
            ));
        }
        return Ok((None, Box::new(BufWriter::with_capacity(BUFFER, io::stdout()))));
    }
    let place = Place::of(path).map_err(|error| cannot_write(path, error))?;
    if place.holds_something().unwrap_or(false) {
        return Err(Error::could_not_run(format!(
            "{} exists and is not empty, so nothing is exported: move or remove the file, or name another file with -o",
            place.path.display()
        )));
    }
    let (file, beside) = place.create().map_err(|error| cannot_write(path, error))?;
    Ok((Some((place, beside)), Box::new(BufWriter::with_capacity(BUFFER, file))))
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    output::cannot_write(path, error, "nothing is exported: name another file with -o")
}
