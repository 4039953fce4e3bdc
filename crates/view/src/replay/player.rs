//! The position of a replay, which moves with the clock and by keys, and times that users type. Nothing here reads or draws.

use std::{
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{
    findings::Rule,
    units::{duration, seconds, time_of_day},
};

/// The slowest and the fastest speed, as a multiple of real time.
pub const SPEEDS: (f64, f64) = (0.25, 64.0);

/// An interval in which findings begin. The previous interval did not have these findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub interval: usize,
    /// The rules of these findings, and the paths of their cgroups, if any.
    pub begins: Vec<(Rule, Option<Arc<str>>)>,
}

/// The position in a recording. Interval `n` lies between Samples `n` and `n + 1`. As on the live screen, an interval
/// is shown from its own end to the end of the next interval.
#[derive(Clone, Debug)]
pub struct Player {
    pub(crate) samples: Vec<Moment>,
    /// The interval to show.
    pub position: usize,
    pub(super) speed: f64,
    pub(super) is_playing: bool,
    /// The moment that is being played, ns after the first Sample.
    played_ns: f64,
    pub(super) now: Instant,
    pub(super) marks: Vec<Mark>,
}

impl Player {
    /// Creates a player that is paused at the first interval. `samples` must have at least two Samples.
    pub fn new(samples: Vec<Moment>, now: Instant) -> Self {
        let (position, is_playing, played_ns, marks) = Default::default();
        let mut player = Self { samples, position, speed: 1.0, is_playing, played_ns, now, marks };
        player.jump(0);
        player
    }

    pub fn intervals(&self) -> usize {
        self.samples.len().saturating_sub(1)
    }

    /// Returns the time from the first Sample to the end of this interval, ns.
    pub(super) fn offset_ns(&self, interval: usize) -> u64 {
        let ends = self.samples.first().zip(self.samples.get(interval + 1));
        ends.map_or(0, |(first, end)| end.mono_ns.saturating_sub(first.mono_ns))
    }

    pub fn is_at_end(&self) -> bool {
        self.position == self.last()
    }

    pub(super) fn mark_here(&self) -> Option<&Mark> {
        self.marks.binary_search_by_key(&self.position, |mark| mark.interval).ok().map(|at| &self.marks[at])
    }

    /// Adds a mark, if it is after all other marks.
    pub(super) fn add_mark(&mut self, mark: Mark) {
        let is_next = self.marks.last().is_none_or(|last| last.interval < mark.interval);
        if is_next && mark.interval < self.intervals() {
            self.marks.push(mark);
        }
    }

    pub(super) fn last(&self) -> usize {
        self.intervals().saturating_sub(1)
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.now);
        self.now = now;
        if !self.is_playing {
            return;
        }
        self.played_ns += passed.as_nanos() as f64 * self.speed;
        while !self.is_at_end() && self.offset_ns(self.position + 1) as f64 <= self.played_ns {
            self.position += 1;
        }
        self.is_playing = !self.is_at_end();
    }

    /// Returns the time until the next interval is shown; `None` while paused.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let left_ns = (self.offset_ns(self.position + 1) as f64 - self.played_ns).max(0.0);
        self.is_playing.then(|| Duration::from_nanos((left_ns / self.speed).ceil() as u64))
    }

    /// Goes to this interval, or to the last interval if the number is too large.
    pub fn jump(&mut self, interval: usize) {
        self.position = interval.min(self.last());
        self.played_ns = self.offset_ns(self.position) as f64;
        self.is_playing &= !self.is_at_end();
    }

    /// Goes this many intervals forward or back, but not beyond the ends.
    pub(super) fn step(&mut self, intervals: isize) {
        self.jump(self.position.saturating_add_signed(intervals));
    }

    pub(super) fn pause(&mut self) {
        self.is_playing = false;
        self.played_ns = self.offset_ns(self.position) as f64;
    }

    /// Plays from the position. At the end, plays from the start.
    pub fn play(&mut self) {
        if self.is_at_end() {
            self.jump(0);
        }
        self.is_playing = !self.is_at_end();
    }

    pub fn set_speed(&mut self, speed: f64) {
        self.speed = speed.clamp(SPEEDS.0, SPEEDS.1);
    }

    /// Goes to the next or previous interval in which a finding begins. Returns false if no such interval is known.
    pub(super) fn go_to_mark(&mut self, is_next: bool) -> bool {
        let mut marks = self.marks.iter().map(|mark| mark.interval);
        let found = if is_next {
            marks.find(|interval| *interval > self.position)
        } else {
            marks.rfind(|interval| *interval < self.position)
        };
        let Some(interval) = found else { return false };
        self.jump(interval);
        self.pause();
        true
    }

    /// Drops this interval and all later ones, because the file is damaged there.
    pub(crate) fn shorten(&mut self, intervals: usize) {
        if intervals >= self.intervals() {
            return;
        }
        self.samples.truncate(intervals + 1);
        self.marks.retain(|mark| mark.interval < intervals);
        if self.position > self.last() {
            self.jump(self.last());
        }
    }
}

const NS: f64 = 1e9;
const DAY_S: u64 = 86_400;

/// When a Sample was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// CLOCK_MONOTONIC, ns. Lengths are differences of this clock.
    pub mono_ns: u64,
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
}

/// A moment as typed by a user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Seconds after the first Sample.
    After(f64),
    /// Seconds since midnight, UTC. Means the first such time at or after the first Sample.
    TimeOfDay(u64),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let when = if text.contains(':') { time(text).map(Self::TimeOfDay) } else { after(text) };
        when.ok_or_else(|| {
            "a time must be a time of day in UTC (14:03, 14:03:20) or a time after the start (90s, 5m, 2m05s)"
                .into()
        })
    }
}

/// Parses a time of day: `14:03` or `14:03:20`.
fn time(text: &str) -> Option<u64> {
    let number = |text: &str, below: u64| -> Option<u64> {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_number && *number < below)
    };
    let mut parts = text.split(':');
    let (hours, minutes) = (number(parts.next()?, 24)?, number(parts.next()?, 60)?);
    let seconds = number(parts.next().unwrap_or("0"), 60)?;
    parts.next().is_none().then_some(hours * 3_600 + minutes * 60 + seconds)
}

/// Parses a time after the start: `90s`, `5m`, or a length as cgscope prints it, such as `2m05s`.
fn after(text: &str) -> Option<When> {
    // A digit after a letter begins a new amount.
    let amounts = text.as_bytes().chunk_by(|a, b| !(a.is_ascii_alphabetic() && b.is_ascii_digit()));
    let sum = amounts.map(|amount| seconds(std::str::from_utf8(amount).ok()?)).sum::<Option<f64>>()?;
    (!text.is_empty() && sum.is_finite() && !text.contains('-')).then_some(When::After(sum))
}

impl When {
    /// Returns the index of the interval that contains this moment.
    pub fn find(self, samples: &[Moment]) -> Result<usize, String> {
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Err("the recording has no samples".into());
        };
        // The moment, and the clock to compare it with.
        let (target, clock): (f64, fn(&Moment) -> u64) = match self {
            Self::After(seconds) => (first.mono_ns as f64 + seconds * NS, |moment| moment.mono_ns),
            Self::TimeOfDay(s) => {
                let start = first.unix_ns / 1_000_000_000;
                // The recording may start between two full seconds.
                let ahead = (s + DAY_S - start % DAY_S) % DAY_S;
                (((start + ahead) as f64 * NS).max(first.unix_ns as f64), |moment| moment.unix_ns)
            }
        };
        if target > clock(last) as f64 {
            let [start, end] = [first, last].map(|moment| time_of_day(moment.unix_ns));
            let length = duration(last.mono_ns.saturating_sub(first.mono_ns));
            return Err(format!(
                "this time is not in the recording, which covers {start} to {end} ({length})"
            ));
        }
        let before = samples.iter().skip(1).take_while(|end| clock(end) as f64 <= target).count();
        Ok(before.min(samples.len().saturating_sub(2)))
    }
}

pub fn speed(text: &str) -> Result<f64, String> {
    let (slowest, fastest) = SPEEDS;
    let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
    let speed = number.filter(|speed| (slowest..=fastest).contains(speed));
    speed.ok_or_else(|| format!("a speed must be a number from {slowest} to {fastest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a player at the first of `intervals` intervals of one second, and the time of its creation.
    fn player(intervals: u64) -> (Player, Instant) {
        let now = Instant::now();
        let moment = |n| Moment { mono_ns: 5_000 + n * 1_000_000_000, unix_ns: n * 1_000_000_000 };
        (Player::new((0..=intervals).map(moment).collect(), now), now)
    }

    fn mark(interval: usize) -> Mark {
        Mark { interval, begins: vec![(Rule::Throttled, Some("/a".into()))] }
    }

    #[test]
    fn an_interval_is_shown_for_as_long_as_the_next_one_took() {
        let (mut player, start) = player(10);
        player.play();
        assert_eq!(player.due_in(), Some(SECOND));
        player.tick(start + SECOND / 2);
        assert_eq!((player.position, player.due_in()), (0, Some(SECOND / 2)));
        player.tick(start + SECOND);
        assert_eq!((player.position, player.due_in()), (1, Some(SECOND)));
    }

    #[test]
    fn a_paused_player_does_not_move_or_catch_up_later() {
        let (mut player, start) = player(10);
        player.tick(start + 5 * SECOND);
        assert_eq!((player.position, player.due_in()), (0, None));
        player.play();
        player.tick(start + 6 * SECOND);
        assert_eq!(player.position, 1);
        player.pause();
        player.tick(start + 60 * SECOND);
        assert_eq!(player.position, 1);
    }

    #[test]
    fn speed_scales_the_clock_and_a_slow_reader_skips_intervals() {
        let (mut player, start) = player(100);
        player.set_speed(64.0);
        player.play();
        assert_eq!(player.due_in(), Some(Duration::from_nanos(15_625_000)));
        player.tick(start + SECOND);
        assert_eq!(player.position, 64);
        player.set_speed(0.25);
        assert_eq!(player.due_in(), Some(4 * SECOND));
        player.set_speed(1e9);
        assert_eq!(player.speed, 64.0);
    }

    #[test]
    fn a_change_of_speed_keeps_the_position_within_an_interval() {
        let (mut player, start) = player(10);
        player.play();
        player.tick(start + SECOND / 2);
        player.set_speed(2.0);
        assert_eq!(player.due_in(), Some(SECOND / 4));
    }

    #[test]
    fn intervals_of_any_length_are_played_for_their_length() {
        let now = Instant::now();
        let samples = [0, 10, 5_000_000_010, 5_000_000_010, 6_000_000_010];
        let moments = samples.map(|mono_ns| Moment { mono_ns, unix_ns: mono_ns }).into();
        let mut player = Player::new(moments, now);
        player.play();
        assert_eq!(player.due_in(), Some(5 * SECOND));
        player.tick(now + 5 * SECOND);
        assert_eq!(player.position, 2, "an interval without length is over at once");
        assert_eq!(player.due_in(), Some(SECOND));
    }

    #[test]
    fn playing_stops_at_the_end_and_then_restarts_from_the_start() {
        let (mut player, start) = player(3);
        player.play();
        player.tick(start + 60 * SECOND);
        assert_eq!((player.position, player.is_playing, player.due_in()), (2, false, None));
        assert!(player.is_at_end());
        player.play();
        assert_eq!((player.position, player.is_playing), (0, true));
    }

    #[test]
    fn a_single_interval_is_shown_and_does_not_play() {
        let (mut player, _) = player(1);
        player.play();
        assert_eq!((player.position, player.is_playing, player.due_in()), (0, false, None));
        assert_eq!((player.offset_ns(0), player.offset_ns(player.last())), (1_000_000_000, 1_000_000_000));
    }

    #[test]
    fn steps_stay_within_the_recording() {
        let (mut player, _) = player(10);
        player.step(-1);
        assert_eq!(player.position, 0);
        player.step(3);
        assert_eq!(player.position, 3);
        player.step(isize::MAX);
        assert_eq!(player.position, 9);
        player.step(isize::MIN);
        assert_eq!(player.position, 0);
    }

    #[test]
    fn playback_continues_after_a_jump() {
        let (mut player, start) = player(100);
        player.play();
        player.tick(start + SECOND / 2);
        player.jump(50);
        assert_eq!((player.position, player.due_in()), (50, Some(SECOND)));
        player.tick(start + 2 * SECOND);
        assert_eq!(player.position, 51);
        player.jump(usize::MAX);
        assert_eq!((player.position, player.is_playing), (99, false));
    }

    #[test]
    fn keys_move_between_marks_in_both_directions_and_pause() {
        let (mut player, start) = player(100);
        [3, 40, 99].map(mark).into_iter().for_each(|mark| player.add_mark(mark));
        player.play();
        assert!(player.go_to_mark(true));
        assert_eq!((player.position, player.is_playing), (3, false));
        assert_eq!(player.mark_here(), Some(&mark(3)));
        assert!(player.go_to_mark(true) && player.go_to_mark(true));
        assert_eq!(player.position, 99);
        assert!(!player.go_to_mark(true));
        player.tick(start + 50 * SECOND);
        assert_eq!(player.position, 99);
        assert!(player.go_to_mark(false) && player.go_to_mark(false) && !player.go_to_mark(false));
        assert_eq!(player.position, 3);
    }

    #[test]
    fn marks_out_of_order_or_after_the_end_are_ignored() {
        let (mut player, _) = player(10);
        [5, 5, 4, 10, 9].map(mark).into_iter().for_each(|mark| player.add_mark(mark));
        assert_eq!(player.marks, [mark(5), mark(9)]);
    }

    #[test]
    fn intervals_that_cannot_be_read_are_cut_off() {
        let (mut player, _) = player(10);
        [2, 8].map(mark).into_iter().for_each(|mark| player.add_mark(mark));
        player.jump(9);
        player.shorten(5);
        assert_eq!((player.position, player.intervals(), player.marks.len()), (4, 5, 1));
        assert_eq!(player.offset_ns(player.last()), 5_000_000_000);
        player.shorten(7);
        assert_eq!(player.intervals(), 5);
        player.shorten(0);
        assert_eq!((player.position, player.intervals(), player.is_playing), (0, 0, false));
        player.play();
        assert!(!player.is_playing);
    }

    /// Returns Samples at one-second intervals from 22:13:20.5 UTC on.
    fn samples(count: u64) -> Vec<Moment> {
        let at = |n| Moment {
            mono_ns: 7_000 + n * 1_000_000_000,
            unix_ns: (1_700_000_000_500 + n * 1_000) * 1_000_000,
        };
        (0..count).map(at).collect()
    }

    fn find(text: &str, count: u64) -> Result<usize, String> {
        text.parse::<When>()?.find(&samples(count))
    }

    #[test]
    fn a_time_after_the_start_finds_its_interval() {
        for (text, interval) in
            [("0", 0), ("0.5", 0), ("1s", 1), ("2.9", 2), ("1m05s", 65), ("100", 99), ("1500ms", 1)]
        {
            assert_eq!(find(text, 101), Ok(interval), "{text}");
        }
    }

    #[test]
    fn a_time_of_day_is_the_first_one_after_the_start() {
        for (text, interval) in
            [("22:13:20", 0), ("22:13:21", 0), ("22:13:22", 1), ("22:14", 39), ("22:14:00", 39)]
        {
            assert_eq!(find(text, 101), Ok(interval), "{text}");
        }
        assert_eq!(find("0:00:01", 10_000), Ok(6_400), "after midnight");
    }

    #[test]
    fn an_error_for_an_unrecorded_time_shows_the_recorded_times() {
        let words = "this time is not in the recording, which covers 22:13:20 UTC to 22:15:00 UTC (1m40s)";
        for text in ["101", "22:13:19", "23:00", "2h"] {
            assert_eq!(find(text, 101), Err(words.into()), "{text}");
        }
        assert!(When::After(0.0).find(&[]).is_err());
    }

    #[test]
    fn nonsense_is_not_a_time() {
        for text in [
            "", "x", "-1", "-5m", "24:00", "12:60", "12:00:60", "1:2:3:4", "12:", ":12", "+1:20", "inf",
            "nan", "5 m", "1é", "m5",
        ] {
            assert!(text.parse::<When>().is_err(), "{text}");
        }
    }

    #[test]
    fn speeds_have_limits() {
        assert_eq!([speed("0.25"), speed("3"), speed("64x")], [Ok(0.25), Ok(3.0), Ok(64.0)]);
        for text in ["0", "0.2", "65", "-1", "nan", "fast", ""] {
            assert!(speed(text).is_err(), "{text}");
        }
    }
}
