//! Writes a recording file.

use std::path::{Path, PathBuf};
use std::{
    ffi::OsStr,
    fmt::Display,
    fs, io,
    os::fd::{AsFd, BorrowedFd},
};

use cgscope_model::{Sample, units};
use cgscope_record::{Beside, FileError, FileWriter, Header, Place, Reason, WriteError};
use rustix::{
    fs::{AtFlags, RenameFlags, renameat, renameat_with, statat},
    io::Errno,
};

use crate::{
    exit::{Error, Result},
    output,
};

pub type Failure = FileError<WriteError>;

/// Uses exit code 1 (incomplete), because earlier samples were recorded.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::incomplete(failure.to_string())
    }
}

pub struct File {
    pub writer: FileWriter,
    pub samples: u64,
    /// When the first and the last sample were taken, ns of the monotonic clock.
    pub first_ns: u64,
    pub last_ns: u64,
    last_unix_ns: u64,
}

impl File {
    /// Starts a recording that replaces a file of this name. If that fails, leaves no file.
    pub fn create(path: &Path, header: &Header) -> Result<Self, Failure> {
        Ok(Self::new(FileWriter::create(path, header)?, header))
    }

    /// Starts a recording at a path from the user. Renames an existing file.
    pub fn begin(path: &Path, header: &Header) -> Result<Self> {
        keep_old(path)?;
        Self::create(path, header).map_err(Error::could_not_run)
    }

    /// Starts a recording in a temporary file beside `path`. The file is renamed to `path` only if it is kept.
    pub fn create_beside(path: &Path, header: &Header) -> Result<(Self, Beside), Failure> {
        let (writer, beside) = FileWriter::create_beside(path, header)?;
        Ok((Self::new(writer, header), beside))
    }

    fn new(writer: FileWriter, header: &Header) -> Self {
        Self { writer, samples: 0, first_ns: 0, last_ns: 0, last_unix_ns: header.start_unix_ns }
    }

    pub fn sample(&mut self, sample: &Sample) -> Result<(), Failure> {
        self.writer.sample(sample)?;
        if self.samples == 0 {
            self.first_ns = sample.mono_ns;
        }
        (self.samples, self.last_ns, self.last_unix_ns) = (self.samples + 1, sample.mono_ns, sample.unix_ns);
        Ok(())
    }

    pub fn end(&mut self, reason: Reason) -> Result<(), Failure> {
        self.writer.end(self.last_unix_ns, reason)
    }

    /// Closes the recording after a failed write. The error says what was saved.
    pub fn end_after(&mut self, failure: &Failure) -> Error {
        let ended = self.end(reason_of(&failure.error)).is_ok();
        if self.samples == 0 {
            return Error::could_not_run(failure);
        }
        let no_end = " (its end record could not be written: reports will say that cgscope was killed)";
        let no_end = if ended { "" } else { no_end };
        let are = if self.samples == 1 { "is" } else { "are" };
        let (samples, path) = (units::count(self.samples, "sample"), self.writer.path.display());
        Error::incomplete(format!("{failure}; the {samples} before the failure {are} in {path}{no_end}"))
    }

    pub fn words(&self) -> String {
        format!("{} in {}", units::bytes(self.writer.bytes()), self.writer.path.display())
    }
}

pub fn reason_of(error: &WriteError) -> Reason {
    match error {
        WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull => Reason::DiskFull,
        _ => Reason::WriteFailed,
    }
}

/// Renames a file that is not empty, because it may be an older recording.
pub fn keep_old(path: &Path) -> Result<()> {
    let place = Place::of(path).map_err(|error| cannot_write(path, error))?;
    if !place.holds_something().unwrap_or(false) {
        return Ok(());
    }
    if place.is_direct() {
        return Err(cannot_write(path, "it leads to a file that is not empty"));
    }
    let there = &place.path;
    let name = Path::new(there.file_name().unwrap_or_default());
    let old =
        move_to_free(place.directory.as_fd(), name, olds(name)).map_err(|error| cannot_write(path, error))?;
    let (path, old) = (there.display(), there.with_file_name(old));
    say!("cgscope: {path} already existed; it is kept as {}", old.display());
    Ok(())
}

pub fn check_writable(path: &Path) -> Result<()> {
    let tried = Place::of(path).and_then(|place| place.check_writable());
    tried.map_err(|error| cannot_write(path, error))
}

/// Refuses a pipe or a device, because the recorder writes several files with similar names beside the path.
pub fn check_base(path: &Path) -> Result<()> {
    let is_direct = Place::of(path).is_ok_and(|place| place.is_direct());
    let why = "it is not a regular file, and several files with similar names must be written";
    if is_direct { Err(cannot_write(path, why)) } else { Ok(()) }
}

pub fn cannot_write(path: &Path, why: impl Display) -> Error {
    output::cannot_write(path, why, "nothing is recorded: name another file")
}

/// Returns `DIR/host-20261121T101500.000Z.rec` for `DIR/host.rec`: in UTC, so that names sort by time after a clock change.
pub fn stamped(path: &Path, unix_ns: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{}", stamp(unix_ns)));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns the first unused [`stamped`] name from this time on, and its time. An unset clock repeats times after each boot.
pub fn free_stamped(path: &Path, unix_ns: u64) -> (PathBuf, u64) {
    let mut later = stamps(path, unix_ns).filter(|(name, _)| fs::symlink_metadata(name).is_err());
    later.next().unwrap_or_else(|| (stamped(path, unix_ns), unix_ns))
}

/// Iterates over the [`stamped`] names at this time, one millisecond later, and so on.
pub fn stamps(path: &Path, unix_ns: u64) -> impl Iterator<Item = (PathBuf, u64)> {
    (unix_ns..).step_by(1_000_000).map(|unix_ns| (stamped(path, unix_ns), unix_ns))
}

/// Iterates over the names `FILE.old`, `FILE.old.2` and so on.
pub fn olds(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1_u64..).map(|number| {
        let mut old = path.as_os_str().to_owned();
        old.push(if number == 1 { ".old".into() } else { format!(".old.{number}") });
        old.into()
    })
}

/// Renames a file in `directory` to the first unused name, and returns that name.
pub fn move_to_free(
    directory: BorrowedFd,
    from: &Path,
    mut names: impl Iterator<Item = PathBuf>,
) -> io::Result<PathBuf> {
    let is_free = |name: &PathBuf| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_err();
    while let Some(name) = names.find(is_free) {
        // Another process may use the name first.
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

/// Returns whether `name` is the [`stamped`] name of `path` at any time.
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
    format!("{}.{:03}Z", output::date_and_time(unix_ns), unix_ns / 1_000_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use std::os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, symlink},
    };

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn every_older_file_is_kept_under_a_name_of_its_own() {
        let dir = std::env::temp_dir().join(format!("cgscope-{}-olds", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let (file, link) = (dir.join("a.rec"), dir.join("link"));
        symlink("a.rec", &link).unwrap();
        symlink("nowhere", dir.join("a.rec.old.3")).unwrap();
        for (run, path) in [&file, &file, &link, &file].into_iter().enumerate() {
            fs::write(&file, format!("run {run}")).unwrap();
            keep_old(path).unwrap();
            assert!(!file.exists() && link.is_symlink());
            keep_old(path).unwrap();
        }
        for (run, name) in ["old", "old.2", "old.4", "old.5"].into_iter().enumerate() {
            assert_eq!(
                fs::read_to_string(dir.join(format!("a.rec.{name}"))).unwrap(),
                format!("run {run}"),
                "{name}"
            );
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn checking_whether_a_file_is_writable_changes_nothing() {
        let dir = std::env::temp_dir().join(format!("cgscope-{}-tried", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let (file, link) = (dir.join("a.rec"), dir.join("link"));
        symlink("a.rec", &link).unwrap();
        check_writable(&link).unwrap();
        assert!(link.is_symlink() && !file.exists());
        fs::write(&file, "yesterday").unwrap();
        check_writable(&link).unwrap();
        check_writable(&file).unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "yesterday");
        assert!(check_writable(&dir).is_err() && check_writable(&dir.join("no/a.rec")).is_err());
        check_writable(Path::new("/dev/null")).unwrap();
        assert!(check_base(Path::new("/dev/null")).is_err() && check_base(&link).is_ok());
        // Like the output of `-o /dev/stdout >>a.rec`.
        let open = fs::File::open(&file).unwrap();
        let refused = keep_old(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd()))).unwrap_err();
        assert!(refused.sentence.contains("is not empty"), "{refused}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_full_disk_is_distinguished_from_other_failures() {
        let of = |kind: io::ErrorKind| reason_of(&WriteError::Io(kind.into()));
        assert_eq!(of(io::ErrorKind::StorageFull), Reason::DiskFull);
        assert_eq!(of(io::ErrorKind::PermissionDenied), Reason::WriteFailed);
        assert_eq!(reason_of(&WriteError::Broken), Reason::WriteFailed);
    }

    #[test]
    fn the_space_reserved_after_the_last_sample_is_freed() {
        let path = std::env::temp_dir().join(format!("cgscope-{}-room.rec", std::process::id()));
        let mut file = File::create(&path, &Header::default()).unwrap();
        file.sample(&Sample { mono_ns: 5, unix_ns: 7, ..Sample::default() }).unwrap();
        let bytes = file.writer.bytes();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes, "reserved space is not part of the file");
        file.end(Reason::Finished).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.blocks() * 512 <= metadata.len().next_multiple_of(4096), "{metadata:?}");
        let mut reader = cgscope_record::open(&path).unwrap();
        assert_eq!(reader.by_ref().count(), 1);
        assert!(
            matches!(reader.ending.as_ref(), Some(cgscope_record::Ending::Clean(end)) if end.unix_ns == 7)
        );
        fs::remove_file(&path).unwrap();
    }

    const DAY: u64 = 86_400_000_000_000;

    #[test]
    fn a_stamp_is_the_date_and_the_time_in_utc() {
        // Output of `date -u -d @SECONDS`.
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
