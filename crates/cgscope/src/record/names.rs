//! Names of the files of one run. Each contains the start time, so that the names sort by time.

use std::{
    ffi::OsStr,
    fs, io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, RenameFlags, renameat, renameat_with, statat},
    io::Errno,
};

use cgscope_model::units;

/// `DIR/host-20261121T101500.000Z.rec` for `DIR/host.rec`. In UTC, so that names sort correctly across clock changes, too.
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

/// The first free [`stamped`] name from this time on, and its time. A clock that is not set gives the same time at every boot.
pub fn free_stamped(path: &Path, unix_ns: u64) -> (PathBuf, u64) {
    let mut later = stamps(path, unix_ns).filter(|(name, _)| fs::symlink_metadata(name).is_err());
    later.next().unwrap_or_else(|| (stamped(path, unix_ns), unix_ns))
}

/// The [`stamped`] name at this time, then a millisecond later, and so on.
pub fn stamps(path: &Path, unix_ns: u64) -> impl Iterator<Item = (PathBuf, u64)> {
    (unix_ns..).step_by(1_000_000).map(|unix_ns| (stamped(path, unix_ns), unix_ns))
}

/// The names `FILE.old`, `FILE.old.2` and so on.
pub fn olds(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1_u64..).map(|number| {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        if number > 1 {
            old.push(format!(".{number}"));
        }
        old.into()
    })
}

/// Renames a file in `directory` to the first free name, and returns that name.
pub fn move_to_free(
    directory: BorrowedFd,
    from: &Path,
    mut names: impl Iterator<Item = PathBuf>,
) -> io::Result<PathBuf> {
    let is_free = |name: &PathBuf| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
    while let Some(name) = names.find(is_free) {
        // Another run may take the same free name first.
        let moved = match renameat_with(directory, from, directory, &name, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => continue,
            // Some file systems do not support NOREPLACE.
            Err(Errno::INVAL | Errno::NOSYS) => renameat(directory, from, directory, &name),
            moved => moved,
        };
        return Ok(moved.map(|()| name)?);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Whether `name` is the [`stamped`] name of `path` at any time.
pub fn is_stamped(path: &Path, name: &Path) -> bool {
    let model = stamped(path, 0);
    let [model, name] = [model.as_path(), name].map(|path| path.file_name().and_then(OsStr::to_str));
    let around = model.and_then(|model| model.rsplit_once(&stamp(0)));
    let found =
        name.zip(around).and_then(|(name, (before, after))| name.strip_prefix(before)?.strip_suffix(after));
    found.is_some_and(|found| {
        found.replace(|letter: char| letter.is_ascii_digit(), "0") == "00000000T000000.000Z"
    })
}

/// Formats a time like `20261121T101500.000Z`.
fn stamp(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (year, month, day) = units::date(unix_ns);
    let ms = ms % 86_400_000;
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}{month:02}{day:02}T{h:02}{m:02}{s:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use rustix::fs::CWD;

    use super::*;

    const DAY: u64 = 86_400_000_000_000;

    #[test]
    fn a_stamp_is_the_date_and_the_time_in_utc() {
        // As printed by `date -u -d @SECONDS`.
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
    fn a_free_name_is_given_to_only_one_file() {
        let dir = std::env::temp_dir().join(format!("cgscope-{}-names", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let base = dir.join("a.rec");
        for n in 0..3 {
            let (free, unix_ns) = free_stamped(&base, 7 * DAY);
            assert_eq!((&free, unix_ns), (&stamped(&base, unix_ns), 7 * DAY + n * 1_000_000));
            fs::write(&free, n.to_string()).unwrap();
        }
        fs::write(&base, "moved").unwrap();
        let names = || [stamped(&base, 7 * DAY), dir.join("free")].into_iter();
        assert_eq!(move_to_free(CWD, &base, names()).unwrap(), dir.join("free"));
        assert_eq!(fs::read_to_string(dir.join("free")).unwrap(), "moved");
        let taken = move_to_free(CWD, &dir.join("free"), names()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(stamped(&base, 7 * DAY)).unwrap(), "0");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn names_of_a_series_are_recognized_and_foreign_names_are_not() {
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
