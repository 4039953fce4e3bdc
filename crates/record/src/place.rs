//! Where a file goes: whatever is to be there whole or not at all is written beside its place and moved there.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, or nothing yet: what is written beside it is moved there, and replaces it.
    File(PathBuf),
    /// A pipe, a device, or what a process has open (`/dev/stdout` may be a file): written as it is.
    Direct(PathBuf),
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

impl Place {
    /// Follows links, also one to a file that is not there yet: a link stays a link. Fails at a directory, and where the
    /// kernel does not follow a link (a foreign one in a directory that everybody can write to).
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")))?;
            path = parent.join(name);
            // What has a name there is in a place of its own, or in none.
            if parent.starts_with("/proc") {
                return Ok(Self::Direct(path));
            }
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::File(path)),
                Err(error) => return Err(error),
            };
            if metadata.is_symlink() {
                is_followed(&path)?;
                path = parent.join(fs::read_link(&path)?);
            } else if metadata.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            } else {
                return Ok(if metadata.is_file() { Self::File(path) } else { Self::Direct(path) });
            }
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// The path that nothing else leads to.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Direct(path) => path,
        }
    }

    /// Begins to write: beside the place, under a name that nobody else has.
    pub fn create(&self) -> io::Result<(File, Beside)> {
        match self {
            Self::File(path) => {
                let (file, beside) = create_beside(path)?;
                Ok((file, Beside { moves: Some((beside, path.clone())) }))
            }
            Self::Direct(path) => {
                let file = OpenOptions::new().write(true).truncate(true).open(path)?;
                Ok((file, Beside { moves: None }))
            }
        }
    }
}

/// The kernel's word on whether a link is followed (`fs.protected_symlinks`); that nothing is there is no refusal.
fn is_followed(link: &Path) -> io::Result<()> {
    match fs::metadata(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}-{number}.new", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                if let Ok(metadata) = fs::metadata(path) {
                    // Whoever could not read the file that is replaced cannot read this one.
                    let _ = file.set_permissions(metadata.permissions());
                }
                return Ok((file, beside.into()));
            }
        }
    }
}

/// A file that is not in its place yet; it goes with this value unless it is kept.
#[derive(Debug)]
pub struct Beside {
    /// From where to where.
    moves: Option<(PathBuf, PathBuf)>,
}

impl Beside {
    /// Where it is until then; `None`: in its place.
    pub fn path(&self) -> Option<&Path> {
        self.moves.as_ref().map(|(beside, _)| beside.as_path())
    }

    /// From now on it has its name.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some((beside, path)) = &self.moves {
            fs::rename(beside, path)?;
        }
        self.moves = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.moves {
            let _ = fs::remove_file(beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::{fd::AsRawFd, unix::fs::symlink},
    };

    use super::*;

    /// A directory that goes with its value.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("cgscope-{}-place-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(fs::canonicalize(path).unwrap())
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(path: &Path, text: &str) {
        let (mut file, beside) = Place::of(path).unwrap().create().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        beside.keep().unwrap();
    }

    #[test]
    fn a_link_is_followed_and_stays_also_where_nothing_is_there_yet() {
        let dir = Dir::new("links");
        let (file, link, far) = (dir.0.join("file"), dir.0.join("link"), dir.0.join("far"));
        symlink("file", &link).unwrap();
        symlink(&link, &far).unwrap();
        for text in ["nothing was there", "it is replaced"] {
            write(&far, text);
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert!(far.is_symlink() && link.is_symlink() && !file.is_symlink());
        }
        assert_eq!(dir.names(), ["far", "file", "link"]);
        symlink("round", dir.0.join("round")).unwrap();
        assert!(Place::of(&dir.0.join("round")).is_err());
    }

    #[test]
    fn what_lies_beside_is_nobody_elses() {
        let dir = Dir::new("beside");
        let (file, foreign) = (dir.0.join("a.rec"), dir.0.join("foreign"));
        fs::write(dir.0.join("a.rec.new"), "mine").unwrap();
        fs::write(&foreign, "theirs").unwrap();
        // Planted under the names that come next, wherever other tests have got to.
        for number in 0..50 {
            symlink(&foreign, dir.0.join(format!("a.rec.{}-{number}.new", std::process::id()))).unwrap();
        }
        write(&file, "ours");
        assert_eq!(fs::read_to_string(&file).unwrap(), "ours");
        assert!(!file.is_symlink());
        assert_eq!(fs::read_to_string(&foreign).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(dir.0.join("a.rec.new")).unwrap(), "mine");
    }

    #[test]
    fn what_is_not_kept_leaves_everything_as_it_was() {
        let dir = Dir::new("dropped");
        let file = dir.0.join("file");
        fs::write(&file, "before").unwrap();
        let (mut half, beside) = Place::of(&file).unwrap().create().unwrap();
        half.write_all(b"half").unwrap();
        drop(beside);
        assert_eq!((dir.names(), fs::read_to_string(&file).unwrap()), (vec!["file".into()], "before".into()));
    }

    #[test]
    fn what_is_open_already_is_written_as_it_is() {
        let dir = Dir::new("direct");
        let path = dir.0.join("redirected");
        let open = File::create(&path).unwrap();
        let by_number = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let link = dir.0.join("link");
        symlink(&by_number, &link).unwrap();
        for through in [&by_number, &link] {
            assert!(matches!(Place::of(through).unwrap(), Place::Direct(_)), "{through:?}");
            write(through, "direct");
            assert_eq!(fs::read_to_string(&path).unwrap(), "direct");
        }
        assert_eq!(dir.names(), ["link", "redirected"]);
        assert!(matches!(Place::of(Path::new("/dev/stdout")).unwrap(), Place::Direct(_)));
        assert_eq!(Place::of(Path::new("/dev/null")).unwrap(), Place::Direct("/dev/null".into()));
    }

    #[test]
    fn a_directory_is_no_place() {
        let dir = Dir::new("directory");
        for path in [dir.0.clone(), dir.0.join(".."), "/".into(), "..".into()] {
            assert_eq!(Place::of(&path).unwrap_err().kind(), io::ErrorKind::IsADirectory, "{path:?}");
        }
        assert_eq!(Place::of(&dir.0.join("no/file")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Dir::new("mode");
        let file = dir.0.join("file");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        write(&file, "secret");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
