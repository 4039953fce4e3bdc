//! Copies a part of the ring to a separate recording.

use std::{
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
use cgscope_record::{Ending, FileReader, Place, Reason};

use crate::{
    exit::{Error, Result},
    record::file::{Failure, File, keep_old},
};

/// A trigger that fired. Times are ns of the monotonic clock unless stated otherwise.
pub struct Triggered {
    pub words: String,
    /// The saved part starts with the last sample at or before this time.
    pub from_ns: u64,
    /// The start of the interval in which the trigger fired.
    pub at_ns: u64,
    /// The saved part ends with the first sample at or after this time.
    pub until_ns: u64,
    /// Wall clock at the end of the interval in which the trigger fired, ns since 1970.
    pub unix_ns: u64,
}

pub struct Freeze {
    /// Segments in order. Each starts with the last sample of the previous segment.
    pub segments: Vec<FileReader>,
    /// The file to write. An existing file is kept under another name.
    pub path: PathBuf,
    pub triggered: Triggered,
    /// The approximate maximum size of the file, bytes.
    pub bytes: u64,
    /// Set to stop the copy early.
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub struct Frozen {
    pub path: PathBuf,
    pub words: String,
}

impl Freeze {
    /// Copies the part. The file gets its name once it is complete. A failed copy leaves no file.
    pub fn run(self) -> Result<Frozen> {
        // Always exit code 1 (incomplete), because the ring was recorded.
        self.copy().map_err(|error| Error::incomplete(error.sentence))
    }

    fn copy(self) -> Result<Frozen> {
        check_room(&self.path, self.bytes)?;
        let at_ns = self.triggered.at_ns;
        let mut header = self.segments.first().map(|segment| segment.header().clone()).unwrap_or_default();
        let mut file = None;
        let mut write = |sample: &Sample| -> std::result::Result<(), Failure> {
            let (file, _) = match &mut file {
                Some(begun) => begun,
                None => {
                    header.start_unix_ns = sample.unix_ns;
                    file.insert(File::create_beside(&self.path, &header)?)
                }
            };
            file.sample(sample)
        };
        let (mut first, mut last_ns, mut damage) = (None, None, None);
        for mut segment in self.segments {
            for sample in segment.by_ref() {
                let sample = sample.map_err(|error| {
                    Error::incomplete(format!("the part cannot be saved: a segment of the ring {error}"))
                })?;
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Error::incomplete("the part was not saved, because cgscope ended early"));
                }
                if Some(sample.mono_ns) <= last_ns {
                    // The previous segment ended with this sample.
                    continue;
                }
                last_ns = Some(sample.mono_ns);
                if sample.mono_ns <= self.triggered.from_ns {
                    first = Some(sample);
                } else {
                    first.take().iter().chain([&sample]).try_for_each(&mut write)?;
                }
            }
            damage = damage.or_else(|| match segment.ending() {
                Some(Ending::Clean(_)) => None,
                Some(ending) => Some(ending.to_string()),
                None => Some("its end could not be read".into()),
            });
        }
        first.iter().try_for_each(write)?;
        let (mut file, beside) = file.ok_or_else(|| Error::incomplete("there is no sample to save"))?;
        let bytes = file.bytes();
        file.end(Reason::Triggered(self.triggered.words))?;
        keep_old(&self.path)?;
        beside.keep().map_err(|error| {
            Error::incomplete(format!("{} could not be written: {error}", self.path.display()))
        })?;
        let mut words = format!(
            "saved {} before the trigger and {} after it: {}, {}, in {path}; `cgscope report {path}` shows what happened",
            duration(at_ns.saturating_sub(file.first_ns)),
            duration(file.last_ns.saturating_sub(at_ns)),
            units::count(file.samples, "sample"),
            units::bytes(bytes),
            path = self.path.display(),
        );
        if let Some(damage) = damage {
            words += &format!("; something is missing, because the ring is damaged: {damage}");
        }
        Ok(Frozen { path: self.path, words })
    }
}

/// Refuses a copy that would fill the disk, because the ring also needs disk space.
fn check_room(path: &Path, bytes: u64) -> Result<()> {
    // If the free space is unknown, try to copy.
    let Ok(place) = Place::of(path) else { return Ok(()) };
    let Some(Ok(disk)) = place.path().parent().map(rustix::fs::statvfs) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if disk.f_blocks == 0 || free > bytes {
        return Ok(());
    }
    Err(Error::incomplete(format!(
        "{} cannot be written, because the disk is full: the file needs about {}, and {} are free",
        path.display(),
        units::bytes(bytes),
        units::bytes(free)
    )))
}

#[cfg(test)]
mod tests;
