//! Streams of samples to viewers. Viewers of everything with the same interval share a stream: each sample is encoded once for all of
//! them, and each viewer reads at their own speed. A viewer that follows processes has a stream of its own.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    io,
    sync::Arc,
};

use cgscope_model::{Sample, Skipped, follower::Follower};
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
    /// Number of samples before it that the reader has not read, and cannot read any more.
    pub passed: u64,
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

#[derive(Debug)]
pub(crate) struct Stream {
    outgoing: Outgoing,
    /// `None`: everything is shown.
    shower: Option<Shower>,
    /// The last key frame and all frames after it. `first` is the position of that key frame.
    frames: VecDeque<Shown>,
    first: u64,
    /// The user ids of the readers.
    readers: Vec<u32>,
    /// Show no sample whose [`Taken::changes`] is below this number.
    pub since_changes: u64,
    /// A reader wants an immediate sample.
    wants_one: bool,
    /// A new reader waits to read from a key frame on.
    has_new: bool,
    /// The point of the stream's own grid that was shown last.
    point: Option<u64>,
    /// The number of the sample in `sent`.
    number: u64,
    /// The sample that was shown last. A viewer that follows processes needs only its tasks.
    sent: Option<Arc<Reading>>,
    /// What ended in samples that were not shown.
    skipped: Skipped,
    /// The user who began the stream.
    pub account: u32,
    /// Number of the stream, in the order of creation.
    pub made: u64,
    /// Why readers receive nothing more.
    pub ended: Option<Word>,
}

impl Streams {
    /// Returns a reader's stream, which exists until the reader leaves it.
    pub fn of(&self, cursor: &Cursor) -> &Stream {
        &self.streams[&cursor.kind]
    }

    /// Adds a reader of this user, who starts at the last key frame. A new stream shows no sample whose [`Taken::changes`] is below
    /// `since_changes`.
    pub fn join(&mut self, kind: StreamKind, account: u32, since_changes: u64) -> io::Result<Cursor> {
        let stream = match self.streams.entry(kind) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.made += 1;
                entry.insert(Stream::new(kind, account, since_changes, self.made)?)
            }
        };
        stream.readers.push(account);
        stream.has_new |= !stream.frames.is_empty();
        Ok(Cursor { kind, next: stream.first })
    }

    /// Removes a reader of this user.
    pub fn leave(&mut self, cursor: &Cursor, account: u32) {
        if let Some(stream) = self.streams.get_mut(&cursor.kind) {
            let at = stream.readers.iter().position(|reader| *reader == account);
            at.map(|at| stream.readers.swap_remove(at));
            if stream.readers.is_empty() {
                self.streams.remove(&cursor.kind);
            }
        }
    }

    /// Iterates over the intervals, ns, at which a user sees everything.
    pub fn intervals_of(&self, account: u32) -> impl Iterator<Item = u64> {
        let whole = self.streams.iter().filter(|(kind, _)| kind.follower.is_none());
        whole.filter(move |(_, stream)| stream.readers.contains(&account)).map(|(kind, _)| kind.interval_ns)
    }

    /// Iterates over the followers in use, each with its user.
    pub fn followers(&self) -> impl Iterator<Item = (Follower, u32)> {
        self.streams.iter().filter_map(|(kind, stream)| Some((kind.follower?, stream.account)))
    }

    /// Iterates over the streams that have not ended.
    pub fn going_on(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut().filter(|stream| stream.ended.is_none())
    }

    /// Requests an immediate sample for a reader: the first whose number is greater than the returned one.
    pub fn one_more(&mut self, cursor: &Cursor) -> u64 {
        let Some(stream) = self.streams.get_mut(&cursor.kind) else { return 0 };
        stream.wants_one = true;
        stream.number
    }

    /// Returns the next frame for a reader, if there is one. A reader that lost frames continues at the last key frame.
    pub fn next(&mut self, cursor: &mut Cursor) -> Option<Shown> {
        let stream = self.streams.get_mut(&cursor.kind)?;
        let passed = stream.first.saturating_sub(cursor.next);
        cursor.next += passed;
        let shown = stream.frames.get((cursor.next - stream.first) as usize)?.clone();
        cursor.next += 1;
        // A stream that follows processes has a single reader, so frames that were read are not needed again.
        if cursor.kind.follower.is_some() {
            stream.frames.drain(..(cursor.next - stream.first) as usize);
            stream.first = cursor.next;
        }
        Some(Shown { passed, ..shown })
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
            readers: Vec::new(),
            since_changes,
            wants_one: false,
            has_new: false,
            point: None,
            number: 0,
            sent: None,
            skipped: Skipped::default(),
            account,
            made,
            ended: None,
        })
    }

    /// Whether nothing was shown yet.
    pub fn is_new(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of samples that a reader has not read.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        self.frames.len().saturating_sub(cursor.next.saturating_sub(self.first) as usize)
    }

    /// Ends the stream: its readers receive the word. Frames that were not read are dropped.
    pub fn end(&mut self, word: Word) {
        self.first += self.frames.len() as u64;
        self.frames.clear();
        self.ended = Some(word);
        (self.sent, self.skipped) = (None, Skipped::default());
    }

    /// Returns the memory that the stream holds.
    pub fn bytes(&self) -> usize {
        let frames: usize = self.frames.iter().map(|shown| shown.frame.len()).sum();
        // What is shown of everything is shared with the other viewers who see everything.
        let own = self.sent.as_ref().filter(|_| self.shower.is_some());
        let sent = own.map_or(0, |sent| size_of_val(&*sent.sample.tasks));
        STREAM_BYTES + self.outgoing.memory_bytes() + self.skipped.memory_bytes() + sent + frames
    }

    fn skip(&mut self, ended: &Ended) {
        let Some(sent) = &self.sent else { return };
        if Skipped::concerns(&ended.reading.sample, ended.number, self.number) {
            let shown = self.shower.as_ref().map(|shower| shower.ended(&ended.reading));
            self.skipped.add(&sent.sample, shown.as_ref().unwrap_or(&ended.reading.sample));
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
        self.sent = Some(match shown {
            Some(Sample { mono_ns, tasks, .. }) if self.shower.is_some() => {
                let sample = Sample { mono_ns, tasks, ..Sample::default() };
                Arc::new(Reading { sample, followed: Vec::new() })
            }
            _ => taken.reading.clone(),
        });
        if is_key {
            self.first += self.frames.len() as u64;
            self.frames.clear();
            self.has_new = false;
        }
        self.frames.push_back(Shown { frame: frame.into(), passed: 0, number: taken.number, is_beside });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
