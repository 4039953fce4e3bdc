//! Moments of a recording, and times that users type.

use std::str::FromStr;

use cgscope_model::units::{duration, seconds, time_of_day};

const NS: f64 = 1e9;
const DAY_S: u64 = 86_400;

/// When a Sample was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// CLOCK_MONOTONIC, ns. Lengths are differences of this.
    pub mono_ns: u64,
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
}

/// A moment as typed by a user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Seconds after the first Sample.
    After(f64),
    /// Seconds since midnight, UTC: the first such time at or after the first Sample.
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
    let parts: Vec<&str> = text.split(':').collect();
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes] => (hours, minutes, &"0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    Some(number(hours, 24)? * 3_600 + number(minutes, 60)? * 60 + number(seconds, 60)?)
}

/// Parses a time after the start: `90s`, `5m`, or a length as cgscope prints it, such as `2m05s`.
fn after(text: &str) -> Option<When> {
    let mut sum = 0.0;
    // A digit after a letter begins a new amount.
    let bytes = text.as_bytes();
    let mut start = 0;
    for end in 1..=bytes.len() {
        let is_start =
            end < bytes.len() && bytes[end].is_ascii_digit() && bytes[end - 1].is_ascii_alphabetic();
        if is_start || end == bytes.len() {
            sum += seconds(text.get(start..end)?)?;
            start = end;
        }
    }
    (!text.is_empty() && sum.is_finite() && !text.contains('-')).then_some(When::After(sum))
}

impl When {
    /// The index of the interval that contains this moment.
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
            return Err(format!(
                "this time is not in the recording, which covers {} to {} ({})",
                time_of_day(first.unix_ns),
                time_of_day(last.unix_ns),
                duration(last.mono_ns.saturating_sub(first.mono_ns))
            ));
        }
        let ends = samples.iter().skip(1);
        let before = ends.take_while(|end| clock(end) as f64 <= target).count();
        Ok(before.min(samples.len().saturating_sub(2)))
    }
}

/// Parses a speed, a multiple of real time.
pub fn speed(text: &str) -> Result<f64, String> {
    let (slowest, fastest) = super::player::SPEEDS;
    let number = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|speed| (slowest..=fastest).contains(speed))
        .ok_or_else(|| format!("a speed must be a number from {slowest} to {fastest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples at one-second intervals from 22:13:20.5 UTC on.
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
