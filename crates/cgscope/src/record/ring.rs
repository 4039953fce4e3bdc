//! The ring of the flight recorder: the directory that holds the latest segments of a recording.

use std::{
    fs,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use cgscope_record::Header;
use rustix::fs::{CWD, FlockOperation};

use crate::{
    exit::{Error, Result},
    record::{
        file::cannot_write,
        names,
        segments::{SegmentLimits, SegmentNames, Segments},
    },
};

pub struct Ring {
    pub directory: PathBuf,
    pub segments: Segments,
    /// Held while the ring is in use.
    _lock: fs::File,
}

impl Ring {
    /// Begins a ring beside the file `output`. The ring of a run that was killed is kept under another name.
    pub fn create(output: &Path, header: &Header, limits: SegmentLimits) -> Result<Self> {
        let directory = directory(output);
        keep_aside(&directory)?;
        fs::create_dir(&directory).map_err(|error| cannot_write(&directory, &error))?;
        let lock = fs::File::open(&directory).map_err(|error| cannot_write(&directory, &error))?;
        // Without support for locks, two runs at a time go unnoticed.
        let _ = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let names = SegmentNames::Numbered { directory: directory.clone(), last: 0 };
        let segments = Segments::create(names, header, limits).inspect_err(|_| {
            let _ = fs::remove_dir(&directory);
        })?;
        Ok(Self { directory, segments, _lock: lock })
    }

    /// Removes the ring, and no other file in its directory.
    pub fn remove(&self) -> Result<()> {
        self.segments.remove().and_then(|()| fs::remove_dir(&self.directory)).map_err(|error| {
            Error::incomplete(format!(
                "the ring in {} cannot be removed ({error}): nothing reads it any more, so remove it",
                self.directory.display()
            ))
        })
    }
}

fn directory(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".ring");
    name.into()
}

/// Keeps the ring of a killed run: it holds the last minutes before something that nobody has looked at yet.
fn keep_aside(directory: &Path) -> Result<()> {
    let Ok(metadata) = fs::metadata(directory) else { return Ok(()) };
    if let Ok(lock) = fs::File::open(directory)
        && rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            == Err(rustix::io::Errno::WOULDBLOCK)
    {
        return Err(Error::could_not_run(format!(
            "{} is the ring of another cgscope that still runs, so nothing is recorded: name another file with -o",
            directory.display()
        )));
    }
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let unix_ns = modified.map_or(0, |time| time.as_nanos() as u64);
    let asides = names::stamps(directory, unix_ns).map(|(aside, _)| aside);
    let aside =
        names::move_to_free(CWD, directory, asides).map_err(|error| cannot_write(directory, &error))?;
    say!(
        "cgscope: an earlier run was killed and left its ring; it is kept in {}, and `cgscope report` reads its segments",
        aside.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
