//! The flight recorder. A ring holds the latest part of the recording. A trigger saves the part around its time to a file.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, UNIX_EPOCH},
};

use cgscope_model::{
    Interval, Sample, Steps,
    path::is_at_or_below,
    units::{self, duration},
};
use cgscope_record::{Ending, FileReader, Header, Place, Reason};
use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
};

use crate::{
    cli::Record,
    exit::{Error, Result, spawn},
    feed::ns,
    record::{
        Destination, Ended,
        file::{self, Failure, File, cannot_write, keep_old},
        segments::{SegmentLimits, SegmentNames, Segments},
    },
    recording::steps,
    trigger::Watch,
};

pub struct Flight<'a> {
    options: &'a Record,
    interval_ns: u64,
    /// Lengths of the saved part before and after a trigger, ns.
    keep_ns: u64,
    after_ns: u64,
    /// Time after a saved part in which triggers are ignored, ns.
    cool_down_ns: u64,
    ring: Ring,
    watch: Watch,
    steps: Steps,
    is_requested: bool,
    triggered: Option<Triggered>,
    copying: Option<JoinHandle<Result<Frozen>>>,
    stop: Arc<AtomicBool>,
    /// The files with the parts around the triggers so far; `None`: the part could not be saved.
    parts: Vec<Option<PathBuf>>,
}

impl<'a> Flight<'a> {
    pub fn create(options: &'a Record, header: &Header, keep: Duration) -> Result<Self> {
        let after = options.after.unwrap_or(keep / 5).max(options.interval);
        let flight = Self {
            options,
            interval_ns: header.interval_ns,
            keep_ns: ns(keep),
            after_ns: ns(after),
            cool_down_ns: ns(options.cool_down.unwrap_or(keep)),
            ring: Ring::create(&options.output, header, SegmentLimits::ring(ns(keep), options.ring_size))?,
            watch: Watch::new(options.trigger.len(), options.triggers),
            steps: steps(&header.selection)?,
            is_requested: false,
            triggered: None,
            copying: None,
            stop: Arc::default(),
            parts: Vec::new(),
        };
        if !options.quiet {
            flight.say_plan();
        }
        Ok(flight)
    }

    fn say_plan(&self) {
        let mut causes: Vec<String> = self.options.trigger.iter().map(ToString::to_string).collect();
        causes.push(format!("SIGUSR1 (kill -USR1 {})", std::process::id()));
        let times = match self.options.triggers {
            1 => "once".to_owned(),
            times => format!("up to {times} times"),
        };
        say!(
            "cgscope: keeping the last {} in {} (at most {}); saving them together with the next {}, {times}, on {}",
            duration(self.keep_ns),
            self.ring.directory.display(),
            units::bytes(self.options.ring_size),
            duration(self.after_ns),
            causes.join(" or "),
        );
    }

    /// Prints the expected size of the ring, and the cgroups that have no task yet.
    fn say_first(&self, sample: &Sample) {
        if !self.options.quiet {
            let samples = self.keep_ns / self.interval_ns.max(1) + 2;
            let sample_bytes = self.ring.segments.step_bytes;
            let ring_bytes = (sample_bytes * samples * 10 / 8).min(self.options.ring_size);
            let (first, ring) = (units::bytes(sample_bytes), units::bytes(ring_bytes));
            say!("cgscope: the first sample takes {first}: at that size the ring takes about {ring}");
        }
        for trigger in &self.options.trigger {
            let Some(cgroup) = &trigger.cgroup else { continue };
            if !sample.cgroups.iter().any(|(_, path)| is_at_or_below(path, cgroup)) {
                say!(
                    "cgscope: {trigger}: no task is in {cgroup} at the moment; the trigger works once a task enters it"
                );
            }
        }
    }

    /// Describes each trigger that fired in the interval that ends with the latest sample.
    fn fired(&mut self, interval: Option<&Interval>, mono_ns: u64) -> Vec<String> {
        let triggers = &self.options.trigger;
        let mut words = interval.map_or_else(Vec::new, |interval| {
            self.watch.fires(triggers.iter().map(|trigger| trigger.exceeded(interval)), mono_ns)
        });
        words.extend(std::mem::take(&mut self.is_requested).then(|| "SIGUSR1".into()));
        words
    }

    /// Begins to save a part. `before_ns` is the time of the previous sample.
    fn begin(&mut self, words: String, before_ns: Option<u64>, sample: &Sample) {
        let (before, after) = (duration(self.keep_ns), duration(self.after_ns));
        say!("cgscope: {words}; saving the {before} before and the {after} after");
        // The event happened at an unknown time within the interval.
        let at_ns = before_ns.unwrap_or(sample.mono_ns);
        let until_ns = sample.mono_ns + self.after_ns;
        self.watch.saved(until_ns + self.interval_ns + self.cool_down_ns);
        let from_ns = at_ns.saturating_sub(self.keep_ns);
        self.triggered = Some(Triggered { words, from_ns, at_ns, until_ns, unix_ns: sample.unix_ns });
    }

    /// Copies the part around the trigger to a file. A separate thread copies, so that the recording continues.
    fn freeze(&mut self, triggered: Triggered, last: &Sample) -> Result<()> {
        self.settle(true);
        let ring = &mut self.ring.segments;
        ring.turn(last).map_err(|failure| ring.file.end_after(&failure))?;
        let path = match self.options.triggers {
            1 => self.options.output.clone(),
            _ => file::free_stamped(&self.options.output, triggered.unix_ns).0,
        };
        let (bytes, stop) = (ring.bytes_on_disk(), self.stop.clone());
        let segments = ring.open();
        match segments.and_then(|segments| spawn(move || copy(segments, path, triggered, bytes, &stop))) {
            Ok(copying) => self.copying = Some(copying),
            Err(error) => self.not_frozen(&error),
        }
        Ok(())
    }

    /// Reports the result of a finished copy. With `wait`, first waits for the copy.
    fn settle(&mut self, wait: bool) {
        let Some(copy) = self.copying.take_if(|copy| wait || copy.is_finished()) else { return };
        let panicked = |_| Err(Error::incomplete("the copy to a file panicked; the message is above"));
        match copy.join().unwrap_or_else(panicked) {
            Ok((path, words)) => {
                say!("cgscope: {words}");
                self.parts.push(Some(path));
            }
            Err(error) => self.not_frozen(&error),
        }
    }

    /// Reports that a part could not be saved. The ring is still complete, and the recording continues.
    fn not_frozen(&mut self, error: &Error) {
        say!(
            "cgscope: {error}; nothing is saved. The data around the trigger is in the ring {} until newer data replaces it",
            self.ring.directory.display()
        );
        self.parts.push(None);
    }

    /// Records a sample. `before_ns`: the time of the previous sample. `interval`: the time since then, if there are triggers.
    fn take(&mut self, sample: &Sample, before_ns: Option<u64>, interval: Option<&Interval>) -> Result<()> {
        let fired = self.fired(interval, sample.mono_ns);
        if !fired.is_empty() && self.triggered.is_none() && self.watch.left > 0 {
            self.begin(fired.join("; "), before_ns, sample);
        }
        let needed_ns = match &self.triggered {
            Some(triggered) => triggered.from_ns,
            None => sample.mono_ns.saturating_sub(self.keep_ns),
        };
        let ring = &mut self.ring.segments;
        ring.add(sample, needed_ns).map_err(|failure| ring.file.end_after(&failure))?;
        if before_ns.is_none() {
            self.say_first(sample);
        }
        if let Some(triggered) = self.triggered.take_if(|triggered| sample.mono_ns >= triggered.until_ns) {
            self.freeze(triggered, sample)?;
        }
        self.settle(false);
        Ok(())
    }

    /// Adds the place of the remaining ring to an error.
    fn left_after(&mut self, mut error: Error) -> Error {
        // Waits for a running copy.
        self.settle(true);
        error.sentence += &format!("; the ring remains in {}", self.ring.directory.display());
        error
    }
}

impl Destination for Flight<'_> {
    fn sample(&mut self, sample: Sample) -> Result<()> {
        let before_ns = self.steps.latest.as_ref().map(|before| before.mono_ns);
        let sample = Box::new(sample);
        let interval = match self.options.trigger.as_slice() {
            [] => {
                self.steps.latest = Some(sample);
                None
            }
            _ => self.steps.step(sample),
        };
        let Some(sample) = self.steps.latest.take() else { return Ok(()) };
        self.take(&sample, before_ns, interval.as_ref()).map_err(|error| self.left_after(error))?;
        self.steps.latest = Some(sample);
        Ok(())
    }

    fn is_done(&self) -> bool {
        let is_idle = self.triggered.is_none() && self.copying.is_none();
        // If cgscope runs a command, it records until the command ends.
        self.watch.left == 0 && is_idle && self.options.select.command.is_empty()
    }

    fn bytes(&self) -> u64 {
        self.ring.segments.bytes()
    }

    fn state(&self) -> String {
        let ring = &self.ring.segments;
        let mut state =
            format!("ring {} in {}", duration(ring.held_ns()), units::bytes(ring.bytes_on_disk()));
        if let Some(triggered) = &self.triggered {
            let now_ns = self.steps.latest.as_ref().map_or(0, |latest| latest.mono_ns);
            state += &format!(", triggered, {} left", duration(triggered.until_ns.saturating_sub(now_ns)));
        }
        match self.parts.iter().flatten().count() {
            0 => {}
            saved => state += &format!(", {saved} saved"),
        }
        state
    }

    fn request(&mut self) {
        if self.triggered.is_some() {
            say!("cgscope: SIGUSR1 is ignored: the part that is being saved already covers this moment");
        } else if self.watch.left == 0 {
            say!("cgscope: SIGUSR1 is ignored: as many parts as --triggers allows are saved already");
        } else {
            self.is_requested = true;
        }
    }

    /// Removes the ring, unless it holds the only copy of the part around the last trigger.
    fn end(&mut self, reason: Reason) -> Result<Ended> {
        if let (Some(triggered), Some(last)) = (self.triggered.take(), self.steps.latest.take()) {
            self.freeze(triggered, &last).map_err(|error| self.left_after(error))?;
        }
        self.settle(true);
        let saved: Vec<&PathBuf> = self.parts.iter().flatten().collect();
        let failed = (self.parts.len() - saved.len()) as u64;
        let mut words = match (saved.last(), failed) {
            (None, 0) => "no trigger fired, so nothing is saved".into(),
            (None, _) => "nothing is saved".into(),
            (Some(last), _) => {
                let parts = units::count(saved.len() as u64, "part");
                format!("{parts} saved, the last one in {}", last.display())
            }
        };
        if failed > 0 {
            words += &format!("; {} could not be saved", units::count(failed, "part"));
        }
        // The ring holds the only copy of the part around the last trigger.
        if self.parts.last() == Some(&None) {
            words += &format!("; the ring remains in {}", self.ring.directory.display());
            // Ignore errors: the ring is readable without an end frame.
            let _ = self.ring.segments.file.end(reason);
        } else {
            self.ring.remove()?;
        }
        Ok(Ended { words, report: saved.last().map(|last| (*last).clone()), incomplete: failed > 0 })
    }

    /// Closes the ring early. Stops a running copy, because it could take a long time.
    fn abandon(&mut self, reason: Reason) {
        self.stop.store(true, Ordering::Relaxed);
        self.settle(true);
        say!("cgscope: the ring remains in {}", self.ring.directory.display());
        let _ = self.ring.segments.file.end(reason);
    }
}

/// A directory with the latest segments of a recording.
struct Ring {
    directory: PathBuf,
    segments: Segments,
    /// A lock on the directory, held while the ring is in use.
    _lock: fs::File,
}

impl Ring {
    /// Creates a ring beside the file `output`. Renames the ring of a killed run.
    fn create(output: &Path, header: &Header, limits: SegmentLimits) -> Result<Self> {
        let mut directory = output.as_os_str().to_owned();
        directory.push(".ring");
        let directory = PathBuf::from(directory);
        keep_aside(&directory)?;
        fs::create_dir(&directory).map_err(|error| cannot_write(&directory, error))?;
        let lock = fs::File::open(&directory).map_err(|error| cannot_write(&directory, error))?;
        // Ignore errors: if the file system has no locks, a second run is not detected.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        let names = SegmentNames::Numbered { directory: directory.clone(), last: 0 };
        let segments = Segments::create(names, header, limits).inspect_err(|_| {
            let _ = fs::remove_dir(&directory);
        })?;
        Ok(Self { directory, segments, _lock: lock })
    }

    /// Removes the ring, but no foreign files in its directory.
    fn remove(&self) -> Result<()> {
        self.segments.remove().and_then(|()| fs::remove_dir(&self.directory)).map_err(|error| {
            Error::incomplete(format!(
                "the ring in {} cannot be removed ({error}): cgscope no longer needs the ring, so remove it",
                self.directory.display()
            ))
        })
    }
}

/// Renames the ring of a killed run. It may hold the last minutes before an incident that nobody has examined yet.
fn keep_aside(directory: &Path) -> Result<()> {
    // Any user may have created something with this name. Opening a pipe would block.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let ring = match openat(CWD, directory, flags, Mode::empty()) {
        Ok(ring) => fs::File::from(ring),
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(Error::could_not_run(format!(
                "{} is not a directory, but `--keep` needs one there for its ring, so nothing is recorded: remove it, or name another file \
                 with -o",
                directory.display()
            )));
        }
        Err(error) => return Err(cannot_write(directory, io::Error::from(error))),
    };
    let metadata = ring.metadata().map_err(|error| cannot_write(directory, error))?;
    if flock(&ring, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(Error::could_not_run(format!(
            "{} is the ring of another cgscope that is running, so nothing is recorded: name another file with -o",
            directory.display()
        )));
    }
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let unix_ns = modified.map_or(0, |time| time.as_nanos() as u64);
    let asides = file::stamps(directory, unix_ns).map(|(aside, _)| aside);
    let aside = file::move_to_free(CWD, directory, asides).map_err(|error| cannot_write(directory, error))?;
    say!(
        "cgscope: an earlier run was killed and left its ring; it is kept in {}, and `cgscope report` reads its segments",
        aside.display()
    );
    Ok(())
}

/// A trigger that fired. Times are in ns of the monotonic clock, unless stated otherwise.
struct Triggered {
    words: String,
    /// The saved part starts with the last sample at or before this time.
    from_ns: u64,
    /// Start of the interval in which the trigger fired.
    at_ns: u64,
    /// The saved part ends with the first sample at or after this time.
    until_ns: u64,
    /// Wall clock at the end of the interval in which the trigger fired, ns since 1970.
    unix_ns: u64,
}

/// A saved file, and a sentence about it.
type Frozen = (PathBuf, String);

/// Copies the part around a trigger to `path`, and renames an existing file. The file gets its name when it is complete. A failed
/// copy leaves no file. Each segment starts with the last sample of the previous one. `bytes` is about the maximum size of the file.
fn copy(
    segments: Vec<FileReader>,
    path: PathBuf,
    triggered: Triggered,
    bytes: u64,
    stop: &AtomicBool,
) -> Result<Frozen> {
    check_room(&path, bytes)?;
    let mut header = segments.first().map(|segment| segment.header.clone()).unwrap_or_default();
    let mut file = None;
    let mut write = |sample: &Sample| -> Result<(), Failure> {
        let (file, _) = match &mut file {
            Some(begun) => begun,
            None => {
                header.start_unix_ns = sample.unix_ns;
                file.insert(File::create_beside(&path, &header)?)
            }
        };
        file.sample(sample)
    };
    let (mut first, mut last_ns, mut damage) = (None, None, None);
    for mut segment in segments {
        for sample in segment.by_ref() {
            let sample = sample.map_err(|error| {
                Error::incomplete(format!("the part cannot be saved: a segment of the ring {error}"))
            })?;
            if stop.load(Ordering::Relaxed) {
                return Err(Error::incomplete("the part was not saved, because cgscope ended early"));
            }
            if Some(sample.mono_ns) <= last_ns {
                // The previous segment ended with this sample.
                continue;
            }
            last_ns = Some(sample.mono_ns);
            if sample.mono_ns <= triggered.from_ns {
                first = Some(sample);
            } else {
                first.take().iter().chain([&sample]).try_for_each(&mut write)?;
            }
        }
        damage = damage.or_else(|| match segment.ending.as_ref() {
            Some(Ending::Clean(_)) => None,
            Some(ending) => Some(ending.to_string()),
            None => Some("its end could not be read".into()),
        });
    }
    first.iter().try_for_each(write)?;
    let (mut file, beside) = file.ok_or_else(|| Error::incomplete("there is no sample to save"))?;
    let bytes = file.writer.bytes();
    file.end(Reason::Triggered(triggered.words))?;
    keep_old(&path)?;
    let kept = beside.keep();
    kept.map_err(|error| Error::incomplete(format!("{} could not be written: {error}", path.display())))?;
    let mut words = format!(
        "saved {} before the trigger and {} after it: {}, {}, in {path}; `cgscope report {path}` shows what happened",
        duration(triggered.at_ns.saturating_sub(file.first_ns)),
        duration(file.last_ns.saturating_sub(triggered.at_ns)),
        units::count(file.samples, "sample"),
        units::bytes(bytes),
        path = path.display(),
    );
    if let Some(damage) = damage {
        words += &format!("; something is missing, because the ring is damaged: {damage}");
    }
    Ok((path, words))
}

/// Refuses a copy that would fill the disk, because the ring also needs space.
fn check_room(path: &Path, bytes: u64) -> Result<()> {
    // If the free space is unknown, the copy is tried.
    let Ok(place) = Place::of(path) else { return Ok(()) };
    let Some(Ok(disk)) = place.path.parent().map(rustix::fs::statvfs) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if disk.f_blocks == 0 || free > bytes {
        return Ok(());
    }
    let (path, needed, free) = (path.display(), units::bytes(bytes), units::bytes(free));
    Err(Error::incomplete(format!(
        "{path} cannot be written, because the disk is full: the file needs about {needed}, and {free} are free"
    )))
}

#[cfg(test)]
mod tests;
