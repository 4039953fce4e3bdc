//! The ring of the flight recorder: the latest part of a recording, on disk, in segments that are recordings themselves.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use cgscope_model::{Sample, units};
use cgscope_record::{FileReader, Header, Reason, open};
use rustix::fs::{CWD, FlockOperation};

use crate::{
    exit::{Error, Result},
    record::{
        file::{Failure, File, Made, cannot_write},
        names,
        sink::Broken,
    },
};

/// Segments that hold the time asked for; the one that is written is one more.
const SEGMENTS: u64 = 8;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub keep_ns: u64,
    /// Bytes, whatever the time.
    pub bytes: u64,
}

impl Limits {
    /// True once a segment of this size and length is complete. It then has an interval at least.
    fn segment_is_full(&self, samples: u64, bytes: u64, length_ns: u64) -> bool {
        samples >= 2 && (length_ns >= self.keep_ns / SEGMENTS || bytes >= self.bytes / (2 * SEGMENTS))
    }

    /// How many of the complete segments, the oldest first, are not needed any more: `(end_ns, bytes)` each. One goes when the
    /// next one reaches back to `needed_ns`, or when they and `more_bytes` take more than they may.
    fn expendable(&self, complete: &[(u64, u64)], more_bytes: u64, needed_ns: u64) -> usize {
        let mut bytes = complete.iter().map(|(_, bytes)| bytes).sum::<u64>() + more_bytes;
        let is_expendable = |(end_ns, size): &&(u64, u64)| {
            let goes = *end_ns <= needed_ns || bytes > self.bytes;
            bytes -= size;
            goes
        };
        complete.iter().take_while(is_expendable).count()
    }
}

struct Segment {
    made: Made,
    start_ns: u64,
    end_ns: u64,
    bytes: u64,
}

pub struct Ring {
    pub directory: PathBuf,
    /// Held as long as the ring is in use.
    _lock: fs::File,
    header: Header,
    limits: Limits,
    complete: VecDeque<Segment>,
    file: File,
    made: Made,
    number: u64,
    /// The largest Sample so far.
    pub sample_bytes: u64,
    /// The most that it has grown by with one Sample: where a segment ends with it, by the start of the next one, too.
    step_bytes: u64,
    /// Bytes of all Samples so far, those included that were dropped.
    pub written: u64,
    /// Something that was still needed went because of its size.
    shortened: bool,
}

impl Ring {
    /// Begins a ring beside the file `output`. One that is there from a run that was killed is kept under another name.
    pub fn create(output: &Path, header: &Header, limits: Limits) -> Result<Self> {
        let directory = directory(output);
        keep_aside(&directory)?;
        fs::create_dir(&directory).map_err(|error| cannot_write(&directory, &error))?;
        let lock = fs::File::open(&directory).map_err(|error| cannot_write(&directory, &error))?;
        // Where locks cannot be had, two at a time are not told from each other.
        let _ = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let path = segment(&directory, 1);
        let file = File::create(&path, header).map_err(|failure| {
            let _ = fs::remove_dir(&directory);
            Error::could_not_run(failure.to_string())
        })?;
        let (made, header) = (Made::of(&path), header.clone());
        Ok(Self {
            directory,
            _lock: lock,
            header,
            limits,
            complete: VecDeque::new(),
            file,
            made,
            number: 1,
            sample_bytes: 0,
            step_bytes: 0,
            written: 0,
            shortened: false,
        })
    }

    /// Adds a Sample. What lies before `needed_ns` may go.
    pub fn sample(&mut self, sample: &Sample, needed_ns: u64) -> std::result::Result<(), Failure> {
        let (before, in_file) = (self.bytes(), self.file.bytes());
        self.file.sample(sample)?;
        let bytes = self.file.bytes() - in_file;
        (self.sample_bytes, self.written) = (self.sample_bytes.max(bytes), self.written + bytes);
        if self.limits.segment_is_full(self.file.samples, self.file.bytes(), self.file.length_ns()) {
            self.seal(sample)?;
        }
        self.step_bytes = self.step_bytes.max(self.bytes() - before);
        self.drop_expendable(needed_ns);
        Ok(())
    }

    /// Completes the segment that is written; the next one begins with `sample`, its last.
    fn seal(&mut self, sample: &Sample) -> std::result::Result<(), Failure> {
        self.number += 1;
        let path = segment(&self.directory, self.number);
        let (next, made) = File::create_next(&path, &self.header, sample)?;
        let made = std::mem::replace(&mut self.made, made);
        let file = std::mem::replace(&mut self.file, next);
        let end_ns = file.last_ns;
        let (start_ns, before) = (end_ns - file.length_ns(), file.bytes());
        file.end(Reason::Continued)?;
        // With its end.
        let bytes = fs::metadata(&made.path).map_or(before, |metadata| metadata.len());
        self.complete.push_back(Segment { made, start_ns, end_ns, bytes });
        Ok(())
    }

    fn drop_expendable(&mut self, needed_ns: u64) {
        let complete: Vec<_> = self.complete.iter().map(|segment| (segment.end_ns, segment.bytes)).collect();
        let count = self.limits.expendable(&complete, self.file.bytes() + self.step_bytes, needed_ns);
        for segment in self.complete.drain(..count) {
            if segment.end_ns > needed_ns && !self.shortened {
                self.shortened = true;
                say!(
                    "cgscope: the ring is as large as it may be, {}, before it holds {}: it holds less; --ring-size allows more",
                    units::bytes(self.limits.bytes),
                    units::duration(self.limits.keep_ns),
                );
            }
            if let Err(error) = segment.made.remove() {
                say!("cgscope: {} cannot be removed ({error})", segment.made.path.display());
            }
        }
    }

    /// Everything that it holds, the oldest first, complete up to `last`, its last Sample. Opened, the segments stay to be
    /// read when they are no longer in the ring.
    pub fn open(&mut self, last: &Sample) -> std::result::Result<Vec<FileReader>, Broken> {
        self.seal(last)?;
        let segments = self.complete.iter().map(|segment| open(&segment.made.path));
        let opened: std::result::Result<_, _> = segments.collect();
        opened.map_err(|error| {
            Error::incomplete(format!("what is to be frozen cannot be read: {error}")).into()
        })
    }

    /// How far it reaches back from its last Sample, ns.
    pub fn held_ns(&self) -> u64 {
        let start_ns = self.complete.front().map(|oldest| oldest.start_ns);
        start_ns.map_or(self.file.length_ns(), |start_ns| self.file.last_ns.saturating_sub(start_ns))
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.complete.iter().map(|segment| segment.bytes).sum::<u64>() + self.file.bytes()
    }

    /// Removes it, and nothing that is not of it.
    pub fn remove(self) -> Result<()> {
        let mut files = self.complete.iter().map(|segment| &segment.made).chain([&self.made]);
        let removed: io::Result<()> = files.try_for_each(|made| made.remove().map(drop));
        removed.and_then(|()| fs::remove_dir(&self.directory)).map_err(|error| {
            Error::incomplete(format!(
                "the ring in {} cannot be removed ({error}): nothing reads it any more, so remove it",
                self.directory.display()
            ))
        })
    }

    /// Leaves it for whoever wants to read it.
    pub fn leave(self, reason: Reason) {
        // It is readable without an end.
        let _ = self.file.end(reason);
    }

    /// Leaves it after something could not be written.
    pub fn leave_after(self, broken: Broken) -> Error {
        let directory = self.directory;
        let Error { sentence, exit } = broken.end(self.file);
        Error { sentence: format!("{sentence}; the ring stays in {}", directory.display()), exit }
    }
}

fn directory(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".ring");
    name.into()
}

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.rec"))
}

/// A ring that is there is what a killed run left: the last minutes before something that nobody has looked at yet.
fn keep_aside(directory: &Path) -> Result<()> {
    let metadata = match fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(_) => return Ok(()),
    };
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
