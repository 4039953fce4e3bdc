//! A series of segments: recordings that each start with the last sample of the previous one. Rotated files and the ring of the
//! flight recorder are such series, with different names and limits. A single file is a series without limits.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
};

use cgscope_model::{Sample, units};
use cgscope_record::{FileReader, Header, Reason, open};

use crate::{
    exit::{Error, Result},
    output::Made,
    record::{
        Destination, Ended,
        file::{self, Failure, File},
    },
};

/// Number of complete segments in a ring. The segment that is being written is one more.
const RING_SEGMENTS: u64 = 8;

#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentLimits {
    /// Size at which a segment is complete, bytes.
    pub size: Option<u64>,
    /// Length at which a segment is complete, ns.
    pub age_ns: Option<u64>,
    /// Maximum number of segments, including the one that is being written.
    pub count: Option<usize>,
    /// Maximum size of all segments together, bytes.
    pub bytes: Option<u64>,
    /// Time that a ring should hold, ns.
    pub keep_ns: u64,
}

impl SegmentLimits {
    pub fn ring(keep_ns: u64, bytes: u64) -> Self {
        let (size, age_ns) = (Some(bytes / (2 * RING_SEGMENTS)), Some(keep_ns / RING_SEGMENTS));
        Self { size, age_ns, bytes: Some(bytes), keep_ns, count: None }
    }

    /// Returns whether a segment is complete: it has an interval, and has reached its size or length. Half an interval is
    /// tolerated, because the last sample may be early.
    fn reached(&self, samples: u64, bytes: u64, length_ns: u64, interval_ns: u64) -> bool {
        let is_full = self.size.is_some_and(|limit| bytes >= limit);
        let is_old = self.age_ns.is_some_and(|limit| length_ns + interval_ns / 2 >= limit);
        samples >= 2 && (is_full || is_old)
    }

    /// Returns how many complete segments can be removed: those that end before `needed_ns`, and more while the size of all
    /// segments (`bytes`) exceeds its limit. `complete` yields `(end_ns, bytes)`, the oldest first.
    fn expendable(
        &self,
        complete: impl Iterator<Item = (u64, u64)>,
        mut bytes: u64,
        needed_ns: u64,
    ) -> usize {
        let is_expendable = |(end_ns, size): &(u64, u64)| {
            let goes = *end_ns <= needed_ns || self.bytes.is_some_and(|limit| bytes > limit);
            bytes -= size;
            goes
        };
        complete.take_while(is_expendable).count()
    }
}

pub enum SegmentNames {
    /// One fixed path, for a single segment.
    Single(PathBuf),
    /// By the time of the first sample.
    Stamped {
        base: PathBuf,
        last_unix_ns: u64,
    },
    Numbered {
        directory: PathBuf,
        last: u64,
    },
}

impl SegmentNames {
    fn next(&mut self, unix_ns: u64) -> PathBuf {
        match self {
            Self::Single(path) => path.clone(),
            Self::Stamped { base, last_unix_ns } => {
                // Names also ascend if the clock is set back.
                let free = file::free_stamped(base, unix_ns.max(*last_unix_ns + 1_000_000));
                *last_unix_ns = free.1;
                free.0
            }
            Self::Numbered { directory, last } => {
                *last += 1;
                directory.join(format!("{last:06}.rec"))
            }
        }
    }
}

struct Segment {
    made: Made,
    start_ns: u64,
    end_ns: u64,
    bytes: u64,
}

pub struct Segments {
    names: SegmentNames,
    header: Header,
    limits: SegmentLimits,
    pub file: File,
    made: Made,
    /// Complete segments, the oldest first.
    complete: VecDeque<Segment>,
    /// Segments whose removal has failed so far.
    stuck: Vec<Made>,
    removed: u64,
    removed_bytes: u64,
    /// Maximum number of bytes on disk that one sample has added, including the start of a new segment.
    pub step_bytes: u64,
    /// A segment was removed because of the size limit while it was still needed.
    pub shortened: bool,
}

impl Segments {
    pub fn create(mut names: SegmentNames, header: &Header, limits: SegmentLimits) -> Result<Self> {
        let path = names.next(header.start_unix_ns);
        let file = File::create(&path, header).map_err(Error::could_not_run)?;
        Ok(Self {
            names,
            header: header.clone(),
            limits,
            file,
            made: Made::of(&path),
            complete: VecDeque::new(),
            stuck: Vec::new(),
            removed: 0,
            removed_bytes: 0,
            step_bytes: 0,
            shortened: false,
        })
    }

    /// Writes a sample, and removes segments that end before `needed_ns`.
    pub fn add(&mut self, sample: &Sample, needed_ns: u64) -> Result<(), Failure> {
        let before = self.bytes_on_disk();
        self.file.sample(sample)?;
        let file = &self.file;
        let length_ns = file.last_ns.saturating_sub(file.first_ns);
        if self.limits.reached(file.samples, file.writer.bytes(), length_ns, self.header.interval_ns) {
            self.turn(sample)?;
        }
        self.step_bytes = self.step_bytes.max(self.bytes_on_disk().saturating_sub(before));
        let complete = self.complete.iter().map(|segment| (segment.end_ns, segment.bytes));
        let bytes = self.bytes_on_disk() + self.step_bytes;
        self.remove_oldest(self.limits.expendable(complete, bytes, needed_ns), needed_ns);
        Ok(())
    }

    /// Completes the current segment, which ends with `sample`, and starts the next segment with the same sample.
    pub fn turn(&mut self, sample: &Sample) -> Result<(), Failure> {
        // Tries again to remove stuck segments. They do not count towards the maximum, so that enough other segments are kept.
        self.stuck.retain(|made| made.remove().map(|removed| self.removed += u64::from(removed)).is_err());
        let surplus = self.limits.count.map_or(0, |count| (self.complete.len() + 2).saturating_sub(count));
        self.remove_oldest(surplus, u64::MAX);
        let path = self.names.next(sample.unix_ns);
        let header = Header { start_unix_ns: sample.unix_ns, ..self.header.clone() };
        let mut next = File::create(&path, &header)?;
        let made = Made::of(&path);
        next.sample(sample).inspect_err(|_| {
            // The previous segment also contains this sample.
            let _ = made.remove();
        })?;
        let mut file = std::mem::replace(&mut self.file, next);
        let ended = file.end(Reason::Continued);
        let (start_ns, end_ns, bytes) = (file.first_ns, file.last_ns, file.writer.bytes());
        let made = std::mem::replace(&mut self.made, made);
        self.complete.push_back(Segment { made, start_ns, end_ns, bytes });
        ended
    }

    fn remove_oldest(&mut self, count: usize, needed_ns: u64) {
        for segment in self.complete.drain(..count.min(self.complete.len())) {
            self.removed_bytes += segment.bytes;
            if segment.end_ns > needed_ns && !self.shortened {
                self.shortened = true;
                say!(
                    "cgscope: the ring reached its size limit ({}) before it covered {}, so it covers less time; \
                     to raise the limit, use --ring-size",
                    units::bytes(self.limits.bytes.unwrap_or_default()),
                    units::duration(self.limits.keep_ns),
                );
            }
            match segment.made.remove() {
                Ok(removed) => self.removed += u64::from(removed),
                Err(error) => {
                    let path = segment.made.path.display();
                    say!(
                        "cgscope: {path} cannot be removed ({error}); cgscope tries again with each new file"
                    );
                    self.stuck.push(segment.made);
                }
            }
        }
    }

    /// Opens the complete segments. A reader stays valid after the removal of its segment.
    pub fn open(&self) -> Result<Vec<FileReader>> {
        let opened: Result<_, _> = self.complete.iter().map(|segment| open(&segment.made.path)).collect();
        opened.map_err(|error| {
            Error::incomplete(format!("the part cannot be saved, because the ring cannot be read: {error}"))
        })
    }

    /// Returns the time from the start of the oldest segment to the last sample, ns.
    pub fn held_ns(&self) -> u64 {
        let start_ns = self.complete.front().map_or(self.file.first_ns, |oldest| oldest.start_ns);
        self.file.last_ns.saturating_sub(start_ns)
    }

    pub fn bytes_on_disk(&self) -> u64 {
        self.complete.iter().map(|segment| segment.bytes).sum::<u64>() + self.file.writer.bytes()
    }

    pub fn remove(&self) -> io::Result<()> {
        let complete = self.complete.iter().map(|segment| &segment.made);
        complete.chain(&self.stuck).chain([&self.made]).try_for_each(|made| made.remove().map(drop))
    }

    /// Closes the series after a failed write. The error says what was saved.
    fn end_after(&mut self, failure: &Failure) -> Error {
        let mut error = self.file.end_after(failure);
        if let Some(latest) = self.complete.back() {
            let files = units::count(self.complete.len() as u64, "file");
            let latest = latest.made.path.display();
            error.sentence += &format!(", and earlier samples are in {files} up to {latest}");
        }
        error
    }
}

impl Destination for Segments {
    fn sample(&mut self, sample: Sample) -> Result<()> {
        self.add(&sample, 0).map_err(|failure| self.end_after(&failure))
    }

    fn bytes(&self) -> u64 {
        self.removed_bytes + self.bytes_on_disk()
    }

    fn state(&self) -> String {
        if matches!(self.names, SegmentNames::Single(_)) {
            return String::new();
        }
        let removed = if self.removed == 0 { "" } else { ", older ones removed" };
        format!("{}{removed}", units::count(self.complete.len() as u64 + 1, "file"))
    }

    fn end(&mut self, reason: Reason) -> Result<Ended> {
        let (path, state) = (self.file.writer.path.to_owned(), self.state());
        let mut words = self.file.words();
        if !state.is_empty() {
            let written = units::bytes(self.bytes());
            words = format!("{written} written; {state}, the last one is {}", path.display());
        }
        self.file.end(reason)?;
        Ok(Ended { words, report: Some(path), incomplete: false })
    }
}

/// Prints how many files of earlier runs exist. They are not removed, and do not count towards the maximum.
pub fn say_foreign(base: &Path) {
    let directory = base.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let stamped = entries.filter(|entry| file::is_stamped(base, &entry.path()));
    let sizes = stamped.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    let (files, bytes) = sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size));
    if files > 0 {
        say!(
            "cgscope: {} of earlier runs ({}) {} in the same directory; this run removes only its own files",
            units::count(files, "file"),
            units::bytes(bytes),
            if files == 1 { "is" } else { "are" },
        );
    }
}

#[cfg(test)]
mod tests;
