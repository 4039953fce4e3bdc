//! A recording file that is being written.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use cgscope_model::{Sample, units};
use cgscope_record::{Beside, FileError, FileWriter, Header, Place, Reason, WriteError};

use crate::{
    exit::{Error, Result},
    record::names,
};

pub type Failure = FileError<WriteError>;

/// Exit code 1 (incomplete), because earlier samples were recorded.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::incomplete(failure.to_string())
    }
}

pub struct File {
    writer: FileWriter,
    pub samples: u64,
    /// When the first and the last sample were taken, ns of the monotonic clock.
    pub first_ns: u64,
    pub last_ns: u64,
    last_unix_ns: u64,
}

impl File {
    /// Starts a recording that replaces any file of this name. On failure, leaves no file behind.
    pub fn create(path: &Path, header: &Header) -> std::result::Result<Self, Failure> {
        Ok(Self::new(FileWriter::create(path, header)?, header))
    }

    /// Starts a recording under a name that the user gave. Keeps an existing file under another name.
    pub fn begin(path: &Path, header: &Header) -> Result<Self> {
        keep_old(path)?;
        Self::create(path, header).map_err(|failure| Error::could_not_run(failure.to_string()))
    }

    /// Starts a recording beside `path`. The file gets its final name only if it is kept.
    pub fn create_beside(path: &Path, header: &Header) -> std::result::Result<(Self, Beside), Failure> {
        let (writer, beside) = FileWriter::create_beside(path, header)?;
        Ok((Self::new(writer, header), beside))
    }

    fn new(writer: FileWriter, header: &Header) -> Self {
        Self { writer, samples: 0, first_ns: 0, last_ns: 0, last_unix_ns: header.start_unix_ns }
    }

    pub fn sample(&mut self, sample: &Sample) -> std::result::Result<(), Failure> {
        self.writer.sample(sample)?;
        if self.samples == 0 {
            self.first_ns = sample.mono_ns;
        }
        (self.samples, self.last_ns, self.last_unix_ns) = (self.samples + 1, sample.mono_ns, sample.unix_ns);
        Ok(())
    }

    pub fn end(&mut self, reason: Reason) -> std::result::Result<(), Failure> {
        self.writer.end(self.last_unix_ns, reason)
    }

    /// Closes the recording after a failed write. The error says what was saved.
    pub fn end_after(&mut self, failure: &Failure) -> Error {
        let ended = self.end(reason_of(&failure.error)).is_ok();
        if self.samples == 0 {
            return Error::could_not_run(failure.to_string());
        }
        let no_end = " (its end record could not be written: reports will say that cgscope was killed)";
        Error::incomplete(format!(
            "{failure}; the {} before the failure {} in {}{}",
            units::count(self.samples, "sample"),
            if self.samples == 1 { "is" } else { "are" },
            self.path().display(),
            if ended { "" } else { no_end }
        ))
    }

    pub fn path(&self) -> &Path {
        self.writer.path()
    }

    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    pub fn words(&self) -> String {
        format!("{} in {}", units::bytes(self.bytes()), self.path().display())
    }

    pub fn length_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// The reason for the end of a recording after a failed write.
pub fn reason_of(error: &WriteError) -> Reason {
    match error {
        WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull => Reason::DiskFull,
        _ => Reason::WriteFailed,
    }
}

/// A file that we created. Device and inode distinguish it from a later file of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Made {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), inode: inode(path) }
    }

    /// Removes the file. Returns false, and removes nothing, if the file no longer exists or the name belongs to another file.
    pub fn remove(&self) -> io::Result<bool> {
        let is_ours = self.inode.is_some() && inode(&self.path) == self.inode;
        if is_ours { fs::remove_file(&self.path).map(|()| true) } else { Ok(false) }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Renames a file that is not empty, because it may be an older recording.
pub fn keep_old(path: &Path) -> Result<()> {
    let place = Place::of(path).map_err(|error| cannot_write(path, &error))?;
    if !place.holds_something().unwrap_or(false) {
        return Ok(());
    }
    if place.is_direct() {
        return Err(cannot_write(path, &io::Error::other("it leads to a file that is not empty")));
    }
    let there = place.path();
    let name = Path::new(there.file_name().unwrap_or_default());
    let old = names::move_to_free(place.directory(), name, names::olds(name))
        .map_err(|error| cannot_write(path, &error))?;
    say!(
        "cgscope: {} already existed; it is kept as {}",
        there.display(),
        there.with_file_name(old).display()
    );
    Ok(())
}

/// Checks that the file can be written, without changing anything.
pub fn check_writable(path: &Path) -> Result<()> {
    let tried = Place::of(path).and_then(|place| place.check_writable());
    tried.map_err(|error| cannot_write(path, &error))
}

/// Refuses a pipe or a device, because several files with similar names will be written beside the path.
pub fn check_base(path: &Path) -> Result<()> {
    match Place::of(path) {
        Ok(place) if place.is_direct() => Err(cannot_write(
            path,
            &io::Error::other(
                "it is not a regular file, and several files with similar names must be written",
            ),
        )),
        _ => Ok(()),
    }
}

pub fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({error}), so nothing is recorded: name another file",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::fs::symlink};

    use super::*;

    #[test]
    fn only_the_file_that_we_created_is_removed() {
        let path = std::env::temp_dir().join(format!("cgscope-{}-made", std::process::id()));
        fs::write(&path, "ours").unwrap();
        let made = Made::of(&path);
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, "foreign").unwrap();
        assert!(!made.remove().unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "foreign");
        fs::rename(&aside, &path).unwrap();
        assert!(made.remove().unwrap());
        assert!(!path.exists());
        assert!(!made.remove().unwrap());
    }

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
        // As in `-o /dev/stdout >>a.rec`.
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
        let bytes = file.bytes();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes, "reserved space is not part of the file");
        file.end(Reason::Finished).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.blocks() * 512 <= metadata.len().next_multiple_of(4096), "{metadata:?}");
        let mut reader = cgscope_record::open(&path).unwrap();
        assert_eq!(reader.by_ref().count(), 1);
        assert!(matches!(reader.ending(), Some(cgscope_record::Ending::Clean(end)) if end.unix_ns == 7));
        fs::remove_file(&path).unwrap();
    }
}
