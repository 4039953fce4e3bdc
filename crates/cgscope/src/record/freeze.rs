//! A part of the ring, copied into a recording of its own.

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

/// A trigger, with times of the monotonic clock, ns.
pub struct Triggered {
    pub words: String,
    /// The frozen part begins with the last Sample that is not after this time.
    pub from_ns: u64,
    /// The start of the interval in which it triggered.
    pub at_ns: u64,
    /// The frozen part ends with the first Sample that is not before this time.
    pub until_ns: u64,
    /// Wall clock at the end of the interval in which it triggered, ns since 1970.
    pub unix_ns: u64,
}

pub struct Freeze {
    /// Segments in order, each begun with the last Sample of the one before.
    pub segments: Vec<FileReader>,
    /// The file to write. One that is there is kept under another name.
    pub path: PathBuf,
    pub triggered: Triggered,
    /// About the most bytes that the file takes.
    pub bytes: u64,
    /// Set when nobody waits for the copy any more.
    pub stop: Arc<AtomicBool>,
}

#[derive(Debug)]
pub struct Frozen {
    pub path: PathBuf,
    pub words: String,
}

impl Freeze {
    /// Copies the part. The file gets its name once it is whole. A copy that fails leaves nothing.
    pub fn run(self) -> Result<Frozen> {
        // Whatever fails, something has been recorded.
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
                    Error::incomplete(format!(
                        "what is to be frozen cannot be read: a segment of the ring {error}"
                    ))
                })?;
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Error::incomplete("the copy of what was to be frozen was given up"));
                }
                if Some(sample.mono_ns) <= last_ns {
                    // The segment before ends with it.
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
        let (mut file, beside) = file.ok_or_else(|| Error::incomplete("there is no Sample to freeze"))?;
        let bytes = file.bytes();
        file.end(Reason::Triggered(self.triggered.words))?;
        keep_old(&self.path)?;
        beside.keep().map_err(|error| {
            Error::incomplete(format!("{} could not be written: {error}", self.path.display()))
        })?;
        let mut words = format!(
            "froze {} before the trigger and {} from then on: {}, {}, in {path}; `cgscope report {path}` says what happened",
            duration(at_ns.saturating_sub(file.first_ns)),
            duration(file.last_ns.saturating_sub(at_ns)),
            units::count(file.samples, "Sample"),
            units::bytes(bytes),
            path = self.path.display(),
        );
        if let Some(damage) = damage {
            words += &format!("; a part is missing: in the ring {damage}");
        }
        Ok(Frozen { path: self.path, words })
    }
}

/// Refuses a copy that would fill the disk, which the ring needs, too.
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

#[cfg(test)]
mod tests;
