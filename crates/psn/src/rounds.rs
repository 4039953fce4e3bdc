//! Rounds: all threads are read repeatedly, until the time is over or the caller stops. The result is a table as psn prints it, or
//! one JSON object.

use std::{
    io::{self, Write},
    sync::mpsc,
    time::{Duration, Instant},
};

use cgscope_collect::{Failure, clock};
use cgscope_model::{
    Losses, Mode, Names,
    units::{count, duration},
};
use cgscope_view::text;
use serde_json::{Value, json};

use crate::{GroupBy, GroupCell, GroupRow, Tally, ThreadFilter, ThreadReader, ThreadReading};

const DEFAULT_DURATION: Duration = Duration::from_secs(5);
/// Reading takes at most 1 / `SHARE` of the time. Under SCHED_FIFO, nothing else limits the CPU time of a thread.
const SHARE: u64 = 10;
/// Maximum length of a round under SCHED_FIFO. A longer round would make audio and networking miss their deadlines.
const LONGEST_AT_ONCE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    period: Duration,
    duration: Option<Duration>,
}

impl Schedule {
    /// Creates a schedule of `hz` rounds a second. Without a duration, the schedule ends with the command, or after the
    /// default duration if there is no command.
    pub fn new(hz: f64, duration: Option<Duration>, has_command: bool) -> Self {
        let duration = duration.or((!has_command).then_some(DEFAULT_DURATION));
        Self { period: Duration::from_secs_f64(1.0 / hz), duration }
    }

    /// Returns the time from the start until a round is due, at a random moment of its period. Rounds at equal distances would be
    /// in step with events of the same rate, such as quotas that are refilled every 100 ms.
    fn due(self, round: u64, random: f64) -> Duration {
        self.period.mul_f64(round as f64 + random)
    }

    /// Returns the number of periods in a time.
    fn periods(self, time: Duration) -> f64 {
        time.as_secs_f64() / self.period.as_secs_f64()
    }

    /// Returns the first round, not before `round`, at which reading has used only its share of the time.
    fn affordable(self, round: u64, reading: Duration) -> u64 {
        let needed_ns = reading.as_nanos() * u128::from(SHARE);
        round.max(needed_ns.div_ceil(self.period.as_nanos().max(1)) as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    Finished,
    TargetExited,
    Stopped,
}

#[derive(Debug)]
pub struct Rounds {
    pub tally: Tally,
    /// The rows of the table, with the most samples first.
    pub(crate) rows: Vec<GroupRow>,
    pub(crate) all_states: bool,
    pub(crate) mode: Mode,
    pub end: RoundEnd,
    pub(crate) start_unix_ns: u64,
    pub(crate) took: Duration,
    /// Number of rounds that the schedule has in this time.
    pub(crate) expected: u64,
    /// Number of expected rounds that were skipped to keep reading within its share of the time.
    pub(crate) skipped: u64,
    /// Number of threads that were read, summed over all rounds.
    pub(crate) looked_at: u64,
    /// CPU time of cgscope from the first round to the end of the last, ns. Includes time in the kernel and wakeups.
    pub(crate) cpu_ns: u64,
    pub losses: Losses,
    /// Why kernel functions or processes have no names, if names are requested.
    pub nameless: Option<Failure>,
}

pub struct Sampling {
    reader: ThreadReader,
    tally: Tally,
    filter: ThreadFilter,
    /// The readings of the current round. The buffer is reused.
    readings: Vec<ThreadReading>,
    looked_at: u64,
    /// CPU time of cgscope before the first round, ns.
    begun_ns: u64,
    /// CPU time of cgscope from the first round to the end of the last, ns. Includes wakeups. Do not read this time when a round
    /// begins: the kernel would update cgscope's run time, and the iterator could no longer recognize the thread that cgscope has
    /// displaced from the CPU.
    cpu_ns: u64,
}

impl Sampling {
    pub fn new(reader: ThreadReader, tally: Tally, filter: ThreadFilter) -> Self {
        Self { reader, tally, filter, readings: Vec::new(), looked_at: 0, begun_ns: 0, cpu_ns: 0 }
    }

    /// Reads rounds until the time is over or `stop` receives a message. Call this on a separate thread. Timers of an event loop
    /// wake on a grid of 1 ms, in step with the kernel's ticks. A second wakeup would also change which thread is on the CPU.
    pub fn run(mut self, schedule: Schedule, stop: &mpsc::Receiver<()>) -> Result<Rounds, Failure> {
        let (start, start_unix_ns) = (Instant::now(), clock::unix_ns());
        self.begun_ns = clock::process_cpu_ns();
        let mut random = oorandom::Rand64::new(start_unix_ns.into());
        let (mut round, mut skipped) = (0, 0);
        let mut at_once = RunAtOnce::default();
        at_once.keep(true);
        let end = loop {
            let due = schedule.due(round, random.rand_float());
            let is_last = schedule.duration.is_some_and(|duration| due >= duration);
            let until = if is_last { schedule.duration.unwrap_or(due) } else { due };
            if stop.recv_timeout(until.saturating_sub(start.elapsed())).is_ok() {
                break RoundEnd::Stopped;
            }
            let before_ns = self.cpu_ns;
            // Read at least one round, even if the time is very short.
            if (!is_last || self.tally.rounds == 0) && self.read()? {
                break RoundEnd::TargetExited;
            }
            if is_last {
                break RoundEnd::Finished;
            }
            at_once.keep(Duration::from_nanos(self.cpu_ns - before_ns) <= LONGEST_AT_ONCE);
            let next = (round + 1).max(schedule.periods(start.elapsed()) as u64);
            round = schedule.affordable(next, Duration::from_nanos(self.cpu_ns));
            skipped += round - next;
        };
        at_once.keep(false);
        let took = start.elapsed();
        // If the rounds were stopped, the last round might have been due after the end.
        let least = if end == RoundEnd::Finished { 1 } else { self.tally.rounds };
        let expected = (schedule.periods(took).round() as u64).max(least);
        Ok(Rounds {
            rows: self.tally.rows(&self.reader),
            all_states: self.reader.wanted.all_states,
            mode: self.reader.mode,
            end,
            start_unix_ns,
            took,
            expected,
            // The last skipped rounds might have been due after the end.
            skipped: skipped.min(expected.saturating_sub(self.tally.rounds)),
            tally: self.tally,
            looked_at: self.looked_at,
            cpu_ns: self.cpu_ns,
            losses: self.reader.losses.clone(),
            nameless: self.reader.nameless(),
        })
    }

    /// Reads one round. Returns whether all selected threads have exited.
    fn read(&mut self) -> Result<bool, Failure> {
        self.readings.clear();
        let read = self.reader.read(|reading| self.readings.push(*reading))?;
        let unknown = self.filter.unknown_cgroups(&self.readings);
        if !unknown.is_empty() {
            self.reader.learn_cgroups(unknown);
        }
        let is_open = self.filter.is_open();
        let wanted =
            self.readings.iter().filter(|reading| is_open || self.filter.wants(reading, &self.reader));
        wanted.for_each(|reading| self.tally.add(reading));
        self.tally.rounds += 1;
        self.looked_at += read.threads;
        self.cpu_ns = clock::process_cpu_ns() - self.begun_ns;
        Ok(read.has_target_exited)
    }
}

/// Makes this thread run as soon as it wakes (SCHED_FIFO), if the host allows it. Without SCHED_FIFO, this thread waits until the
/// thread on the CPU blocks or has used up its time slice. The other thread is then off the CPU when it is read. On a busy host,
/// a thread that was on its CPU for 55 % of the time was seen there in only 45 % of the rounds.
#[derive(Default)]
struct RunAtOnce {
    is_kept: bool,
}

impl RunAtOnce {
    /// Sets whether the next round is read under SCHED_FIFO. New threads and processes do not inherit it. A refusal changes
    /// nothing.
    fn keep(&mut self, is_kept: bool) {
        if self.is_kept == is_kept {
            return;
        }
        self.is_kept = is_kept;
        let at_once = (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        let (policy, priority) = if is_kept { at_once } else { (libc::SCHED_OTHER, 0) };
        // SAFETY: a zeroed `sched_param` is valid; the call changes only this thread, and reads only our structure.
        unsafe {
            let mut parameters: libc::sched_param = std::mem::zeroed();
            parameters.sched_priority = priority;
            libc::sched_setscheduler(0, policy, &parameters);
        }
    }
}

impl Rounds {
    /// Returns a sentence about skipped rounds, and what to do; `None` if no round was skipped.
    pub fn skipped_words(&self) -> Option<String> {
        (self.skipped != 0).then(|| {
            let (skipped, expected, share) = (self.skipped, count(self.expected, "sample"), 100 / SHARE);
            let a_round = duration(self.cpu_ns / self.tally.rounds.max(1));
            format!(
                "{skipped} of {expected} were skipped: one takes {a_round}, and reading may take at most {share}% of the \
                 time (use a lower --hz to skip none)"
            )
        })
    }

    /// Returns a sentence about samples without names; `None` if all samples have names.
    pub fn nameless_words(&self) -> Option<String> {
        (self.tally.nameless != 0).then(|| {
            format!(
                "{} of all samples are in rows without names, because there were more than 50,000 groups (use fewer columns, or \
                 select a part of the host)",
                self.tally.nameless
            )
        })
    }

    /// Writes the table as psn prints it, followed by figures about the rounds. `names` has the displayed names of cgroups.
    pub fn write_text(&self, names: &Names, out: &mut impl Write) -> io::Result<()> {
        let columns = &self.tally.columns;
        let titles = ["samples", "avg_threads"].into_iter().chain(columns.iter().map(|column| column.name()));
        let titles = titles.map(str::to_owned).collect();
        let rows = self.rows.iter().map(|row| self.cells(row, names));
        let lines: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
        let width_of = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
        let widths: Vec<usize> = (0..columns.len() + 2).filter_map(width_of).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                let is_number = at.checked_sub(2).is_none_or(|at| columns[at].is_number());
                if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            format!(" {}", cells.collect::<Vec<_>>().join(" | ")).trim_end().to_owned()
        };
        let width = widths.iter().sum::<usize>() + 3 * (widths.len() - 1) + 2;
        let title = if self.all_states { "Threads" } else { "Active Threads" };
        writeln!(out, "=== {title} {}\n", "=".repeat(width.saturating_sub(title.len() + 5)))?;
        if lines.len() == 1 {
            let active = "no active thread was seen; use -a to see all threads";
            writeln!(out, "{}", if self.all_states { "no thread was seen" } else { active })?;
        } else {
            writeln!(out, "{}\n{}", line(&lines[0]), "-".repeat(width))?;
            lines[1..].iter().try_for_each(|cells| writeln!(out, "{}", line(cells)))?;
        }
        self.write_foot(out)?;
        out.flush()
    }

    fn cells(&self, row: &GroupRow, names: &Names) -> Vec<String> {
        let cell = |(column, cell): (&GroupBy, &Option<GroupCell>)| match cell {
            Some(GroupCell::Text(path)) if *column == GroupBy::Cgroup => names.of(path).into(),
            None => "-".to_owned(),
            Some(GroupCell::Number(number)) => number.to_string(),
            Some(GroupCell::State(state)) => state.words().to_owned(),
            Some(GroupCell::Text(text)) => text.to_string(),
        };
        let counts = [row.samples.to_string(), format!("{:.2}", self.per_round(row.samples))];
        counts.into_iter().chain(self.tally.columns.iter().zip(&row.cells).map(cell)).collect()
    }

    fn write_foot(&self, out: &mut impl Write) -> io::Result<()> {
        let (processes, threads) = (self.tally.processes.len(), self.tally.threads.len());
        let read = self.per_round(self.looked_at);
        let own_time = duration(self.per_round(self.cpu_ns) as u64);
        let mode = if self.mode == Mode::Bpf { "bpf" } else { "coarse" };
        writeln!(out, "\nsamples: {} (expected: {})", self.tally.rounds, self.expected)?;
        writeln!(
            out,
            "total processes: {processes}, threads: {threads}; threads read per sample: {read:.0}"
        )?;
        writeln!(
            out,
            "runtime: {}, own CPU time: {own_time} per sample; {}; mode: {mode}",
            duration(self.took.as_nanos() as u64),
            text::loss_line(&self.losses)
        )
    }

    /// Writes one JSON object with the schema `cgscope.sample/1`.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.tally.columns.iter().map(|column| column.name());
        let groups = self.rows.iter().map(|row| self.group(row));
        let losses = self.losses.nonzero().map(|(loss, count)| (loss.name(), count));
        let object = json!({
            "schema": "cgscope.sample/1",
            "mode": self.mode,
            "start_unix_ns": self.start_unix_ns,
            "duration_ns": self.took.as_nanos() as u64,
            "rounds": self.tally.rounds,
            "rounds_expected": self.expected,
            "all_states": self.all_states,
            "processes": self.tally.processes.len(),
            "threads": self.tally.threads.len(),
            "threads_looked_at": self.looked_at,
            "columns": columns.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
            "losses": losses.collect::<Value>(),
            "self": { "cpu_ns": self.cpu_ns },
        });
        serde_json::to_writer(&mut *out, &object)?;
        writeln!(out)?;
        out.flush()
    }

    fn per_round(&self, sum: u64) -> f64 {
        if self.tally.rounds == 0 { 0.0 } else { sum as f64 / self.tally.rounds as f64 }
    }

    fn group(&self, row: &GroupRow) -> Value {
        let average = self.per_round(row.samples);
        let counts = [("samples", json!(row.samples)), ("avg_threads", json!(average))];
        let cells = row.cells.iter().map(|cell| match cell {
            None => Value::Null,
            Some(GroupCell::Number(number)) => json!(number),
            Some(GroupCell::State(state)) => json!(state.name()),
            Some(GroupCell::Text(text)) => json!(&**text),
        });
        let names = self.tally.columns.iter().map(|column| column.name());
        counts.into_iter().chain(names.zip(cells)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_due_within_its_period() {
        let pace = Schedule::new(20.0, None, true);
        let mut random = oorandom::Rand64::new(7);
        let mut parts = [0; 10];
        for round in 0..1_000 {
            let due = pace.due(round, random.rand_float());
            assert_eq!(pace.periods(due) as u64, round);
            let part = due.as_secs_f64() * 20.0 - round as f64;
            parts[(part * 10.0) as usize] += 1;
        }
        assert!(parts.iter().all(|count| (60..140).contains(count)), "{parts:?}");
    }

    #[test]
    fn reading_takes_at_most_a_tenth_of_the_time() {
        let pace = Schedule::new(20.0, None, true);
        // Each case: ms per reading, and how many of 1,000 rounds are read. 25 ms are a tenth of five periods.
        for (look_ms, expected) in [(4, 1_000), (5, 1_000), (6, 833), (25, 200), (700, 8)] {
            let (mut round, mut looks, mut looking) = (0, 0, Duration::ZERO);
            while round < 1_000 {
                looks += 1;
                looking += Duration::from_millis(look_ms);
                round = pace.affordable(round + 1, looking);
                assert!(looking <= pace.period.mul_f64(round as f64 / 10.0 + 1e-6), "{look_ms} {round}");
            }
            assert_eq!(looks, expected, "{look_ms} ms");
        }
    }

    #[test]
    fn skipped_samples_are_reported() {
        let rounds =
            |skipped| Rounds { skipped, expected: 100, cpu_ns: 40 * 12_000_000, ..crate::tests::rounds(40) };
        assert_eq!(rounds(0).skipped_words(), None);
        let said = rounds(60).skipped_words().unwrap();
        assert!(said.starts_with("60 of 100 samples were skipped: one takes 12.0ms, and "), "{said}");
    }

    #[test]
    fn long_rounds_run_without_sched_fifo() {
        // SAFETY: no preconditions.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let mut at_once = RunAtOnce::default();
        at_once.keep(true);
        let begun = policy();
        at_once.keep(true);
        assert_eq!(policy(), begun);
        at_once.keep(false);
        assert_eq!(policy(), libc::SCHED_OTHER);
        at_once.keep(true);
        assert_eq!(policy(), begun, "not for good");
        at_once.keep(false);
        assert_eq!(policy(), before);
    }

    #[test]
    fn the_default_is_five_seconds_or_until_the_command_ends() {
        assert_eq!(Schedule::new(20.0, None, false).duration, Some(DEFAULT_DURATION));
        assert_eq!(Schedule::new(20.0, None, true).duration, None);
        let asked = Some(Duration::from_secs(1));
        assert_eq!(Schedule::new(20.0, asked, true).duration, asked);
        assert_eq!(Schedule::new(20.0, None, false).periods(DEFAULT_DURATION), 100.0);
    }
}
