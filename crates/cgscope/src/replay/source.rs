//! Any interval of a recording, in any order.

use std::path::Path;

use cgscope_model::{Interval, Sample, Selection, printable};
use cgscope_record::{FileReader, Index, ReadError, open};

use cgscope_view::replay::time::Moment;

use crate::{
    exit::{Error, Result},
    recording,
};

/// A recording of which any Sample can be read.
pub trait Source {
    /// When each of its Samples was taken, in their order.
    fn moments(&self) -> Vec<Moment>;

    /// Sample `n`; `None` where damage is in the way. Samples that follow each other are the usual case, and the cheapest one.
    fn sample(&mut self, n: usize) -> Result<Option<Sample>>;
}

/// A file, and where its Samples are: one at a time is in memory.
pub struct Indexed {
    reader: FileReader,
    index: Index,
    file: String,
    /// The Sample that the reader gives next.
    next: Option<usize>,
}

impl Indexed {
    /// Goes over the file without unpacking it.
    pub fn open(path: &Path) -> Result<Self> {
        let mut reader = open(path).map_err(|error| Error::could_not_run(error.to_string()))?;
        let file = printable(&path.display().to_string()).to_string();
        let index = reader.index().map_err(|error| Error::could_not_run(format!("{file} {error}")))?;
        Ok(Self { reader, index, file, next: Some(0) })
    }
}

impl Source for Indexed {
    fn moments(&self) -> Vec<Moment> {
        let entries = self.index.entries().iter();
        entries.map(|entry| Moment { mono_ns: entry.mono_ns, unix_ns: entry.unix_ns }).collect()
    }

    fn sample(&mut self, n: usize) -> Result<Option<Sample>> {
        let Some(entry) = self.index.entries().get(n) else { return Ok(None) };
        let expected_ns = entry.mono_ns;
        if self.next.take() != Some(n) {
            self.reader.seek(&self.index, n).map_err(|error| unreadable(&self.file, &error))?;
        }
        let sample = self.reader.next().transpose().map_err(|error| unreadable(&self.file, &error))?;
        // One that is damaged is left out, and the next one comes in its place.
        let sample = sample.filter(|sample| sample.mono_ns == expected_ns);
        self.next = sample.is_some().then_some(n + 1);
        Ok(sample)
    }
}

fn unreadable(file: &str, error: &ReadError) -> Error {
    Error::incomplete(format!("{file} {error}"))
}

/// The intervals between each two Samples.
pub struct Intervals<S> {
    source: S,
    selection: Selection,
    /// The Sample read last, and its number: where intervals follow each other, each needs but one more.
    last: Option<(usize, Sample)>,
}

impl<S: Source> Intervals<S> {
    /// Of this recording, without what the selection leaves out.
    pub fn new(source: S, selection: Selection) -> Self {
        Self { source, selection, last: None }
    }

    /// The interval from Sample `n` to the next; `None` where one of them cannot be read.
    pub fn read(&mut self, n: usize) -> Result<Option<Interval>> {
        let earlier = match self.last.take() {
            Some((number, sample)) if number == n => Some(sample),
            _ => self.source.sample(n)?,
        };
        let Some(earlier) = earlier else { return Ok(None) };
        let Some(now) = self.source.sample(n + 1)? else { return Ok(None) };
        let interval = recording::between(&earlier, &now, &self.selection)?;
        self.last = Some((n + 1, now));
        Ok(Some(interval))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cgscope_model::Interval;
    use cgscope_record::{FileWriter, Header, Reason};

    use cgscope_made_up::small::{after, task};

    use super::*;
    use crate::recording::Recording;

    /// What rises in a history: waits, their sum and the time on a CPU.
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
    fn in_any_order_they_are_those_that_a_report_has() {
        let path = std::env::temp_dir().join(format!("cgscope-replay-{}.rec", std::process::id()));
        let selection = Selection { comm: Some("task-[123]".into()), ..Selection::default() };
        let header = Header { selection: selection.clone(), ..Header::default() };
        let mut writer = FileWriter::create(&path, &header).unwrap();
        (0..6).for_each(|n| writer.sample(&sample(n)).unwrap());
        writer.end(0, Reason::Finished).unwrap();

        let mut recording = Recording::open(&path).unwrap();
        let reported: Vec<Interval> = std::iter::from_fn(|| recording.next_interval().unwrap()).collect();
        let source = Indexed::open(&path).unwrap();
        assert_eq!(source.moments().len(), 6);
        let mut intervals = Intervals::new(source, selection);
        for n in [0, 1, 2, 4, 3, 4, 0, 0] {
            assert_eq!(intervals.read(n).unwrap().as_ref(), Some(&reported[n]), "{n}");
            assert_eq!(reported[n].tasks.len(), 3);
        }
        assert_eq!(intervals.read(5).unwrap(), None);
        fs::remove_file(&path).unwrap();
    }
}
