//! Streams of samples to viewers. All viewers that see everything at the same interval share a stream: each sample is encoded
//! once, and each viewer reads the stream at its own speed. A viewer that follows processes has a stream of its own.

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

/// An encoded frame. All readers that have not read the frame yet share it.
pub type Frame = Arc<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKind {
    /// The follower whose processes the stream shows. `None` means that the stream shows everything.
    pub follower: Option<Follower>,
    pub interval_ns: u64,
}

/// From this many frames after the last key frame on, a new reader causes a key frame, so that it need not read them all.
const KEY_FOR_NEW_AFTER: usize = 8;

/// Memory that a stream needs in addition to its rows and frames, bytes. Most of this memory belongs to the compressor.
const STREAM_BYTES: usize = 1 << 20;

/// A reader's position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub kind: StreamKind,
    next: u64,
}

/// An encoded sample in a stream.
#[derive(Clone, Debug)]
pub struct Shown {
    pub frame: Frame,
    /// Number of earlier samples that the reader has missed because they are no longer available.
    pub passed: u64,
    /// Number of the sample ([`Taken::number`]).
    pub number: u64,
    /// Whether the sample was taken for one reader, at a time that is not on the grid. The other readers skip this sample.
    pub is_beside: bool,
}

/// All streams that have a reader.
#[derive(Debug, Default)]
pub struct Streams {
    pub(crate) streams: BTreeMap<StreamKind, Stream>,
    made: u64,
    /// The last [`Ended`] that all streams have processed.
    ended: Arc<Ended>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    outgoing: Outgoing,
    /// Selects the visible part. `None` means that the stream shows everything.
    shower: Option<Shower>,
    /// The last key frame and all later frames. `first` is the position of the key frame.
    frames: VecDeque<Shown>,
    first: u64,
    /// The user id of each reader.
    readers: Vec<u32>,
    /// A sample is not shown if its [`Taken::changes`] is smaller.
    pub since_changes: u64,
    /// Whether a reader has requested an immediate sample.
    wants_one: bool,
    /// Whether a new reader waits for a key frame.
    has_new: bool,
    /// The latest point on the stream's own grid at which a sample was shown.
    point: Option<u64>,
    /// Number of the sample in `sent`.
    number: u64,
    /// The latest sample that was shown. If the viewer follows processes, only the tasks of the sample are kept.
    sent: Option<Arc<Reading>>,
    /// The rows that ended in samples that the stream did not show.
    skipped: Skipped,
    /// Id of the user for whom the stream was created.
    pub account: u32,
    /// Number of the stream, in the order of creation.
    pub made: u64,
    /// The last message to the readers, once the stream has ended.
    pub ended: Option<Word>,
}

impl Streams {
    /// Returns the stream of a reader. The stream exists as long as the reader does not leave it.
    pub fn of(&self, cursor: &Cursor) -> &Stream {
        &self.streams[&cursor.kind]
    }

    /// Adds a reader, which begins at the last key frame. A new stream shows no sample with fewer [`Taken::changes`].
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

    pub fn leave(&mut self, cursor: &Cursor, account: u32) {
        if let Some(stream) = self.streams.get_mut(&cursor.kind) {
            let at = stream.readers.iter().position(|reader| *reader == account);
            at.map(|at| stream.readers.swap_remove(at));
            if stream.readers.is_empty() {
                self.streams.remove(&cursor.kind);
            }
        }
    }

    /// Returns the intervals (ns) of those streams in which this user sees everything.
    pub fn intervals_of(&self, account: u32) -> impl Iterator<Item = u64> {
        let whole = self.streams.iter().filter(|(kind, _)| kind.follower.is_none());
        whole.filter(move |(_, stream)| stream.readers.contains(&account)).map(|(kind, _)| kind.interval_ns)
    }

    pub fn followers(&self) -> impl Iterator<Item = (Follower, u32)> {
        self.streams.iter().filter_map(|(kind, stream)| Some((kind.follower?, stream.account)))
    }

    pub fn going_on(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut().filter(|stream| stream.ended.is_none())
    }

    /// Requests an immediate sample for a reader. It is the first sample whose number is greater than the returned number.
    pub fn one_more(&mut self, cursor: &Cursor) -> u64 {
        let Some(stream) = self.streams.get_mut(&cursor.kind) else { return 0 };
        stream.wants_one = true;
        stream.number
    }

    /// Returns the next frame for a reader, if there is one. A reader that has lost frames continues at the last key frame.
    pub fn next(&mut self, cursor: &mut Cursor) -> Option<Shown> {
        let stream = self.streams.get_mut(&cursor.kind)?;
        let passed = stream.first.saturating_sub(cursor.next);
        cursor.next += passed;
        let shown = stream.frames.get((cursor.next - stream.first) as usize)?.clone();
        cursor.next += 1;
        // A stream that follows processes has only one reader, so each frame is dropped once that reader has read it.
        if cursor.kind.follower.is_some() {
            stream.frames.drain(..(cursor.next - stream.first) as usize);
            stream.first = cursor.next;
        }
        Some(Shown { passed, ..shown })
    }

    /// Records the rows that ended in a sample, for streams that do not show it. Call this before [`show`](Self::show).
    pub fn skip(&mut self, taken: &Taken) {
        for ended in self.ended.until(taken.number) {
            self.streams.values_mut().for_each(|stream| stream.skip(ended));
        }
        self.ended = taken.ended.clone();
    }

    /// Shows a sample in each stream in which it is due. A stream that cannot encode it (a bug in cgscope) ends.
    pub fn show(&mut self, taken: &Taken) {
        for (kind, stream) in &mut self.streams {
            if let Some(is_beside) = stream.due(kind.interval_ns, taken)
                && let Err(error) = stream.show(taken, is_beside)
            {
                let sentence = format!(
                    "the daemon cannot send this view ({error}) and has ended it; other viewers continue. cgscope reconnects by \
                     itself; report the fault if it persists"
                );
                stream.end(Word::refused(Refusal::Failed, sentence));
            }
        }
    }
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

    /// Returns whether the stream has not shown any sample yet.
    pub fn is_new(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns how many samples the reader has not read.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        self.frames.len().saturating_sub(cursor.next.saturating_sub(self.first) as usize)
    }

    /// Ends the stream, and drops its unread frames. The readers receive `word` as the last message.
    pub fn end(&mut self, word: Word) {
        self.first += self.frames.len() as u64;
        self.frames.clear();
        self.ended = Some(word);
        (self.sent, self.skipped) = (None, Skipped::default());
    }

    pub fn bytes(&self) -> usize {
        let frames: usize = self.frames.iter().map(|shown| shown.frame.len()).sum();
        // Streams that show everything share their sample. So the sample counts only for a stream that follows processes.
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

    /// Returns `None` if the sample is not due in this stream. Otherwise returns whether the sample is not on the stream's grid.
    fn due(&mut self, interval_ns: u64, taken: &Taken) -> Option<bool> {
        if self.ended.is_some() || taken.number == self.number || taken.changes < self.since_changes {
            return None;
        }
        let point = taken.at_ns / interval_ns.max(1);
        // The first sample is always shown, because the readers have no sample yet.
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
