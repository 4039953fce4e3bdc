//! A part of the ring, copied into a recording of its own.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cgscope_model::{
    Sample,
    units::{self, duration},
};
use cgscope_record::{Beside, Ending, FileReader, Header, Place, Reason};

use crate::{
    exit::{Error, Result},
    record::file::{File, keep_old},
};

pub struct Freeze {
    /// Segments in order, each begun with the last Sample of the one before.
    pub segments: Vec<FileReader>,
    /// The file to write; one that is there is kept under another name.
    pub path: PathBuf,
    /// The part begins with the last Sample that is not after this time, ns of the monotonic clock.
    pub from_ns: u64,
    /// When the trigger was.
    pub at_ns: u64,
    /// What the file says of its end.
    pub reason: Reason,
    /// What it takes at most, about.
    pub bytes: u64,
    /// Set where nobody waits for it any more.
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub struct Frozen {
    pub path: PathBuf,
    samples: u64,
    bytes: u64,
    before_ns: u64,
    after_ns: u64,
    /// What is missing, as a segment could not be read to its end.
    damage: Option<String>,
}

impl Freeze {
    /// Copies it. The file has its name once it is whole; of a copy that fails nothing is left.
    pub fn run(self) -> Result<Frozen> {
        // Whatever fails, something has been recorded.
        self.copy().map_err(|error| Error::incomplete(error.sentence))
    }

    fn copy(self) -> Result<Frozen> {
        check_room(&self.path, self.bytes)?;
        let mut copy =
            Copy { path: &self.path, from_ns: self.from_ns, first: None, last_ns: None, file: None };
        let mut damage = None;
        for mut segment in self.segments {
            let header = segment.header().clone();
            for sample in segment.by_ref() {
                let sample = sample.map_err(|error| {
                    Error::incomplete(format!(
                        "what is to be frozen cannot be read: a segment of the ring {error}"
                    ))
                })?;
                copy.take(&header, sample)?;
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Error::incomplete("the copy of what was to be frozen was given up"));
                }
            }
            damage = damage.or_else(|| damage_of(segment.ending()));
        }
        let (file, beside, first_ns) = copy.finish()?;
        let (last_ns, samples, bytes) = (file.last_ns, file.samples, file.bytes());
        file.end(self.reason).map_err(|failure| Error::incomplete(failure.to_string()))?;
        keep_old(&self.path)?;
        beside.keep().map_err(|error| {
            Error::incomplete(format!("{} could not be written: {error}", self.path.display()))
        })?;
        let (before_ns, after_ns) = (self.at_ns.saturating_sub(first_ns), last_ns.saturating_sub(self.at_ns));
        Ok(Frozen { path: self.path, samples, bytes, before_ns, after_ns, damage })
    }
}

/// What fills the disk takes the room of the ring, too.
fn check_room(path: &Path, bytes: u64) -> Result<()> {
    // Where it is not known, the copy finds out.
    let Ok(place) = Place::of(path) else { return Ok(()) };
    let Some(Ok(disk)) = place.path().parent().map(rustix::fs::statvfs) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if disk.f_blocks == 0 || free > bytes {
        return Ok(());
    }
    Err(Error::incomplete(format!(
        "{} cannot be written, as the disk is full: it takes about {}, and {} are free",
        path.display(),
        units::bytes(bytes),
        units::bytes(free)
    )))
}

fn damage_of(ending: Option<&Ending>) -> Option<String> {
    match ending {
        Some(Ending::Clean(_)) => None,
        Some(ending) => Some(ending.to_string()),
        None => Some("its end could not be read".into()),
    }
}

impl fmt::Display for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "froze {} before the trigger and {} from then on: {}, {}, in {path}; `cgscope report {path}` says what happened",
            duration(self.before_ns),
            duration(self.after_ns),
            units::count(self.samples, "Sample"),
            units::bytes(self.bytes),
            path = self.path.display(),
        )?;
        match &self.damage {
            Some(damage) => write!(f, "; a part is missing: in the ring {damage}"),
            None => Ok(()),
        }
    }
}

struct Copy<'a> {
    path: &'a Path,
    from_ns: u64,
    /// The latest Sample before the part: the part begins with it.
    first: Option<(Header, Sample)>,
    last_ns: Option<u64>,
    file: Option<(File, Beside, u64)>,
}

impl Copy<'_> {
    fn take(&mut self, header: &Header, sample: Sample) -> Result<()> {
        if self.last_ns.is_some_and(|last_ns| sample.mono_ns <= last_ns) {
            // The one that the segment before ends with.
            return Ok(());
        }
        self.last_ns = Some(sample.mono_ns);
        if sample.mono_ns <= self.from_ns {
            self.first = Some((header.clone(), sample));
            return Ok(());
        }
        if let Some((header, first)) = self.first.take() {
            self.write(&header, &first)?;
        }
        self.write(header, &sample)
    }

    fn write(&mut self, header: &Header, sample: &Sample) -> Result<()> {
        if self.file.is_none() {
            let header = Header { start_unix_ns: sample.unix_ns, ..header.clone() };
            let begun = File::create_beside(self.path, &header);
            let (file, beside) = begun.map_err(|failure| Error::incomplete(failure.to_string()))?;
            self.file = Some((file, beside, sample.mono_ns));
        }
        let Some((file, ..)) = &mut self.file else { return Ok(()) };
        file.sample(sample).map_err(|failure| Error::incomplete(failure.to_string()))
    }

    /// The file, and when it begins.
    fn finish(mut self) -> Result<(File, Beside, u64)> {
        if let Some((header, first)) = self.first.take() {
            self.write(&header, &first)?;
        }
        self.file.ok_or_else(|| Error::incomplete("there is no Sample to freeze"))
    }
}

#[cfg(test)]
mod tests;
