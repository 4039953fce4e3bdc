//! A recording as a source: its Samples become Intervals by the functions that the live commands use.

use std::path::Path;

use cgscope_layout::Loss;
use cgscope_model::{Interval, Losses, Sample, Selection, findings::Host, units};
use cgscope_record::{Ending, FileReader, Header, open};

use crate::{
    exit::{Error, Exit, Result},
    request::selection_words,
};

/// What happened between two Samples, without what the selection leaves out.
pub fn between(earlier: &Sample, now: &Sample, selection: &Selection) -> Result<Interval> {
    let mut interval = Interval::between(earlier, now);
    selection.apply(&mut interval).map_err(|error| Error::could_not_run(error.to_string()))?;
    Ok(interval)
}

/// What was recorded, in words.
pub fn subject(header: &Header) -> String {
    match &header.command {
        Some(command) => format!("command {}", command.join(" ")),
        None => selection_words(&header.selection),
    }
}

/// A recording that is being read.
pub struct Recording {
    reader: FileReader,
    /// Its file, as it was named.
    pub file: String,
    /// What findings are judged by.
    pub host: Host,
    earlier: Option<Sample>,
    samples: u64,
    worst: Exit,
}

impl Recording {
    /// Opens it; the header is read.
    pub fn open(path: &Path) -> Result<Self> {
        let reader = open(path).map_err(|error| Error::could_not_run(error.to_string()))?;
        let header = reader.header();
        let host = Host {
            cpus: u32::try_from(header.cpus.len()).ok(),
            whole: header.selection.is_whole_host() && header.command.is_none(),
        };
        let file = path.display().to_string();
        Ok(Self { reader, file, host, earlier: None, samples: 0, worst: Exit::Done })
    }

    /// What was asked for, and where.
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// What happened from one Sample to the next, without what the selection leaves out; `None` after the last.
    pub fn next_interval(&mut self) -> Result<Option<Interval>> {
        for sample in self.reader.by_ref() {
            let sample = sample.map_err(|error| Error::incomplete(error.to_string()))?;
            self.samples += 1;
            let Some(earlier) = self.earlier.replace(sample) else { continue };
            let now = self.earlier.as_ref().unwrap_or(&earlier);
            let interval = between(&earlier, now, &self.reader.header().selection)?;
            self.worst = self.worst.max(crate::run::losses(&interval));
            return Ok(Some(interval));
        }
        Ok(None)
    }

    /// How many Samples were read so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How it ended. `None` before its end was read.
    pub fn ending(&self) -> Option<&Ending> {
        self.reader.ending()
    }

    /// What is lost of the file itself: Samples that could not be written or read.
    pub fn losses(&self) -> Losses {
        self.ending().map(Ending::losses).unwrap_or_default()
    }

    /// How it ended, in words.
    pub fn ending_words(&self) -> String {
        self.ending().map_or("the end could not be read".into(), ToString::to_string)
    }

    /// Frames that were left out because this version does not know their kind.
    pub fn skipped(&self) -> u64 {
        self.reader.skipped()
    }

    /// That they were, in words.
    pub fn skipped_words(&self) -> String {
        let frames = units::count(self.skipped(), "frame");
        format!("{frames} of kinds that this version does not know were left out of {}", self.file)
    }

    /// It was read to an end that its writer gave it, and nothing is missing of the file.
    pub fn is_whole(&self) -> bool {
        matches!(self.ending(), Some(Ending::Clean(_)))
            && self.losses().nonzero().next().is_none()
            && self.skipped() == 0
    }

    /// Says on standard error where something is missing, and what that makes of the exit status.
    pub fn finish(&self) -> Exit {
        let unreadable = self.losses().get(Loss::SamplesUnreadable) != 0;
        let worst = if unreadable { Exit::Incomplete } else { self.worst };
        if self.skipped() != 0 {
            say!("cgscope: {}", self.skipped_words());
        }
        match self.ending() {
            Some(Ending::Clean(_)) => worst,
            Some(ending) => {
                say!("cgscope: {}: {ending}", self.file);
                Exit::Incomplete
            }
            None => Exit::Incomplete,
        }
    }
}
