//! What files are called where one run may write several: by the time at which they begin, so that they sort by time.

use std::path::{Path, PathBuf};

use cgscope_model::units;

/// `DIR/host-20261121T101500.000Z.rec` for `DIR/host.rec`: UTC, so that it sorts through the change to summer time, too.
pub fn stamped(path: &Path, unix_ns: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-");
    name.push(stamp(unix_ns));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// True if `name` is what [`stamped`] makes of `path` at some time.
pub fn is_stamped(path: &Path, name: &Path) -> bool {
    let model = stamped(path, 0);
    let (Some(model), Some(name)) = (text(&model), text(name)) else { return false };
    let stem = text(Path::new(path.file_stem().unwrap_or_default())).map_or(0, str::len) + 1;
    let is_like = |(at, (model, found)): (usize, (u8, u8))| {
        let in_stamp = (stem..stem + STAMP).contains(&at);
        if in_stamp && model.is_ascii_digit() { found.is_ascii_digit() } else { model == found }
    };
    model.len() == name.len() && model.bytes().zip(name.bytes()).enumerate().all(is_like)
}

fn text(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Characters of a stamp.
const STAMP: usize = "20261121T101500.000Z".len();

/// `20261121T101500.000Z`.
pub fn stamp(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (year, month, day) = units::date(unix_ns);
    let ms = ms % 86_400_000;
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}{month:02}{day:02}T{h:02}{m:02}{s:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000_000;

    #[test]
    fn a_stamp_is_the_date_and_the_time_in_utc() {
        // As `date -u -d @SECONDS` has them.
        for (seconds, said) in [
            (0, "19700101T000000.000Z"),
            (951_782_399, "20000228T235959.000Z"),
            (951_782_400, "20000229T000000.000Z"),
            (1_709_251_199, "20240229T235959.000Z"),
            (1_795_256_100, "20261121T101500.000Z"),
            (4_107_542_400, "21000301T000000.000Z"),
        ] {
            assert_eq!(stamp(seconds * 1_000_000_000), said);
        }
        assert_eq!(stamp(1_234_567_890), "19700101T000001.234Z");
    }

    #[test]
    fn names_sort_by_time() {
        let path = Path::new("/a/host.rec");
        let names: Vec<_> = (0..2_000).map(|n| stamped(path, n * DAY / 2 + n * 1_000_000)).collect();
        assert!(names.is_sorted_by(|a, b| a < b));
        assert_eq!(names[0], Path::new("/a/host-19700101T000000.000Z.rec"));
        assert_eq!(stamped(Path::new("plain"), 0), Path::new("plain-19700101T000000.000Z"));
    }

    #[test]
    fn names_of_a_series_are_known_again_and_foreign_ones_are_not() {
        let path = Path::new("/a/host.rec");
        assert!(is_stamped(path, &stamped(path, 123 * DAY)));
        for name in
            ["host.rec", "host-1.rec", "host-19700101T000000.000Z.rec.gz", "hose-19700101T000000.000Z.rec"]
        {
            assert!(!is_stamped(path, Path::new(name)), "{name}");
        }
        let digits = Path::new("/a/cpu0.rec");
        assert!(!is_stamped(digits, Path::new("cpu1-19700101T000000.000Z.rec")));
    }
}
