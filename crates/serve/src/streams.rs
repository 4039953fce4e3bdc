//! Streams of Samples to viewers. Viewers with the same view and interval share a stream: a Sample is filtered and written once for
//! all of them, and each reads at their own speed.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    io,
    sync::Arc,
};

use cgscope_model::{Hist, Sample, Skipped, Totals};
use cgscope_record::{Outgoing, WriteError};

use crate::{
    collection::{Ended, Taken},
    protocol::{Refusal, Word},
    shown::{IsOwned, Reading, Shower, View},
};

/// A frame, shared by all who are still to read it.
pub type Frame = Arc<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKind {
    pub view: View,
    pub interval_ns: u64,
}

/// Frames after which a new reader causes a key frame: new readers read everything since the last one.
const KEY_FOR_NEW_AFTER: usize = 8;

/// Memory of a stream besides its rows and frames, bytes: mostly the compressor's.
const STREAM_BYTES: usize = 1 << 20;

/// Where a reader is in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub kind: StreamKind,
    next: u64,
}

/// A Sample as it is sent.
#[derive(Clone, Debug)]
pub struct Shown {
    pub frame: Frame,
    /// [`Taken::number`].
    pub number: u64,
    /// Taken between two points of the grid for one reader; the others skip it.
    pub is_beside: bool,
}

/// All streams that somebody reads.
#[derive(Debug, Default)]
pub struct Streams {
    pub(crate) streams: BTreeMap<StreamKind, Stream>,
    made: u64,
    /// Streams have skipped or shown what ended up to here.
    ended: Arc<Ended>,
}

#[derive(Clone, Copy, Debug)]
pub struct StreamMemory {
    pub kind: StreamKind,
    pub bytes: usize,
    /// The number of the stream, in the order in which they were made.
    pub made: u64,
}

/// The Sample that was shown last.
#[derive(Debug)]
enum Sent {
    Nothing,
    Whole(Arc<Reading>),
    /// For a viewer who does not see everything.
    Part(Reported),
}

/// Totals of tasks, ascending by serial, at a moment of CLOCK_MONOTONIC.
#[derive(Debug)]
struct Reported {
    mono_ns: u64,
    tasks: Box<[(u64, Totals, Arc<Hist>)]>,
}

impl Reported {
    fn of(sample: &Sample) -> Self {
        let tasks = sample.tasks.iter().map(|task| (task.serial, task.totals, task.hist.clone()));
        Self { mono_ns: sample.mono_ns, tasks: tasks.collect() }
    }

    fn did(&self, serial: u64) -> Option<(&Totals, &Arc<Hist>)> {
        let at = self.tasks.binary_search_by_key(&serial, |(serial, ..)| *serial).ok()?;
        Some((&self.tasks[at].1, &self.tasks[at].2))
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    outgoing: Outgoing,
    shower: Shower,
    /// The last key frame and all after it; `first` is the position of that key frame.
    frames: VecDeque<Shown>,
    first: u64,
    readers: usize,
    /// Nothing is shown before a Sample with this many [`Taken::changes`].
    since_changes: u64,
    /// A reader wants one more Sample, now.
    wants_one: bool,
    /// A reader joined that begins at a key frame.
    has_new: bool,
    /// The point of the stream's own grid that was shown last.
    point: Option<u64>,
    /// The number of `sent`.
    number: u64,
    sent: Sent,
    /// What ended in Samples that were not shown.
    skipped: Skipped,
    made: u64,
    ended: Option<Word>,
}

impl Streams {
    /// The number of streams of these users, without those of followers.
    pub fn of_users(&self, is_one: impl Fn(u32) -> bool) -> usize {
        let views = self.streams.keys().map(|kind| kind.view);
        views.filter(|view| view.user.is_some_and(&is_one) && view.follower.is_none()).count()
    }

    /// The memory of each stream that has not ended.
    pub fn held(&self) -> impl Iterator<Item = StreamMemory> {
        let going_on = self.streams.iter().filter(|(_, stream)| stream.ended.is_none());
        going_on.map(|(kind, stream)| StreamMemory { kind: *kind, bytes: stream.bytes(), made: stream.made })
    }

    /// Why a reader receives nothing more.
    pub fn ended(&self, cursor: &Cursor) -> Option<&Word> {
        self.streams.get(&cursor.kind)?.ended.as_ref()
    }

    /// Ends a stream: its readers receive the word.
    pub fn end(&mut self, kind: &StreamKind, word: Word) {
        if let Some(stream) = self.streams.get_mut(kind) {
            stream.end(word);
        }
    }

    /// A viewer is shown exited tasks of its own cgroups.
    pub fn show_users(&self) -> bool {
        self.streams.keys().any(|kind| kind.view.user.is_some() && kind.view.follower.is_none())
    }

    /// Adds a reader, from the last key frame on. A new stream shows nothing before a Sample with this many [`Taken::changes`].
    pub fn join(&mut self, kind: StreamKind, since_changes: u64) -> io::Result<Cursor> {
        let stream = match self.streams.entry(kind) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.made += 1;
                entry.insert(Stream::new(kind, since_changes, self.made)?)
            }
        };
        stream.readers += 1;
        stream.has_new |= !stream.frames.is_empty();
        Ok(Cursor { kind, next: stream.first })
    }

    /// The number of Samples that a reader has not read.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        let Some(stream) = self.streams.get(&cursor.kind) else { return 0 };
        stream.frames.len().saturating_sub(cursor.next.saturating_sub(stream.first) as usize)
    }

    /// Requests one more Sample for a reader: the first with a greater number than the returned one.
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

    /// The next frame for a reader, if there is one. A reader that has fallen behind the last key frame goes on there.
    pub fn next(&mut self, cursor: &mut Cursor) -> Option<Shown> {
        let stream = self.streams.get_mut(&cursor.kind)?;
        cursor.next = cursor.next.max(stream.first);
        let shown = stream.frames.get((cursor.next - stream.first) as usize)?.clone();
        cursor.next += 1;
        // A follower has one reader, and nobody else ever begins at its frames.
        if cursor.kind.view.follower.is_some() {
            stream.frames.drain(..(cursor.next - stream.first) as usize);
            stream.first = cursor.next;
        }
        Some(shown)
    }

    /// Adds what ended in Samples that streams skip. Must be called with each Sample, before it is [shown](Self::show).
    pub fn skip(&mut self, taken: &Taken, mut is_owned: impl FnMut(&str, u32) -> bool) {
        for ended in self.ended.until(taken.number) {
            for stream in self.streams.values_mut() {
                stream.skip(ended, &mut is_owned);
            }
        }
        self.ended = taken.ended.clone();
    }

    /// Shows a Sample in all streams where it is due. A stream for which it cannot be written, a fault of cgscope, ends.
    pub fn show(&mut self, taken: &Taken, mut is_owned: impl FnMut(&str, u32) -> bool) {
        for (kind, stream) in &mut self.streams {
            if let Some(is_beside) = stream.due(kind.interval_ns, taken)
                && let Err(error) = stream.show(taken, is_beside, &mut is_owned)
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
            "the daemon cannot send this view ({error}) and has ended it; other viewers go on. cgscope connects again by itself; \
             report the fault if it stays"
        ),
    )
}

impl Stream {
    fn new(kind: StreamKind, since_changes: u64, made: u64) -> io::Result<Self> {
        Ok(Self {
            outgoing: Outgoing::new()?,
            shower: Shower::new(kind.view),
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
            made,
            ended: None,
        })
    }

    /// Frames that were not read are dropped.
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
            // Held for all who see everything.
            Sent::Nothing | Sent::Whole(_) => 0,
        };
        STREAM_BYTES + self.outgoing.memory_bytes() + sent + frames
    }

    fn skip(&mut self, ended: &Ended, is_owned: IsOwned<'_>) {
        if !Skipped::concerns(&ended.reading.sample, ended.number, self.number) {
            return;
        }
        let shown = self.shower.ended(&ended.reading, is_owned);
        let sample = shown.as_ref().unwrap_or(&ended.reading.sample);
        match &self.sent {
            Sent::Nothing => {}
            Sent::Whole(reading) => {
                let sent = &reading.sample;
                self.skipped.add(sent.mono_ns, |serial| sent.did(serial), sample);
            }
            Sent::Part(sent) => self.skipped.add(sent.mono_ns, |serial| sent.did(serial), sample),
        }
    }

    /// Whether the Sample lies beside the grid; `None`: it is not shown.
    fn due(&mut self, interval_ns: u64, taken: &Taken) -> Option<bool> {
        if self.ended.is_some() || taken.number == self.number || taken.changes < self.since_changes {
            return None;
        }
        let point = taken.at_ns / interval_ns.max(1);
        // The first Sample is always shown: readers have nothing yet.
        let is_on_grid = self.point.is_none_or(|last| taken.is_on_grid && point > last);
        if is_on_grid {
            self.point = Some(point);
        }
        (is_on_grid || self.wants_one).then_some(!is_on_grid)
    }

    fn show(&mut self, taken: &Taken, is_beside: bool, is_owned: IsOwned<'_>) -> Result<(), WriteError> {
        self.number = taken.number;
        self.wants_one = false;
        if self.has_new && self.frames.len() >= KEY_FOR_NEW_AFTER {
            self.outgoing.start_anew();
        }
        let mut shown = self.shower.show(&taken.reading, is_owned);
        if !self.skipped.is_empty() {
            let sample = shown.get_or_insert_with(|| taken.reading.sample.clone());
            (sample.exited, sample.cgroups) = self.skipped.added_to(sample);
        }
        let (frame, is_key) = self.outgoing.sample(shown.as_ref().unwrap_or(&taken.reading.sample))?;
        self.sent = match &shown {
            Some(shown) if !self.shower.shows_all() => Sent::Part(Reported::of(shown)),
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
