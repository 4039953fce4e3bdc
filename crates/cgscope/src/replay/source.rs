//! The intervals of a recording in any order.

use std::path::Path;

use cgscope_model::{Interval, Sample, printable};
use cgscope_record::{FileReader, Index, open};
use cgscope_view::replay::time::Moment;

use crate::{
    exit::{Error, Result},
    recording,
};

/// The intervals between each two Samples of a file. If they are read in order, each needs only one more Sample.
pub struct Intervals {
    reader: FileReader,
    index: Index,
    file: String,
    /// The Sample that the reader reads next.
    next: Option<usize>,
    /// The Sample read last, and its number.
    last: Option<(usize, Sample)>,
}

impl Intervals {
    pub fn open(path: &Path) -> Result<Self> {
        let mut reader = open(path).map_err(|error| Error::could_not_run(error.to_string()))?;
        let file = printable(&path.display().to_string()).to_string();
        let index = reader.index().map_err(|error| Error::could_not_run(format!("{file} {error}")))?;
        Ok(Self { reader, index, file, next: Some(0), last: None })
    }

    pub fn moments(&self) -> Vec<Moment> {
        let entries = self.index.entries().iter();
        entries.map(|entry| Moment { mono_ns: entry.mono_ns, unix_ns: entry.unix_ns }).collect()
    }

    /// The selected part of the interval from Sample `n` to the next one. `None`: one of the two is damaged.
    pub fn read(&mut self, n: usize) -> Result<Option<Interval>> {
        let earlier = match self.last.take() {
            Some((number, sample)) if number == n => Some(sample),
            _ => self.sample(n)?,
        };
        let Some(earlier) = earlier else { return Ok(None) };
        let Some(now) = self.sample(n + 1)? else { return Ok(None) };
        let interval = recording::between(&earlier, &now, &self.reader.header().selection)?;
        self.last = Some((n + 1, now));
        Ok(Some(interval))
    }

    /// Sample `n`. `None`: it is damaged.
    fn sample(&mut self, n: usize) -> Result<Option<Sample>> {
        let Some(entry) = self.index.entries().get(n) else { return Ok(None) };
        let expected_ns = entry.mono_ns;
        let unreadable = |error| Error::incomplete(format!("{} {error}", self.file));
        if self.next.take() != Some(n) {
            self.reader.seek(&self.index, n).map_err(unreadable)?;
        }
        let sample = self.reader.next().transpose().map_err(unreadable)?;
        // The reader skips a damaged Sample, and reads the next one in its place.
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
        let header = Header { selection, ..Header::default() };
        let mut writer = FileWriter::create(&path, &header).unwrap();
        (0..6).for_each(|n| writer.sample(&sample(n)).unwrap());
        writer.end(0, Reason::Finished).unwrap();

        let mut recording = Recording::open(&path).unwrap();
        let reported: Vec<Interval> = std::iter::from_fn(|| recording.next_interval().unwrap()).collect();
        let mut intervals = Intervals::open(&path).unwrap();
        assert_eq!(intervals.moments().len(), 6);
        for n in [0, 1, 2, 4, 3, 4, 0, 0] {
            assert_eq!(intervals.read(n).unwrap().as_ref(), Some(&reported[n]), "{n}");
            assert_eq!(reported[n].tasks.len(), 3);
        }
        assert_eq!(intervals.read(5).unwrap(), None);
        fs::remove_file(&path).unwrap();
    }
}
