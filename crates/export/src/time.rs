//! Moments as text.

use cgscope_model::units;

const NS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// `2026-11-21T14:06:24.123456Z` of ns since 1970, cut to microseconds.
pub(crate) fn rfc3339(unix_ns: u64) -> String {
    let (seconds, ns) = (unix_ns / NS_PER_SECOND, unix_ns % NS_PER_SECOND);
    let (year, month, day) = units::date(unix_ns);
    let of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", ns / 1_000)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn moments_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS` has them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000_000), text);
        }
        assert_eq!(rfc3339(1_795_269_984_123_456_789), "2026-11-21T14:06:24.123456Z");
    }
}
