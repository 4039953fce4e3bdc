//! Samples on their way to viewers. Those who look at the same things at the same pace share a stream: a Sample is filtered and
//! written once for all of them, and each reads at their own speed.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    io,
    sync::Arc,
};

use cgscope_record::{Outgoing, WriteError};

use crate::{
    collection::Taken,
    shown::{IsOwned, Shower, View},
};

/// A frame, shared by all who are still to read it.
pub type Frame = Arc<[u8]>;

/// Which stream: whose view, and how often, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Whose view.
    pub view: View,
    /// From one Sample to the next, ns.
    pub interval_ns: u64,
}

/// After so many frames a key frame is made for those who come anew: they read everything since the last one.
const KEY_FOR_NEW_AFTER: usize = 8;

/// Where a reader is in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The stream.
    pub kind: Kind,
    next: u64,
}

/// A Sample as it is sent.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its frame.
    pub frame: Frame,
    /// Which Sample: [`Taken::number`].
    pub number: u64,
    /// It was taken between two points of the grid because a reader asked for it: nothing to the others.
    pub is_beside: bool,
}

/// All streams that somebody reads.
#[derive(Debug, Default)]
pub struct Streams(BTreeMap<Kind, Stream>);

/// Why a Sample is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    OnGrid,
    Beside,
}

#[derive(Debug)]
struct Stream {
    outgoing: Outgoing,
    shower: Shower,
    /// The last key frame and all after it, and the number of the first of them.
    frames: VecDeque<Shown>,
    first: u64,
    readers: usize,
    /// Nothing is shown before a Sample with so many changes of whom to follow.
    since_changes: u64,
    /// Somebody wants one more Sample, now.
    wants_one: bool,
    /// Somebody came who begins at a key frame.
    has_new: bool,
    /// The point of the stream's own grid that was shown last.
    point: Option<u64>,
    /// The Sample that was shown last.
    number: u64,
}

impl Streams {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of a user's there are, those of processes that are followed left out: of these there are few.
    pub fn of_user(&self, user: u32) -> usize {
        let views = self.0.keys().map(|kind| kind.view);
        views.filter(|view| view.user == Some(user) && view.follower.is_none()).count()
    }

    /// Somebody is shown what is theirs, with the tasks of their cgroups that have exited.
    pub fn show_users(&self) -> bool {
        self.0.keys().any(|kind| kind.view.user.is_some() && kind.view.follower.is_none())
    }

    /// There is this one.
    pub fn has(&self, kind: &Kind) -> bool {
        self.0.contains_key(kind)
    }

    /// One more reads this stream, from the last key frame on. A new one shows nothing before a Sample with so many changes of whom
    /// to follow.
    ///
    /// # Errors
    /// No stream could be made.
    pub fn join(&mut self, kind: Kind, since_changes: u64) -> io::Result<Cursor> {
        let stream = match self.0.entry(kind) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Stream::new(kind, since_changes)?),
        };
        stream.readers += 1;
        stream.has_new |= !stream.frames.is_empty();
        Ok(Cursor { kind, next: stream.first })
    }

    /// How many Samples there are for a reader.
    pub fn behind(&self, cursor: &Cursor) -> usize {
        let Some(stream) = self.0.get(&cursor.kind) else { return 0 };
        stream.frames.len().saturating_sub(cursor.next.saturating_sub(stream.first) as usize)
    }

    /// One reader wants one more Sample, now: the next one whose number is greater than the one that is returned.
    pub fn one_more(&mut self, cursor: &Cursor) -> u64 {
        let Some(stream) = self.0.get_mut(&cursor.kind) else { return 0 };
        stream.wants_one = true;
        stream.number
    }

    /// The changes of whom to follow before which nothing is shown in a reader's stream.
    pub fn since_changes(&self, cursor: &Cursor) -> u64 {
        self.0.get(&cursor.kind).map_or(0, |stream| stream.since_changes)
    }

    /// One less reads it.
    pub fn leave(&mut self, cursor: &Cursor) {
        if let Some(stream) = self.0.get_mut(&cursor.kind) {
            stream.readers -= 1;
            if stream.readers == 0 {
                self.0.remove(&cursor.kind);
            }
        }
    }

    /// A stream has nothing to show yet.
    pub fn is_new(&self, cursor: &Cursor) -> bool {
        self.0.get(&cursor.kind).is_some_and(|stream| stream.frames.is_empty())
    }

    /// The next frame for a reader; `None`: there is none yet. Who has fallen behind the last key frame goes on there.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Shown> {
        let stream = self.0.get(&cursor.kind)?;
        cursor.next = cursor.next.max(stream.first);
        let shown = stream.frames.get((cursor.next - stream.first) as usize)?;
        cursor.next += 1;
        Some(shown.clone())
    }

    /// Shows a Sample in all streams in which it is due: whose grid has come to another point, or which have shown nothing yet.
    ///
    /// # Errors
    /// It could not be written for one of them: a fault of cgscope. The others have it.
    pub fn show(
        &mut self,
        taken: &Taken,
        mut is_owned: impl FnMut(&str, u32) -> bool,
    ) -> Result<(), WriteError> {
        let mut result = Ok(());
        for (kind, stream) in &mut self.0 {
            if let Some(due) = stream.due(kind.interval_ns, taken) {
                let shown = stream.show(taken, due, &mut is_owned);
                result = result.and(shown);
            }
        }
        result
    }
}

impl Stream {
    fn new(kind: Kind, since_changes: u64) -> io::Result<Self> {
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
        })
    }

    fn due(&mut self, interval_ns: u64, taken: &Taken) -> Option<Due> {
        if taken.number == self.number || taken.changes < self.since_changes {
            return None;
        }
        let point = taken.at_ns / interval_ns.max(1);
        let is_on_grid = match self.point {
            Some(last) => taken.is_on_grid && point > last,
            // Also beside the grid, for who has nothing to look at.
            None => true,
        };
        if is_on_grid {
            self.point = Some(point);
        }
        match is_on_grid {
            true => Some(Due::OnGrid),
            false => self.wants_one.then_some(Due::Beside),
        }
    }

    fn show(&mut self, taken: &Taken, due: Due, is_owned: IsOwned<'_>) -> Result<(), WriteError> {
        self.number = taken.number;
        self.wants_one = false;
        if self.has_new && self.frames.len() >= KEY_FOR_NEW_AFTER {
            self.outgoing.start_anew();
        }
        let shown = self.shower.show(&taken.reading, is_owned);
        let (frame, is_key) = self.outgoing.sample(shown.as_ref().unwrap_or(&taken.reading.sample))?;
        if is_key {
            self.first += self.frames.len() as u64;
            self.frames.clear();
            self.has_new = false;
        }
        let (number, is_beside) = (taken.number, due == Due::Beside);
        self.frames.push_back(Shown { frame: frame.into(), number, is_beside });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use cgscope_model::Sample;
    use cgscope_record::{Header, Incoming, Message};

    use super::*;
    use crate::shown::Reading;

    const SECOND: u64 = 1_000_000_000;

    fn taken(number: u64, at_ns: u64, is_on_grid: bool) -> Taken {
        let sample = Sample { unix_ns: number, mono_ns: number, ..Sample::default() };
        Taken {
            reading: Arc::new(Reading { sample, access: Vec::new() }),
            at_ns,
            is_on_grid,
            number,
            at: Instant::now(),
            took: Duration::ZERO,
            changes: 0,
        }
    }

    fn every(interval_ns: u64) -> Kind {
        Kind { view: View::ALL, interval_ns }
    }

    /// The numbers of the Samples that a reader gets now.
    fn read(streams: &Streams, cursor: &mut Cursor) -> Vec<u64> {
        let mut bytes = Outgoing::opening(&Header::default()).unwrap();
        while let Some(shown) = streams.next(cursor) {
            bytes.extend(&*shown.frame);
        }
        let mut incoming = Incoming::open::<String>(bytes.as_slice()).unwrap().unwrap();
        let mut numbers = Vec::new();
        while let Some(Message::Sample(sample)) = incoming.receive::<String>().unwrap() {
            numbers.push(sample.unix_ns);
        }
        numbers
    }

    fn show(streams: &mut Streams, taken: &Taken) {
        streams.show(taken, |_, _| false).unwrap();
    }

    #[test]
    fn each_stream_has_the_samples_of_its_grid() {
        let mut streams = Streams::default();
        let mut seconds = streams.join(every(SECOND), 0).unwrap();
        let mut halves = streams.join(every(SECOND / 2), 0).unwrap();
        assert!(streams.is_new(&seconds));
        show(&mut streams, &taken(1, SECOND / 4, false));
        show(&mut streams, &taken(2, SECOND / 2, true));
        show(&mut streams, &taken(3, SECOND, true));
        show(&mut streams, &taken(4, SECOND * 5 / 4, false));
        show(&mut streams, &taken(5, SECOND * 3 / 2, true));
        // The point between was missed.
        show(&mut streams, &taken(6, SECOND * 5 / 2, true));
        show(&mut streams, &taken(6, SECOND * 5 / 2, true));
        assert_eq!(read(&streams, &mut halves), [1, 2, 3, 5, 6]);
        assert_eq!(read(&streams, &mut seconds), [1, 3, 6]);
    }

    #[test]
    fn whoever_comes_later_reads_since_the_last_key_frame_and_then_shares() {
        let mut streams = Streams::default();
        let mut first = streams.join(every(SECOND), 0).unwrap();
        for number in 1..=12 {
            show(&mut streams, &taken(number, number * SECOND, true));
        }
        assert_eq!(read(&streams, &mut first).len(), 12);
        let mut second = streams.join(every(SECOND), 0).unwrap();
        assert_eq!(read(&streams, &mut second), (1..=12).collect::<Vec<_>>());
        show(&mut streams, &taken(13, 13 * SECOND, true));
        assert_eq!(streams.0[&every(SECOND)].frames.len(), 1, "a key frame for those who came");
        let mut third = streams.join(every(SECOND), 0).unwrap();
        assert_eq!(read(&streams, &mut third), [13]);
        assert_eq!((streams.len(), streams.0[&every(SECOND)].readers), (1, 3));
        for cursor in [first, second, third] {
            streams.leave(&cursor);
        }
        assert!(streams.is_empty());
    }

    #[test]
    fn who_falls_behind_goes_on_at_a_key_frame() {
        let mut streams = Streams::default();
        let mut slow = streams.join(every(SECOND), 0).unwrap();
        show(&mut streams, &taken(1, SECOND, true));
        assert_eq!(read(&streams, &mut slow), [1]);
        for number in 2..=400 {
            show(&mut streams, &taken(number, number * SECOND, true));
        }
        let got = read(&streams, &mut slow);
        assert!(got.len() <= 129 && got.last() == Some(&400), "{got:?}");
    }

    #[test]
    fn one_more_now_is_beside_the_grid_and_is_shown_once() {
        let mut streams = Streams::default();
        let mut cursor = streams.join(every(SECOND), 0).unwrap();
        show(&mut streams, &taken(1, SECOND, true));
        assert_eq!(streams.one_more(&cursor), 1);
        for number in 2..=3 {
            show(&mut streams, &taken(number, SECOND * 5 / 4, false));
        }
        show(&mut streams, &taken(4, SECOND * 2, true));
        assert_eq!(streams.behind(&cursor), 3);
        let all = std::iter::from_fn(|| streams.next(&mut cursor));
        let all: Vec<_> = all.map(|shown| (shown.number, shown.is_beside)).collect();
        assert_eq!(all, [(1, false), (2, true), (4, false)]);
    }

    #[test]
    fn nothing_is_shown_before_those_are_followed_who_were_asked_for() {
        let mut streams = Streams::default();
        let mut cursor = streams.join(every(SECOND), 2).unwrap();
        show(&mut streams, &taken(1, SECOND, true));
        assert!(streams.next(&mut cursor).is_none());
        show(&mut streams, &Taken { changes: 2, ..taken(2, SECOND * 2, true) });
        assert_eq!(streams.next(&mut cursor).map(|shown| shown.number), Some(2));
    }
}
