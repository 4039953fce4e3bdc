//! Reads intervals of a recording on a separate thread: first the requested interval, then earlier ones.

use std::sync::{
    Arc,
    mpsc::{self, RecvError, TryRecvError},
};

use cgscope_model::{Interval, Sample};
use cgscope_record::Index;
use cgscope_view::{history::Frame, replay::player::Moment};
use tokio::sync::mpsc as channel;

use crate::{
    exit::{Error, Result, spawn},
    recording::Recording,
};

/// Number of intervals to read before the target of a jump, for figures over time: a minute at the default interval.
const BEFORE: usize = 60;

/// Maximum number of skipped intervals to read: one or two seconds of playback at the highest speed.
const SKIPPED: usize = 128;

pub enum Read {
    /// An interval and its number; `None` if the interval is damaged.
    Interval(usize, Result<Option<Arc<Interval>>>),
    /// Skipped intervals in order, and the number of the first one.
    Skipped(usize, Vec<Frame>),
    /// The intervals before the interval with this number, in order.
    Before(usize, Vec<Frame>),
}

/// Starts a thread that receives interval numbers and reads the intervals. The thread ends when either channel is closed.
pub fn start(intervals: Intervals) -> Result<(mpsc::Sender<usize>, channel::UnboundedReceiver<Read>)> {
    let (wanted, receive) = mpsc::channel();
    let (send, reads) = channel::unbounded_channel();
    // The error of the thread is ignored: it only means that a channel was closed.
    spawn(move || IntervalReader { intervals, receive, send, last: None, before: None }.run())?;
    Ok((wanted, reads))
}

struct IntervalReader {
    intervals: Intervals,
    receive: mpsc::Receiver<usize>,
    send: channel::UnboundedSender<Read>,
    last: Option<usize>,
    before: Option<Before>,
}

/// Progress of reading the intervals before interval `of`.
struct Before {
    of: usize,
    next: usize,
    frames: Vec<Frame>,
}

impl IntervalReader {
    fn run(mut self) -> Result<(), RecvError> {
        loop {
            if let Some(wanted) = self.wanted()? {
                self.read(wanted)?;
            } else if let Some(before) = self.before.take() {
                self.read_before(before)?;
            }
        }
    }

    /// Returns the latest request, because a held key sends many. If there is nothing else to do, waits for a request.
    fn wanted(&mut self) -> Result<Option<usize>, RecvError> {
        let first = match self.receive.try_recv() {
            Ok(first) => first,
            Err(TryRecvError::Empty) if self.before.is_some() => return Ok(None),
            Err(TryRecvError::Empty) => self.receive.recv()?,
            Err(TryRecvError::Disconnected) => return Err(RecvError),
        };
        Ok(Some(self.receive.try_iter().last().unwrap_or(first)))
    }

    fn read(&mut self, n: usize) -> Result<(), RecvError> {
        let last = self.last.replace(n);
        let near = last.filter(|last| *last < n && n - last <= SKIPPED);
        if let Some(last) = near {
            // Also reads skipped intervals, so that figures over time have no gaps at a high speed.
            let skipped = (last + 1..n).map_while(|k| self.intervals.read(k).ok()?);
            let frames: Vec<Frame> = skipped.map(|one| Frame::new(&one)).collect();
            if frames.len() == n - last - 1 && !frames.is_empty() {
                self.send.send(Read::Skipped(last + 1, frames)).map_err(|_| RecvError)?;
            }
        } else {
            let next = n.saturating_sub(BEFORE);
            self.before = (n != 0).then(|| Before { of: n, next, frames: Vec::new() });
        }
        let interval = self.intervals.read(n).map(|interval| interval.map(Arc::new));
        self.send.send(Read::Interval(n, interval)).map_err(|_| RecvError)
    }

    /// Reads one more interval. If it cannot be read, drops all earlier ones.
    fn read_before(&mut self, mut before: Before) -> Result<(), RecvError> {
        match self.intervals.read(before.next) {
            Ok(Some(interval)) => before.frames.push(Frame::new(&interval)),
            Ok(None) | Err(_) => before.frames.clear(),
        }
        before.next += 1;
        if before.next < before.of {
            self.before = Some(before);
            return Ok(());
        }
        self.send.send(Read::Before(before.of, before.frames)).map_err(|_| RecvError)
    }
}

/// The intervals between consecutive samples of a file. If they are read in order, each sample is read only once.
pub struct Intervals {
    recording: Recording,
    index: Index,
    /// The number of the sample that the reader returns next, if known.
    next: Option<usize>,
    /// The number of the latest sample in the recording's `steps`.
    last: Option<usize>,
}

impl Intervals {
    pub fn new(mut recording: Recording) -> Result<Self> {
        let index = recording.reader.index();
        let index = index.map_err(|error| Error::could_not_run(format!("{} {error}", recording.file)))?;
        Ok(Self { recording, index, next: Some(0), last: None })
    }

    pub fn moments(&self) -> Vec<Moment> {
        let entries = self.index.iter();
        entries.map(|entry| Moment { mono_ns: entry.mono_ns, unix_ns: entry.unix_ns }).collect()
    }

    /// Returns the selected part of the interval from sample `n` to the next sample; `None` if one of them is damaged.
    pub fn read(&mut self, n: usize) -> Result<Option<Interval>> {
        if self.last.take() != Some(n) {
            let Some(earlier) = self.sample(n)? else { return Ok(None) };
            self.recording.steps.latest = Some(Box::new(earlier));
        }
        let Some(now) = self.sample(n + 1)? else { return Ok(None) };
        self.last = Some(n + 1);
        Ok(self.recording.steps.step(Box::new(now)))
    }

    /// Returns sample `n`; `None` if it is damaged.
    fn sample(&mut self, n: usize) -> Result<Option<Sample>> {
        let Some(entry) = self.index.get(n) else { return Ok(None) };
        let expected_ns = entry.mono_ns;
        let reader = &mut self.recording.reader;
        let sought = if self.next.take() == Some(n) { Ok(()) } else { reader.seek(&self.index, n) };
        let sample = sought.and_then(|()| reader.next().transpose());
        let sample = sample.map_err(|error| self.recording.error(&error))?;
        // The reader skips a damaged sample, and returns the next one instead.
        let sample = sample.filter(|sample| sample.mono_ns == expected_ns);
        self.next = sample.is_some().then_some(n + 1);
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cgscope_model::Selection;
    use cgscope_record::{FileWriter, Header, Reason};

    use cgscope_made_up::small::{after, task};

    use super::*;

    /// Returns a sample whose counters increase with `n`: waits, wait time and time on a CPU.
    fn sample(n: u64) -> Sample {
        let tasks = (1..=4).map(|tid| {
            let mut task = task(tid, &vec![u64::from(tid) * 1_000; n as usize * 3]);
            task.totals.on_cpu_ns = n * 500_000_000;
            task
        });
        let sample = after(tasks.collect());
        let (mono_ns, unix_ns) = (1_000_000_000 * (n + 1), 1_700_000_000_000_000_000 + n);
        Sample { mono_ns, unix_ns, pairs: Vec::new(), ..sample }
    }

    #[test]
    fn intervals_read_in_any_order_equal_those_of_a_report() {
        let path = std::env::temp_dir().join(format!("cgscope-replay-{}.rec", std::process::id()));
        let selection = Selection { comm: Some("task-[123]".into()), ..Selection::default() };
        let header = Header { selection, ..Header::default() };
        let mut writer = FileWriter::create(&path, &header).unwrap();
        (0..6).for_each(|n| writer.sample(&sample(n)).unwrap());
        writer.end(0, Reason::Finished).unwrap();

        let mut recording = Recording::open(&path).unwrap();
        let reported: Vec<Interval> = std::iter::from_fn(|| recording.next_interval().unwrap()).collect();
        let mut intervals = Intervals::new(Recording::open(&path).unwrap()).unwrap();
        assert_eq!(intervals.moments().len(), 6);
        for n in [0, 1, 2, 4, 3, 4, 0, 0] {
            assert_eq!(intervals.read(n).unwrap().as_ref(), Some(&reported[n]), "{n}");
            assert_eq!(reported[n].tasks.len(), 3);
        }
        assert_eq!(intervals.read(5).unwrap(), None);
        fs::remove_file(&path).unwrap();
    }
}
