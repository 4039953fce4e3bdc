//! Streams of samples to viewers. Viewers of everything with the same interval share a stream: each sample is encoded once for all of
//! them, and each viewer reads at their own speed. A viewer that follows processes has a stream of its own.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    io,
    sync::Arc,
};

use cgscope_model::{Hist, Sample, Skipped, TaskReading, Totals, follower::Follower};
use cgscope_record::{Outgoing, WriteError};

use crate::{
    collection::{Ended, Taken},
    protocol::{Refusal, Word},
    shown::{Reading, Shower},
};

/// An encoded frame, shared by all readers that have not read it yet.
pub type Frame = Arc<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKind {
    /// Only processes that are followed for this viewer; `None`: everything.
    pub follower: Option<Follower>,
    pub interval_ns: u64,
}

/// A new reader causes a key frame if there are this many frames since the last one, so that it need not read them all.
const KEY_FOR_NEW_AFTER: usize = 8;

/// Memory of a stream besides its rows and frames, bytes. Most of it is the compressor's.
const STREAM_BYTES: usize = 1 << 20;

/// A reader's position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub kind: StreamKind,
    next: u64,
}

/// A sample as it is sent.
#[derive(Clone, Debug)]
pub struct Shown {
    pub frame: Frame,
    /// [`Taken::number`].
    pub number: u64,
    /// Whether the sample was taken outside the grid for one reader; the other readers skip it.
    pub is_beside: bool,
}

/// All streams that have a reader.
#[derive(Debug, Default)]
pub struct Streams {
    pub(crate) streams: BTreeMap<StreamKind, Stream>,
    made: u64,
    /// The last `Ended` that all streams have processed.
    ended: Arc<Ended>,
}

#[derive(Clone, Copy, Debug)]
pub struct StreamMemory {
    pub kind: StreamKind,
    /// The user who began the stream.
    pub account: u32,
    pub bytes: usize,
    /// Number of the stream, in the order of creation.
    pub made: u64,
}

/// The sample that was shown last.
#[derive(Debug)]
enum Sent {
    Nothing,
    Whole(Arc<Reading>),
    /// Shown to a viewer that follows processes.
    Part(Reported),
}

/// Tasks in ascending order of serial, at a moment of CLOCK_MONOTONIC. Shared with the collection.
#[derive(Debug)]
struct Reported {
    mono_ns: u64,
    tasks: Box<[Arc<TaskReading>]>,
}

impl Reported {
    fn of(sample: &Sample) -> Self {
        Self { mono_ns: sample.mono_ns, tasks: sample.tasks.as_slice().into() }
    }

    fn did(&self, serial: u64) -> Option<(&Totals, &Arc<Hist>)> {
        let at = self.tasks.binary_search_by_key(&serial, |task| task.serial).ok()?;
        Some((&self.tasks[at].totals, &self.tasks[at].hist))
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    outgoing: Outgoing,
    /// `None`: everything is shown.
    shower: Option<Shower>,
    /// The last key frame and all frames after it. `first` is the position of that key frame.
    frames: VecDeque<Shown>,
    first: u64,
    readers: usize,
    /// Show no sample whose [`Taken::changes`] is below this number.
    since_changes: u64,
    /// A reader wants an immediate sample.
    wants_one: bool,
    /// A new reader waits to read from a key frame on.
    has_new: bool,
    /// The point of the stream's own grid that was shown last.
    point: Option<u64>,
    /// The number of the sample in `sent`.
    number: u64,
    sent: Sent,
    /// What ended in samples that were not shown.
    skipped: Skipped,
    account: u32,
    made: u64,
    ended: Option<Word>,
}

impl Streams {
    /// Iterates over the memory of each stream that has not ended.
    pub fn held(&self) -> impl Iterator<Item = StreamMemory> {
        let going_on = self.streams.iter().filter(|(_, stream)| stream.ended.is_none());
        going_on.map(|(kind, stream)| StreamMemory {
            kind: *kind,
            account: stream.account,
            bytes: stream.bytes(),
            made: stream.made,
        })
    }

    /// Returns why a reader receives nothing more.
    pub fn ended(&self, cursor: &Cursor) -> Option<&Word> {
        self.streams.get(&cursor.kind)?.ended.as_ref()
    }

    /// Ends a stream; its readers receive the word.
    pub fn end(&mut self, kind: &StreamKind, word: Word) {
        if let Some(stream) = self.streams.get_mut(kind) {
            stream.end(word);
        }
    }

    /// Adds a reader, who starts at the last key frame. A new stream shows no sample whose [`Taken::changes`] is below
    /// `since_changes`. `account` is the user who begins it.
    pub fn join(&mut self, kind: StreamKind, account: u32, since_changes: u64) -> io::Result<Cursor> {
        let stream = match self.streams.entry(kind) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.made += 1;
                entry.insert(Stream::new(kind, account, since_changes, self.made)?)
            }
        };
        stream.readers += 1;
        stream.has_new |= !stream.frames.is_empty();
        Ok(Cursor { kind, next: stream.first })
    }

    /// Returns the number of samples that a reader has not read.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        let Some(stream) = self.streams.get(&cursor.kind) else { return 0 };
        stream.frames.len().saturating_sub(cursor.next.saturating_sub(stream.first) as usize)
    }

    /// Requests an immediate sample for a reader: the first whose number is greater than the returned one.
    pub fn one_more(&mut self, cursor: &Cursor) -> u64 {
        let Some(stream) = self.streams.get_mut(&cursor.kind) else { return 0 };
        stream.wants_one = true;
        stream.number
    }

    pub fn since_changes(&self, cursor: &Cursor) -> u64 {
        self.streams.get(&cursor.kind).map_or(0, |stream| stream.since_changes)
    }

    pub fn leave(&mut self, cursor: &Cursor) {
        if let Some(stream) = self.streams.get_mut(&cursor.kind) {
            stream.readers -= 1;
            if stream.readers == 0 {
                self.streams.remove(&cursor.kind);
            }
        }
    }

    pub fn is_new(&self, cursor: &Cursor) -> bool {
        self.streams.get(&cursor.kind).is_some_and(|stream| stream.frames.is_empty())
    }

    /// Returns how many samples a reader has not read, and cannot read any more. It continues at the last key frame.
    pub fn passed(&self, cursor: &mut Cursor) -> u64 {
        let Some(stream) = self.streams.get(&cursor.kind) else { return 0 };
        let passed = stream.first.saturating_sub(cursor.next);
        cursor.next += passed;
        passed
    }

    /// Returns the next frame for a reader, if there is one. Call [`Self::passed`] before.
    pub fn next(&mut self, cursor: &mut Cursor) -> Option<Shown> {
        self.passed(cursor);
        let stream = self.streams.get_mut(&cursor.kind)?;
        let shown = stream.frames.get((cursor.next - stream.first) as usize)?.clone();
        cursor.next += 1;
        // A stream that follows processes has a single reader, so frames that were read are not needed again.
        if cursor.kind.follower.is_some() {
            stream.frames.drain(..(cursor.next - stream.first) as usize);
            stream.first = cursor.next;
        }
        Some(shown)
    }

    /// Adds what ended in samples that streams skip. Must be called for each sample, before [`show`](Self::show).
    pub fn skip(&mut self, taken: &Taken) {
        for ended in self.ended.until(taken.number) {
            for stream in self.streams.values_mut() {
                stream.skip(ended);
            }
        }
        self.ended = taken.ended.clone();
    }

    /// Shows a sample in all streams where it is due. If a sample cannot be encoded (a bug in cgscope), the stream ends.
    pub fn show(&mut self, taken: &Taken) {
        for (kind, stream) in &mut self.streams {
            if let Some(is_beside) = stream.due(kind.interval_ns, taken)
                && let Err(error) = stream.show(taken, is_beside)
            {
                stream.end(cannot_be_sent(&error));
            }
        }
    }
}

fn cannot_be_sent(error: &WriteError) -> Word {
    Word::refused(
        Refusal::Failed,
        format!(
            "the daemon cannot send this view ({error}) and has ended it; other viewers continue. cgscope reconnects by itself; \
             report the fault if it persists"
        ),
    )
}

impl Stream {
    fn new(kind: StreamKind, account: u32, since_changes: u64, made: u64) -> io::Result<Self> {
        Ok(Self {
            outgoing: Outgoing::new()?,
            shower: kind.follower.map(Shower::new),
            frames: VecDeque::new(),
            first: 0,
            readers: 0,
            since_changes,
            wants_one: false,
            has_new: false,
            point: None,
            number: 0,
            sent: Sent::Nothing,
            skipped: Skipped::default(),
            account,
            made,
            ended: None,
        })
    }

    /// Ends the stream. Frames that were not read are dropped.
    fn end(&mut self, word: Word) {
        self.first += self.frames.len() as u64;
        self.frames.clear();
        self.ended = Some(word);
        (self.sent, self.skipped) = (Sent::Nothing, Skipped::default());
    }

    fn bytes(&self) -> usize {
        let frames: usize = self.frames.iter().map(|shown| shown.frame.len()).sum();
        let sent = match &self.sent {
            Sent::Part(reported) => size_of_val(&*reported.tasks),
            // Shared with the other viewers who see everything.
            Sent::Nothing | Sent::Whole(_) => 0,
        };
        STREAM_BYTES + self.outgoing.memory_bytes() + self.skipped.memory_bytes() + sent + frames
    }

    fn skip(&mut self, ended: &Ended) {
        if !Skipped::concerns(&ended.reading.sample, ended.number, self.number) {
            return;
        }
        let shown = self.shower.as_ref().map(|shower| shower.ended(&ended.reading));
        let sample = shown.as_ref().unwrap_or(&ended.reading.sample);
        match &self.sent {
            Sent::Nothing => {}
            Sent::Whole(reading) => {
                let sent = &reading.sample;
                self.skipped.add(sent.mono_ns, |serial| sent.did(serial), |id| sent.exited_of(id), sample);
            }
            // Few cgroups have tasks that are followed, so that each has a sum.
            Sent::Part(sent) => self.skipped.add(sent.mono_ns, |serial| sent.did(serial), |_| None, sample),
        }
    }

    /// Whether the sample lies outside the grid; `None` means that it is not shown.
    fn due(&mut self, interval_ns: u64, taken: &Taken) -> Option<bool> {
        if self.ended.is_some() || taken.number == self.number || taken.changes < self.since_changes {
            return None;
        }
        let point = taken.at_ns / interval_ns.max(1);
        // The first sample is always shown: readers have nothing yet.
        let is_on_grid = self.point.is_none_or(|last| taken.is_on_grid && point > last);
        if is_on_grid {
            self.point = Some(point);
        }
        (is_on_grid || self.wants_one).then_some(!is_on_grid)
    }

    fn show(&mut self, taken: &Taken, is_beside: bool) -> Result<(), WriteError> {
        self.number = taken.number;
        self.wants_one = false;
        if self.has_new && self.frames.len() >= KEY_FOR_NEW_AFTER {
            self.outgoing.start_anew();
        }
        let mut shown = self.shower.as_mut().map(|shower| shower.show(&taken.reading));
        if !self.skipped.is_empty() {
            self.skipped.add_to(shown.get_or_insert_with(|| taken.reading.sample.clone()));
        }
        let (frame, is_key) = self.outgoing.sample(shown.as_ref().unwrap_or(&taken.reading.sample))?;
        self.sent = match &shown {
            Some(shown) if self.shower.is_some() => Sent::Part(Reported::of(shown)),
            _ => Sent::Whole(taken.reading.clone()),
        };
        if is_key {
            self.first += self.frames.len() as u64;
            self.frames.clear();
            self.has_new = false;
        }
        self.frames.push_back(Shown { frame: frame.into(), number: taken.number, is_beside });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
