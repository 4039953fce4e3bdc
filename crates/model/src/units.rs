//! Numbers in words: durations, dates, shares, counts.

/// Formats a duration with three significant digits: `870ns`, `12.3us`, `4.56ms`, `1.20s`, `2m05s`.
pub fn duration(ns: u64) -> String {
    let f = ns as f64;
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => three_digits(f / 1e3, "us"),
        1_000_000..1_000_000_000 => three_digits(f / 1e6, "ms"),
        1_000_000_000..60_000_000_000 => three_digits(f / 1e9, "s"),
        _ => {
            let s = ns / 1_000_000_000;
            format!("{}m{:02}s", s / 60, s % 60)
        }
    }
}

/// Formats a positive number with three significant digits, or all digits before the decimal point.
pub fn three_digits(value: f64, unit: &str) -> String {
    let digits = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

/// Formats the date in UTC, `YYYY-MM-DD`, from ns since 1970.
pub fn date(unix_ns: u64) -> String {
    /// Days from the 1st of March of year 0 to 1970. Years begin in March here, so that a leap day is the last day of its year.
    const UNTIL_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = unix_ns / 86_400_000_000_000 + UNTIL_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", 400 * era + year + next_year)
}

/// Formats the time of day, `HH:MM:SS UTC`, from ns since 1970. UTC makes it comparable with other logs.
pub fn time_of_day(unix_ns: u64) -> String {
    let s = unix_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", s / 3_600, s / 60 % 60, s % 60)
}

/// Formats bytes in binary units: `512B`, `1.5MiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes}B") } else { format!("{value:.1}{unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1}TiB")
}

/// Returns `part` as a percentage of `whole`; `None` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// Returns the busy share of the time of CPUs, percent; `None` if it is unknown.
pub fn busy_percent(busy_ns: Option<u64>, idle_ns: Option<u64>) -> Option<f64> {
    percent(busy_ns?, busy_ns?.saturating_add(idle_ns?))
}

/// Formats a time relative to another time, whose name must follow: `2.2 times`, `55.0% of`; `None` if `whole` is 0.
pub fn times(part: u64, whole: u64) -> Option<String> {
    let ratio = percent(part, whole)? / 100.0;
    Some(if ratio < 1.0 { format!("{:.1}% of", ratio * 100.0) } else { format!("{ratio:.1} times") })
}

/// Returns events per second; `None` if the duration is 0.
pub fn per_second(count: u64, duration_ns: u64) -> Option<f64> {
    (duration_ns != 0).then(|| count as f64 * 1e9 / duration_ns as f64)
}

/// Formats a number with up to two decimals: `1`, `2.5`, `0.25`.
pub fn number(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').into()
}

/// Formats a number of CPUs: `1 CPU`, `2.5 CPUs`.
pub fn cpus(cores: f64) -> String {
    let number = number(cores);
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} CPU{plural}")
}

/// Parses a number with a unit of time into seconds. A number without a unit is in seconds.
pub fn seconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * scale)
}

/// Formats a count: `1 wait`, `2 waits`, `2 processes`.
pub fn count(n: u64, what: &str) -> String {
    let plural = match what.strip_suffix("ss") {
        _ if n == 1 => "",
        Some(_) => "es",
        None => "s",
    };
    format!("{n} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        let said: Vec<_> =
            [0, 999, 1_000, 12_345, 999_499, 4_560_000, 50_000_000, 1_200_000_000, 125_000_000_000]
                .map(duration)
                .into();
        assert_eq!(said, ["0ns", "999ns", "1.00us", "12.3us", "999us", "4.56ms", "50.0ms", "1.20s", "2m05s"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(super::date(seconds * 1_000_000_000), date);
        }
    }

    #[test]
    fn the_time_of_day_is_utc() {
        assert_eq!(time_of_day(1_700_000_000_000_000_000), "22:13:20 UTC");
    }

    #[test]
    fn a_count_of_one_has_no_plural() {
        assert_eq!(count(1, "thread"), "1 thread");
        assert_eq!(count(20, "thread"), "20 threads");
        assert_eq!(count(2, "process"), "2 processes");
    }

    #[test]
    fn one_cpu_has_no_plural() {
        assert_eq!([cpus(1.0), cpus(0.5), cpus(2.0), cpus(10.0)], ["1 CPU", "0.5 CPUs", "2 CPUs", "10 CPUs"]);
    }

    #[test]
    fn a_ratio_of_times_is_written_in_times_or_percent() {
        assert_eq!(times(263, 120).as_deref(), Some("2.2 times"));
        assert_eq!(times(1, 8).as_deref(), Some("12.5% of"));
        assert_eq!(times(1, 0), None);
    }

    #[test]
    fn a_share_of_zero_is_none() {
        assert_eq!(percent(0, 0), None);
        assert_eq!(percent(1, 4), Some(25.0));
        assert_eq!(per_second(3, 0), None);
    }
}
