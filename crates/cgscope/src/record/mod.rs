//! `cgscope record`: Samples to a file.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
};

use cgscope_collect::{
    clock,
    facts::{self, CgroupMounts},
};
use cgscope_layout::Loss;
use cgscope_model::{Sample, units};
use cgscope_record::{Cpu, FileWriter, Header, Reason};

use crate::{
    cli::Record,
    exit::{Error, Exit, Result},
    request::Target,
    run::finish,
    session::{End, Pace, Session, Step},
};

/// Runs the command.
pub async fn run(options: &Record) -> Result {
    let target = Target::new(&options.select)?;
    let pace = Pace { interval: options.interval, duration: options.duration, count: None };
    // The file first: nothing is started for a file that cannot be written.
    check_writable(&options.output)?;
    let mut session = Session::start(&target, pace)?;
    let mut file = Output::create(&options.output, &header(&session, &target, options))?;
    say!(
        "cgscope: recording the {} to {}{}",
        session.title,
        options.output.display(),
        if options.duration.is_none() && target.command.is_empty() { "; Ctrl-C ends" } else { "" }
    );
    loop {
        let (sample, end) = match session.next().await? {
            Step::Sample(sample) => (sample, None),
            Step::Last(sample, end) => (sample, Some(end)),
        };
        file.sample(&sample)?;
        if let Some(end) = end {
            let exit = file.end(&sample, &end)?;
            return Ok(exit.max(finish(&mut session, &end)));
        }
    }
}

fn header(session: &Session, target: &Target, options: &Record) -> Header {
    let root = Path::new("/");
    let nodes = facts::cpu_to_node(root);
    let cpus = facts::gather(root).cpus_online.unwrap_or_default();
    Header {
        cgscope_version: env!("CARGO_PKG_VERSION").into(),
        hostname: rustix::system::uname().nodename().to_string_lossy().into(),
        kernel_release: rustix::system::uname().release().to_string_lossy().into(),
        architecture: std::env::consts::ARCH.into(),
        cpus: cpus.into_iter().map(|cpu| Cpu { cpu, node: nodes.get(&cpu).copied() }).collect(),
        cgroups: CgroupMounts::read(root).layout(),
        selection: session.selection.clone(),
        command: (!target.command.is_empty()).then(|| target.command.clone()),
        interval_ns: options.interval.as_nanos() as u64,
        start_unix_ns: clock::unix_ns(),
    }
}

/// The file being written.
struct Output {
    writer: FileWriter,
    samples: u64,
    /// Anything is lost; and what makes the recording incomplete.
    losses: [bool; 2],
}

impl Output {
    fn create(path: &Path, header: &Header) -> Result<Self> {
        keep_old(path)?;
        let writer =
            FileWriter::create(path, header).map_err(|error| Error::could_not_run(error.to_string()))?;
        Ok(Self { writer, samples: 0, losses: [false; 2] })
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        // What is in the file so far stays readable.
        self.writer.sample(sample).map_err(|error| {
            let samples = self.samples;
            if samples == 0 {
                Error::could_not_run(error.to_string())
            } else {
                Error::incomplete(format!("{error}; the {samples} Samples before it are in the file"))
            }
        })?;
        self.samples += 1;
        let any = |is_meant: fn(Loss) -> bool| sample.losses.nonzero().any(|(loss, _)| is_meant(loss));
        self.losses = [any(|_| true), any(|loss| !loss.leaves_result_whole())];
        Ok(())
    }

    fn end(self, last: &Sample, end: &End) -> Result {
        let reason = match end {
            End::Finished => Reason::Finished,
            End::Interrupted => Reason::Interrupted,
            End::TargetGone => Reason::TargetGone,
            End::CommandEnded(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Reason::CommandExited(code),
                (None, signal) => Reason::CommandKilled(signal.unwrap_or_default()),
            },
        };
        let (path, samples, [losses, incomplete]) =
            (self.writer.path().to_owned(), self.samples, self.losses);
        let bytes = self.writer.bytes();
        self.writer.end(last.unix_ns, reason).map_err(|error| Error::incomplete(error.to_string()))?;
        say!(
            "cgscope: {samples} Samples, {} in {}{}; `cgscope report {}` says what happened",
            units::bytes(bytes),
            path.display(),
            if losses { ", with losses" } else { ", no losses" },
            path.display(),
        );
        Ok(if incomplete { Exit::Incomplete } else { Exit::Done })
    }
}

/// The path under which a file that was there is kept.
fn old_path(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old.into()
}

/// A file with something in it is never overwritten: it may be the recording of yesterday.
fn keep_old(path: &Path) -> Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(());
    }
    let old = old_path(path);
    fs::rename(path, &old).map_err(|error| cannot_write(path, &error))?;
    say!("cgscope: {} was there; it is kept as {}", path.display(), old.display());
    Ok(())
}

/// Tries without changing anything.
fn check_writable(path: &Path) -> Result<()> {
    let existed = path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    if opened.is_ok() && !existed {
        let _ = fs::remove_file(path);
    }
    opened.map(drop).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({error}), so nothing is recorded: name another file with -o",
        path.display()
    ))
}
