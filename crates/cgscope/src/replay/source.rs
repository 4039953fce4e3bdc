//! Any interval of a recording, in any order.

use std::path::Path;

use cgscope_model::{Interval, Sample, Selection};
use cgscope_record::open;

use crate::{
    exit::{Error, Result},
    recording,
    replay::time::Moment,
};

/// A recording of which any Sample can be read.
pub trait Source {
    /// When each of its Samples was taken, in their order.
    fn moments(&self) -> Vec<Moment>;

    /// Sample `n`; `None` where damage is in the way. Samples that follow each other are the usual case, and the cheapest one.
    fn sample(&mut self, n: usize) -> Result<Option<Sample>>;
}

/// All Samples, in memory.
pub struct Loaded(Vec<Sample>);

impl Loaded {
    /// Reads the whole file.
    pub fn read(path: &Path) -> Result<Self> {
        let reader = open(path).map_err(|error| Error::could_not_run(error.to_string()))?;
        let samples = reader.map(|sample| sample.map_err(|error| Error::could_not_run(error.to_string())));
        samples.collect::<Result<_>>().map(Self)
    }
}

impl Source for Loaded {
    fn moments(&self) -> Vec<Moment> {
        self.0.iter().map(|sample| Moment { mono_ns: sample.mono_ns, unix_ns: sample.unix_ns }).collect()
    }

    fn sample(&mut self, n: usize) -> Result<Option<Sample>> {
        Ok(self.0.get(n).cloned())
    }
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

    use super::*;
    use crate::{
        recording::Recording,
        top::fixtures::{after, task},
    };

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
        let source = Loaded::read(&path).unwrap();
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
