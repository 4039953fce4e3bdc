//! Rounds: all threads are looked at, again and again, until something ends it.

use std::{
    future,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::snapshot::Snapshots;
use cgscope_collect::{clock, snapshot};
use cgscope_model::{
    sampling::{Tally, ThreadReading},
    units::{count, duration},
};

use tokio::sync::oneshot;

use super::filter::Filter;
use crate::{
    child::Running,
    exit::{Error, Result},
    session::End,
    signals::Signals,
};

/// Unless it is said how long.
const USUAL: Duration = Duration::from_secs(5);
/// Looking takes at most one part in so many of the time: nothing else limits whoever is before all others on his CPU.
const SHARE: u64 = 10;
/// Whoever looks for longer than that looks without being before all others: audio and networks miss their moment otherwise.
const LONGEST_AT_ONCE: Duration = Duration::from_millis(5);

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    period: Duration,
    duration: Option<Duration>,
}

impl Pace {
    /// So many rounds a second; with a command to its end.
    pub fn new(hz: f64, duration: Option<Duration>, has_command: bool) -> Self {
        let duration = duration.or((!has_command).then_some(USUAL));
        Self { period: Duration::from_secs_f64(1.0 / hz), duration }
    }

    /// When the round with this number is due, after the start: at a random moment of its period. At the same moment of each, the
    /// rounds would be in step with what happens at the same rate, as quotas that are given anew every 100 ms.
    fn due(self, round: u64, random: f64) -> Duration {
        self.period.mul_f64(round as f64 + random)
    }

    /// The round that this moment is in.
    fn round_at(self, since_start: Duration) -> u64 {
        (since_start.as_secs_f64() / self.period.as_secs_f64()) as u64
    }

    /// The first round, from this one on, at which all looking so far takes no more than its share of the time.
    fn affordable(self, round: u64, looking: Duration) -> u64 {
        let needed_ns = looking.as_nanos() * u128::from(SHARE);
        round.max(needed_ns.div_ceil(self.period.as_nanos().max(1)) as u64)
    }

    /// Rounds there should be in so much time.
    fn expected(self, took: Duration) -> u64 {
        (took.as_secs_f64() / self.period.as_secs_f64()).round() as u64
    }
}

/// What was counted.
pub struct Rounds {
    /// By group.
    pub tally: Tally,
    /// Why it ended.
    pub end: End,
    /// ns since 1970.
    pub start_unix_ns: u64,
    /// From the start to the end.
    pub took: Duration,
    /// Rounds there should have been.
    pub expected: u64,
    /// Of those, left out so that looking stays within its share of the time.
    pub skipped: u64,
    /// Threads that were looked at, in all rounds together.
    pub looked_at: u64,
    /// CPU time of cgscope from the first round to the end of the last, that of the kernel and of waking included.
    pub cpu_ns: u64,
}

impl Rounds {
    /// Takes them, on a thread of its own: a timer of the event loop would wake on a grid of a millisecond, in step with the
    /// kernel's ticks, and waking twice would change who is on the CPU. The snapshots come back with the result.
    pub async fn take(
        pace: Pace,
        snapshots: Snapshots,
        tally: Tally,
        filter: Filter,
        child: &mut Option<Running>,
        signals: &mut Signals,
    ) -> Result<(Self, Snapshots)> {
        let (stop, stopped) = mpsc::channel();
        let (done, mut is_done) = oneshot::channel();
        let taker =
            Taker { snapshots, tally, filter, readings: Vec::new(), looked_at: 0, begun_ns: 0, cpu_ns: 0 };
        thread::spawn(move || {
            let _ = done.send(taker.run(pace, &stopped));
        });
        let gone = |_| Error::incomplete("the thread that looks is gone");
        let end = tokio::select! {
            biased;
            result = &mut is_done => return Self::told(result.map_err(gone)?),
            end = ended(child, signals) => end?,
        };
        // It may just have ended by itself.
        let _ = stop.send(end);
        Self::told(is_done.await.map_err(gone)?)
    }

    fn told(taken: Result<(Self, Snapshots)>) -> Result<(Self, Snapshots)> {
        if let Ok((rounds, _)) = &taken
            && let Some(words) = rounds.skipped_words()
        {
            say!("cgscope: {words}");
        }
        taken
    }

    /// That rounds were left out, and what to do; `None` if none was.
    fn skipped_words(&self) -> Option<String> {
        (self.skipped != 0).then(|| {
            let a_look = duration(self.cpu_ns / self.tally.rounds().max(1));
            format!(
                "{} of {} were left out: one takes {a_look}, and looking may take {}% of the time at most \
                 (--hz with fewer a second leaves none out)",
                self.skipped,
                count(self.expected, "sample"),
                100 / SHARE,
            )
        })
    }
}

struct Taker {
    snapshots: Snapshots,
    tally: Tally,
    filter: Filter,
    /// Kept for its memory.
    readings: Vec<ThreadReading>,
    looked_at: u64,
    /// CPU time of cgscope before the first round.
    begun_ns: u64,
    /// Its CPU time since then, up to the end of the last round, waking included. Not asked for at the begin of one: the kernel then counts its time up to
    /// that moment, and who left the CPU when it came can no longer be told.
    cpu_ns: u64,
}

impl Taker {
    /// All rounds, until it is told to stop or the time is over.
    fn run(mut self, pace: Pace, stopped: &mpsc::Receiver<End>) -> Result<(Rounds, Snapshots)> {
        let (start, start_unix_ns) = (Instant::now(), clock::unix_ns());
        self.begun_ns = snapshot::cpu_ns();
        let mut random = random_from(start_unix_ns);
        let mut round = 0;
        let mut skipped = 0;
        let mut at_once = AtOnce::begin();
        let end = loop {
            let due = pace.due(round, random());
            let is_last = pace.duration.is_some_and(|duration| due >= duration);
            let until = if is_last { pace.duration.unwrap_or(due) } else { due };
            if let Ok(end) = stopped.recv_timeout(until.saturating_sub(start.elapsed())) {
                break end;
            }
            let before_ns = self.cpu_ns;
            // However short the time, it is looked once.
            if (!is_last || self.tally.rounds() == 0) && self.look()? {
                break End::TargetGone;
            }
            if is_last {
                break End::Finished;
            }
            at_once.keep(Duration::from_nanos(self.cpu_ns - before_ns) <= LONGEST_AT_ONCE);
            let next = (round + 1).max(pace.round_at(start.elapsed()));
            round = pace.affordable(next, Duration::from_nanos(self.cpu_ns));
            skipped += round - next;
        };
        drop(at_once);
        let took = start.elapsed();
        let expected = match end {
            End::Finished => pace.expected(took).max(1),
            // The round of the moment at which it ended may have been before that moment or not.
            _ => pace.expected(took).max(self.tally.rounds()),
        };
        // The last ones that were passed over may have been due after the end.
        let skipped = skipped.min(expected.saturating_sub(self.tally.rounds()));
        let Self { snapshots, tally, looked_at, cpu_ns, .. } = self;
        Ok((Rounds { tally, end, start_unix_ns, took, expected, skipped, looked_at, cpu_ns }, snapshots))
    }

    /// One round; true if no chosen thread is left.
    fn look(&mut self) -> Result<bool> {
        self.readings.clear();
        let readings = &mut self.readings;
        let looked = self.snapshots.look(|reading| readings.push(*reading));
        let looked = looked.map_err(|failure| Error::incomplete(failure.to_string()))?;
        let unknown = self.filter.unknown_cgroups(&self.readings);
        if !unknown.is_empty() {
            self.snapshots.learn_cgroups(unknown);
        }
        let is_open = self.filter.is_open();
        for reading in &self.readings {
            if is_open || self.filter.wants(reading, &self.snapshots) {
                self.tally.add(reading);
            }
        }
        self.tally.end_round();
        self.looked_at += looked.threads;
        self.cpu_ns = snapshot::cpu_ns() - self.begun_ns;
        Ok(looked.is_target_gone)
    }
}

/// Waits for what ends it from outside.
async fn ended(child: &mut Option<Running>, signals: &mut Signals) -> Result<End> {
    let status = async {
        match child {
            Some(child) => child.wait().await,
            None => future::pending().await,
        }
    };
    let status = tokio::select! {
        biased;
        () = signals.any() => return Ok(End::Interrupted),
        status = status => status,
    };
    *child = None;
    let failed = |error| Error::could_not_run(format!("the command could not be run: {error}"));
    status.map(|ended| End::CommandEnded(ended.status)).map_err(failed)
}

/// This thread comes on a CPU at the very moment at which it wakes (SCHED_FIFO), as far as the host lets it. Otherwise it waits
/// until whoever runs there blocks or has used up his time, and finds him off the CPU: on a busy host a thread that was on its
/// CPU for 55 % of the time was seen there in 45 % of the samples.
struct AtOnce {
    is_kept: bool,
}

impl AtOnce {
    fn begin() -> Self {
        before_others();
        Self { is_kept: true }
    }

    /// Whether the next look, too, is to come before all others.
    fn keep(&mut self, is_kept: bool) {
        if self.is_kept != is_kept {
            self.is_kept = is_kept;
            if is_kept { before_others() } else { as_others() }
        }
    }
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        as_others();
    }
}

/// Threads and processes that are started meanwhile are as others.
fn before_others() {
    set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
}

fn as_others() {
    set_policy(libc::SCHED_OTHER, 0);
}

/// Where it is refused nothing changes.
fn set_policy(policy: libc::c_int, priority: libc::c_int) {
    // SAFETY: zeroes are a valid value; this thread, and a structure of ours.
    unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, policy, &parameters);
    }
}

/// Numbers from 0 to 1 (SplitMix64): no more is asked of them than not to be in step with anything.
fn random_from(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_is_due_within_its_period() {
        let pace = Pace::new(20.0, None, true);
        let mut random = random_from(7);
        let mut parts = [0; 10];
        for round in 0..1_000 {
            let due = pace.due(round, random());
            assert_eq!(pace.round_at(due), round);
            let part = due.as_secs_f64() * 20.0 - round as f64;
            parts[(part * 10.0) as usize] += 1;
        }
        assert!(parts.iter().all(|count| (60..140).contains(count)), "{parts:?}");
    }

    #[test]
    fn looking_takes_a_tenth_of_the_time_at_most() {
        let pace = Pace::new(20.0, None, true);
        // ms a look, and how many of 1,000 rounds are looked at: 25 ms are a tenth of five periods.
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
    fn samples_that_were_left_out_are_told() {
        let mut tally = Tally::new(&[]);
        (0..40).for_each(|_| tally.end_round());
        let rounds = |skipped| Rounds {
            tally: tally.clone(),
            end: End::Finished,
            start_unix_ns: 0,
            took: USUAL,
            expected: 100,
            skipped,
            looked_at: 0,
            cpu_ns: 40 * 12_000_000,
        };
        assert_eq!(rounds(0).skipped_words(), None);
        let said = rounds(60).skipped_words().unwrap();
        assert!(said.starts_with("60 of 100 samples were left out: one takes 12.0ms, and "), "{said}");
    }

    #[test]
    fn whoever_looks_for_long_is_as_others() {
        // SAFETY: no preconditions.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let mut at_once = AtOnce::begin();
        let begun = policy();
        at_once.keep(true);
        assert_eq!(policy(), begun);
        at_once.keep(false);
        assert_eq!(policy(), libc::SCHED_OTHER);
        at_once.keep(true);
        assert_eq!(policy(), begun, "not for good");
        drop(at_once);
        assert_eq!(policy(), before);
    }

    #[test]
    fn five_seconds_are_usual_and_a_command_is_waited_for() {
        assert_eq!(Pace::new(20.0, None, false).duration, Some(USUAL));
        assert_eq!(Pace::new(20.0, None, true).duration, None);
        let asked = Some(Duration::from_secs(1));
        assert_eq!(Pace::new(20.0, asked, true).duration, asked);
        assert_eq!(Pace::new(20.0, None, false).expected(USUAL), 100);
    }
}
