//! Reads a recording as a series of intervals, with the same functions as the live commands.

use std::{collections::BTreeSet, path::Path};

use cgscope_ledger::Loss;
use cgscope_model::{
    Interval, Mode, Sample, Selection, Steps, doctor::parse_version, findings::Host, printable, units,
};
use cgscope_record::{Ending, FileReader, Header, ReadError, open};
use cgscope_whatif::{answer::Target, history::History};

use crate::exit::{Error, Exit, Result};

pub fn steps(selection: &Selection) -> Result<Steps> {
    Steps::new(selection).map_err(Error::could_not_run)
}

pub fn subject(header: &Header) -> String {
    let command = header.command.as_ref().map(|command| format!("command {}", command.join(" ")));
    command.unwrap_or_else(|| header.selection.words())
}

pub fn host_words(header: &Header) -> String {
    let cpus = units::count(header.cpus.len() as u64, "CPU");
    format!("Linux {} {}, {cpus}", header.kernel_release, header.architecture)
}

pub struct Recording {
    pub reader: FileReader,
    pub file: String,
    pub host: Host,
    /// If set, receives every sample that is read.
    pub history: Option<History>,
    pub steps: Steps,
    pub samples: u64,
    stride: u64,
    worst: Exit,
}

impl Recording {
    pub fn open(path: &Path) -> Result<Self> {
        let reader = open(path).map_err(Error::could_not_run)?;
        Self::of(reader, printable(&path.display().to_string()).to_string())
    }

    fn of(reader: FileReader, file: String) -> Result<Self> {
        let header = &reader.header;
        let cpus = u32::try_from(header.cpus.len()).ok().filter(|cpus| *cpus != 0);
        let whole = header.selection.is_whole_host() && header.command.is_none();
        let host = Host { cpus, whole, kernel: parse_version(&header.kernel_release) };
        let steps = steps(&header.selection)?;
        Ok(Self { reader, file, host, history: None, steps, samples: 0, stride: 1, worst: Exit::Done })
    }

    /// Opens the same recording again at its start. Also works if it was read from a pipe.
    pub fn again(&self) -> Result<Self> {
        let reader = self.reader.again().map_err(|error| self.error(&error))?;
        Self::of(reader, self.file.clone())
    }

    /// Reads the demand of some cgroups, in a second reading: that of all cgroups takes three times as long.
    pub fn demand_of(&self, targets: &[Target]) -> Result<History> {
        let mut again = self.again()?;
        let ids: BTreeSet<u64> =
            targets.iter().flat_map(|target| &target.family).map(|(id, _)| *id).collect();
        let rows = ["limits", "demand"].map(|table| (table, ids.clone()));
        again.reader.only(&["whole", "limits", "cgroups", "demand", "cpus"], &rows);
        let mut history = History::of(ids);
        while let Some(sample) = again.reader.next_without_tasks().map_err(|error| self.error(&error))? {
            history.add(&sample);
        }
        Ok(history)
    }

    /// Makes intervals longer, so that there are at most `intervals`. A long recording is then read much faster, and the sums
    /// stay equal. Has no effect if the selection can change with time (cgroup, name, CPU, node), or in the coarse mode, which
    /// splits throttled time from sample to sample. Both need every sample.
    pub fn at_most(&mut self, intervals: u64) -> Result<()> {
        if !self.reader.header.selection.is_by_id_alone() {
            return Ok(());
        }
        let index = self.reader.index().map_err(|error| self.error(&error))?;
        self.stride = (index.len() as u64).saturating_sub(1).div_ceil(intervals.max(1)).max(1);
        Ok(())
    }

    /// Returns the selected part of the next interval; `None` at the end. After [`Self::at_most`], it spans several samples.
    pub fn next_interval(&mut self) -> Result<Option<Interval>> {
        if self.steps.latest.is_none() {
            let Some(first) = self.next_sample()? else { return Ok(None) };
            if first.mode == Mode::Coarse {
                self.stride = 1;
            } else if self.stride > 1 {
                self.reader.keep_changes();
            }
            self.steps.latest = Some(Box::new(first));
        }
        let interval = if self.stride > 1 {
            self.several()?
        } else {
            self.next_sample()?.and_then(|now| self.steps.step(Box::new(now)))
        };
        let Some(interval) = interval else { return Ok(None) };
        self.worst = self.worst.max(Exit::of_losses(&interval.losses));
        Ok(Some(interval))
    }

    fn next_sample(&mut self) -> Result<Option<Sample>> {
        let next = self.reader.next().transpose().map_err(|error| self.error(&error))?;
        next.iter().for_each(|sample| self.count(sample));
        Ok(next)
    }

    fn count(&mut self, sample: &Sample) {
        self.samples += 1;
        if let Some(history) = &mut self.history {
            history.add(sample);
        }
    }

    fn several(&mut self) -> Result<Option<Interval>> {
        let Some(mut earlier) = self.steps.latest.take() else { return Ok(None) };
        let mut whole = Interval::default();
        let (since_ns, before) = (earlier.mono_ns, std::mem::take(&mut earlier.tasks));
        let mut late = Vec::new();
        for _ in 0..self.stride {
            let next = self.reader.next_without_tasks().map_err(|error| self.error(&error))?;
            let Some(sample) = next else { break };
            self.count(&sample);
            // Keeps new tasks that started before the previous sample. Their figures count only from their first reading on.
            let new = self.reader.take_new_tasks().into_iter();
            late.extend(new.filter(|task| task.counts_from_ns() < earlier.mono_ns));
            whole.append(Interval::between(&earlier, &sample));
            *earlier = sample;
        }
        if whole.duration_ns == 0 {
            return Ok(None);
        }
        if let Some(now) = self.reader.tasks().map_err(|error| self.error(&error))? {
            whole = whole.with_tasks(since_ns, before, late, &now, self.reader.take_exited_tasks());
            earlier.tasks = now;
            self.steps.latest = Some(earlier);
        }
        self.steps.select(&mut whole);
        Ok(Some(whole))
    }

    pub fn error(&self, error: &ReadError) -> Error {
        Error::incomplete(format!("{} {error}", self.file))
    }

    pub fn ending_words(&self) -> String {
        let ending =
            self.reader.ending.as_ref().map_or("the end could not be read".into(), ToString::to_string);
        self.gap_words().into_iter().chain([ending]).collect::<Vec<_>>().join("; ")
    }

    pub fn skipped_words(&self) -> Option<String> {
        let skipped = self.reader.skipped;
        let frames = units::count(skipped, "frame");
        let words = format!("{}: {frames} of kinds that this version does not know were skipped", self.file);
        (skipped != 0).then_some(words)
    }

    /// Describes the first three gaps so far, and returns the number of further gaps.
    fn gap_words(&self) -> Vec<String> {
        const FEW: usize = 3;
        let gaps = &self.reader.gaps;
        let mut words: Vec<String> = gaps.iter().take(FEW).map(ToString::to_string).collect();
        let more = gaps.len().saturating_sub(FEW) as u64;
        words.extend((more != 0).then(|| format!("and gaps in {}", units::count(more, "more place"))));
        words
    }

    /// Returns whether the file was read up to the writer's end frame, and nothing is missing.
    pub fn is_whole(&self) -> bool {
        matches!(self.reader.ending, Some(Ending::Clean(_)))
            && self.reader.losses().nonzero().next().is_none()
            && self.reader.skipped == 0
    }

    /// Prints on standard error what is missing, and returns the exit code.
    pub fn finish(&self) -> Exit {
        let unreadable = self.reader.losses().get(Loss::SamplesUnreadable) != 0;
        let worst = if unreadable { Exit::Incomplete } else { self.worst };
        self.skipped_words().iter().for_each(|words| say!("cgscope: {words}"));
        let ending = self.reader.ending.as_ref();
        let is_clean = matches!(ending, Some(Ending::Clean(_)));
        let ending = ending.filter(|_| !is_clean).map(ToString::to_string);
        let missing = self.gap_words().into_iter().chain(ending);
        missing.for_each(|missing| say!("cgscope: {}: {missing}", self.file));
        if is_clean { worst } else { Exit::Incomplete }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use cgscope_model::{
        ByCause, Cause, ExitedReading, Hist, PairReading, TaskReading, Totals, table::interval::Appended,
    };
    use cgscope_record::{FileWriter, Reason};
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns a task with `waits` waits of a microsecond. It changes its cgroup every 10 s.
    fn task(serial: u64, born_s: u64, waits: u64) -> TaskReading {
        let totals = Totals {
            waits,
            wait_ns: waits * 1_000,
            on_cpu_ns: waits * 7,
            by_cause: ByCause::only(Cause::Kernel, waits * 1_000),
            ..Totals::default()
        };
        TaskReading {
            serial,
            tid: serial as u32,
            tgid: serial as u32 / 2,
            comm: "t".into(),
            start_ns: born_s * SECOND + 1,
            moved_ns: None,
            cgroup_id: 1 + (serial + (born_s + waits) / 10) % 2,
            max_ns: 1_000,
            totals,
            hist: Arc::new(Hist::of_cause(Cause::Kernel, (0..waits).map(|_| 1_000))),
            ..TaskReading::default()
        }
    }

    /// Returns a sample for each second. A life is the start of a task, its length, and the time until its first reading, in
    /// seconds. Every task waits once a second.
    fn samples(lives: &[(u64, u64, u64)], seconds: u64) -> Vec<Sample> {
        let at = |now: u64| {
            let is_there = |(_, (born, lived, hidden)): &(u64, &(u64, u64, u64))| {
                *born + hidden <= now && now < born + lived
            };
            let there = (0u64..).zip(lives).filter(is_there);
            let went = lives.iter().filter(|(born, lived, _)| born + lived <= now).count() as u64;
            Sample {
                unix_ns: now * SECOND,
                mono_ns: now * SECOND + 2,
                tasks: there.map(|(n, (born, ..))| Arc::new(task(n + 1, *born, now - born + 1))).collect(),
                exited: vec![ExitedReading {
                    accounts: None,
                    cgroup_id: 1,
                    tasks: went,
                    max_ns: 5,
                    totals: Totals { on_cpu_ns: went * 3, ..Totals::default() },
                    hist: Arc::default(),
                }],
                cgroups: vec![(1, "/a".into()), (2, "/a/b".into())],
                pairs: vec![PairReading {
                    victim: 1,
                    culprit: 2,
                    blame: cgscope_model::Blame::Ran,
                    tid: 0,
                    comm: "".into(),
                    // The pair is evicted from time to time, and then counts from 0 again.
                    ns: 5 * (now % 7),
                }],
                ..Sample::default()
            }
        };
        (0..seconds).map(at).collect()
    }

    struct File(PathBuf);

    impl File {
        fn of(samples: &[Sample]) -> Self {
            let path = std::env::temp_dir().join(format!("cgscope-{}-steps.rec", std::process::id()));
            let mut file = FileWriter::create(&path, &Header::default()).unwrap();
            for sample in samples {
                file.sample(sample).unwrap();
            }
            file.end(0, Reason::Finished).unwrap();
            Self(path)
        }

        fn whole(&self, at_most: Option<u64>) -> (u64, Interval) {
            let mut recording = Recording::open(&self.0).unwrap();
            if let Some(at_most) = at_most {
                recording.at_most(at_most).unwrap();
            }
            let (mut count, mut whole) = (0, Appended::default());
            while let Some(interval) = recording.next_interval().unwrap() {
                count += 1;
                whole.push(interval);
            }
            assert!(matches!(recording.reader.ending, Some(Ending::Clean(_))));
            (count, whole.into_interval())
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_few_long_intervals_have_the_same_sums_as_all_intervals(
            lives in prop::collection::vec((0u64..40, 1u64..50, 0u64..3), 0..12),
            seconds in 2u64..60,
            at_most in 1u64..8,
        ) {
            let samples = samples(&lives, seconds);
            let file = File::of(&samples);
            let (all, exact) = file.whole(None);
            let (few, whole) = file.whole(Some(at_most));
            prop_assert_eq!(all, seconds - 1);
            prop_assert!(few <= at_most);
            prop_assert_eq!(&whole.pairs, &exact.pairs);
            prop_assert_eq!(whole.duration_ns, exact.duration_ns);
            let sums = |interval: &Interval| {
                // An exited task that did nothing is listed only in an interval between two consecutive samples.
                let by = interval.by_cgroup().into_iter().filter(|(_, group)| group.totals.waits != 0);
                let by = by.map(|(path, group)| (path, group.totals, group.wait.hist));
                let tasks: Vec<_> = interval.tasks.iter().filter(|task| task.totals.waits != 0).collect();
                (by.collect::<Vec<_>>(), tasks.iter().map(|task| (task.reading.serial, task.totals)).collect::<Vec<_>>())
            };
            prop_assert_eq!(sums(&whole), sums(&exact));
        }
    }
}
