//! `cgscope export`: writes a recording in the format of another tool.

mod output;

use cgscope_export::{About, Error as ExportError};
use cgscope_model::{Losses, units};

use crate::{
    cli::Export,
    exit::{Error, Result},
    recording::Recording,
    text,
};
use output::ExportFile;

pub fn run(options: &Export) -> Result {
    let mut recording = Recording::open(&options.file)?;
    let format = options.format;
    let (output, out) = ExportFile::open(&options.output, format)?;
    let failed = |error: ExportError| failed(options, &output, error);
    let mut sink = format.sink(out, about(&recording)).map_err(failed)?;
    let (mut intervals, mut losses) = (0, Losses::default());
    // If reading fails, export the intervals before the failure, as in every command.
    let broken = loop {
        match recording.next_interval() {
            Ok(Some(interval)) => {
                sink.interval(&interval).map_err(failed)?;
                intervals += 1;
                losses.append(&interval.losses);
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    sink.finish().map_err(failed)?;
    output.keep()?;
    say(options, &recording, intervals, losses);
    let exit = recording.finish();
    broken.map_or(Ok(exit), Err)
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

fn failed(options: &Export, output: &ExportFile, error: ExportError) -> Error {
    let file = options.file.display();
    match error {
        ExportError::Io(error) => output.failed(&error),
        ExportError::NoHistogram => Error::could_not_run(format!(
            "{file} was recorded in the coarse mode, which measures sums of waits and no histogram, so it cannot be \
             exported as hdr: use csv, parquet, perfetto or pprof, or record with --mode bpf"
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
            units::count(recording.samples(), "sample")
        );
        return;
    }
    losses.append(&recording.losses());
    if !output::is_stdout(&options.output) {
        let intervals = units::count(intervals, "interval");
        let losses = text::loss_line(&losses);
        say!("cgscope: wrote {intervals} of {file} to {}; {losses}", options.output.display());
    } else if losses != Losses::default() {
        say!("cgscope: {file}: {}", text::loss_line(&losses));
    }
}
