//! `cgscope export`: a recording in the format of another tool.

mod output;

use cgscope_export::{About, Error as ExportError, Sink};
use cgscope_model::{Losses, units};

use crate::{
    cli::Export,
    exit::{Error, Result},
    recording::Recording,
    text,
};
use output::Output;

/// Runs the command.
pub fn run(options: &Export) -> Result {
    let mut recording = Recording::open(&options.file)?;
    let format = options.format;
    let (output, out) = Output::open(&options.output, format)?;
    let failed = |error: ExportError| failed(options, &output, error);
    let mut sink = format.sink(out, about(&recording)).map_err(failed)?;
    let read = write_all(&mut recording, &mut *sink, failed);
    // What was read before a failure of the recording is exported, as every command does with it.
    let (read, broken) = match read {
        Ok(read) => (read, None),
        Err(Stop::Output(error)) => return Err(error),
        Err(Stop::Recording(error, read)) => (read, Some(error)),
    };
    sink.finish().map_err(failed)?;
    output.keep()?;
    say(options, &recording, read);
    let exit = recording.finish();
    broken.map_or(Ok(exit), Err)
}

/// What was read of a recording.
#[derive(Default)]
struct Read {
    intervals: u64,
    losses: Losses,
}

/// What ended it early.
enum Stop {
    /// Nothing more can be written.
    Output(Error),
    /// Nothing more can be read; so much was.
    Recording(Error, Read),
}

fn write_all(
    recording: &mut Recording,
    sink: &mut dyn Sink,
    failed: impl Fn(ExportError) -> Error,
) -> std::result::Result<Read, Stop> {
    let mut read = Read::default();
    loop {
        let interval = match recording.next_interval() {
            Ok(Some(interval)) => interval,
            Ok(None) => return Ok(read),
            Err(error) => return Err(Stop::Recording(error, read)),
        };
        sink.interval(&interval).map_err(|error| Stop::Output(failed(error)))?;
        read.intervals += 1;
        read.losses.append(&interval.losses);
    }
}

fn about(recording: &Recording) -> About {
    let header = recording.header();
    About {
        cgscope_version: header.cgscope_version.clone(),
        hostname: header.hostname.clone(),
        kernel_release: header.kernel_release.clone(),
        architecture: header.architecture.clone(),
        start_unix_ns: header.start_unix_ns,
        host: recording.host,
    }
}

fn failed(options: &Export, output: &Output, error: ExportError) -> Error {
    let file = options.file.display();
    match error {
        ExportError::Io(error) => output.failed(&error),
        ExportError::NoHistogram => Error::could_not_run(format!(
            "{file} was recorded in the coarse mode, which measures sums of waits and no histogram, so it cannot be \
             exported as hdr: take csv, parquet, perfetto or pprof, or record with --mode bpf"
        )),
        ExportError::Refused(why) => Error::could_not_run(format!(
            "{file} could not be exported: {why}; this is a bug of cgscope, please report it"
        )),
    }
}

fn say(options: &Export, recording: &Recording, mut read: Read) {
    let file = options.file.display();
    if read.intervals == 0 {
        say!(
            "cgscope: {file} has {}: there is nothing to compare, so nothing but the frame of the format was written",
            units::count(recording.samples(), "Sample")
        );
        return;
    }
    read.losses.append(&recording.losses());
    if !output::is_stdout(&options.output) {
        let intervals = units::count(read.intervals, "interval");
        let losses = text::loss_line(&read.losses);
        say!("cgscope: {intervals} of {file} in {}; {losses}", options.output.display());
    } else if read.losses != Losses::default() {
        say!("cgscope: {file}: {}", text::loss_line(&read.losses));
    }
}
