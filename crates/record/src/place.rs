//! Creates output files with the right owner and permissions. A file is written under another name in the same directory and then
//! renamed, so the final path never holds an incomplete file.
//!
//! All steps use the directory that was opened when the path was resolved. If a user then renames or replaces a directory on the
//! path, root still writes into the original directory.
//!
//! Other users must not see what root measures, so files of root have mode 0600, like `perf.data`. Under `sudo`, the user who ran
//! `sudo` gets the file, but only in a directory where that user could have created it. In other directories, root or a service
//! may trust the content of the file. There, a user who owned the file could gain privileges.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::{
    fd::{AsFd, OwnedFd},
    unix::ffi::{OsStrExt, OsStringExt},
};
use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, io};

use rustix::{
    fs::{
        Access, AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, PROC_SUPER_MAGIC,
        ResolveFlags, Stat, Uid, accessat, fchown, flock, fstat, fstatfs, openat, openat2, readlinkat,
        renameat, statat, unlinkat,
    },
    io::Errno,
    process::{geteuid, getuid},
};

/// The file to which a path leads.
#[derive(Clone, Debug)]
pub struct Place {
    /// The directory that was opened when the path was resolved.
    pub directory: Arc<OwnedFd>,
    name: OsString,
    /// The path without links.
    pub path: PathBuf,
    kind: PlaceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    /// A regular file, or nothing yet. The new file is written under another name and then renamed to this path.
    File,
    /// A pipe or a device, with its device and inode numbers. It is written in place.
    Special(u64, u64),
    /// An entry of `/proc`, such as a file that a process has open (`/dev/stdout`). It is written in place.
    Open,
}

/// Maximum number of links to follow, as in the kernel.
const MOST_LINKS: usize = 40;

impl Place {
    /// Resolves a path. Follows symbolic links, even to a missing file. Writing the file does not replace the links.
    ///
    /// # Errors
    /// Fails if the path is a directory or has too many links. Also fails if the path contains another user's link or special
    /// file in a sticky, world-writable directory. The kernel has the same rule if `fs.protected_symlinks` and
    /// `fs.protected_fifos` are set; we always apply it.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")))?;
            let directory = open_directory(&parent)?;
            path = parent.join(&name);
            match look(&directory, &name)? {
                Named::Link(target) => path = parent.join(target),
                Named::Place(kind) => return Ok(Self { directory: Arc::new(directory), name, path, kind }),
            }
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// Whether the file is written in place. True for a pipe, a device, or a file that a process has open.
    pub fn is_direct(&self) -> bool {
        self.kind != PlaceKind::File
    }

    /// Whether the file exists and is not empty.
    pub fn holds_something(&self) -> io::Result<bool> {
        let flags = if self.kind == PlaceKind::Open { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match statat(&self.directory, &self.name, flags) {
            Err(Errno::NOENT) => Ok(false),
            found => found.map(|stat| is_file(&stat) && stat.st_size != 0).map_err(Into::into),
        }
    }

    /// Opens the file for reading. Does not wait for the writer of a pipe. Does not follow a link that was created after the path
    /// was resolved.
    pub fn open(&self) -> io::Result<File> {
        self.open_as(OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Checks whether the file can be written, without changing anything.
    pub fn check_writable(&self) -> io::Result<()> {
        if self.is_direct() {
            // Do not open a pipe: when we closed it again, its reader would assume the end of the recording.
            return Ok(accessat(&self.directory, &self.name, Access::WRITE_OK, AtFlags::empty())?);
        }
        self.create()?;
        match self.open_as(OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates a file with a unique name in the same directory as the final path.
    pub fn create(&self) -> io::Result<(File, Beside)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if self.is_direct() {
            return Ok((self.open_as(OFlags::WRONLY | OFlags::TRUNC)?, Beside(None)));
        }
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let replaced = found.ok().filter(is_file);
        self.remove_left_over();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut beside = self.name.clone();
            beside.push(format!(".{}-{number}.new", std::process::id()));
            match new_file(&self.directory, &beside, replaced.as_ref()) {
                Err(Errno::EXIST) => {}
                created => {
                    let file = created?;
                    // While we hold this lock, no other cgscope removes the file as a leftover. Ignore errors, because some file
                    // systems have no locks.
                    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
                    return Ok((file, Beside(Some((self.clone(), beside)))));
                }
            }
        }
    }

    /// Removes files that a cgscope created with [`create`](Self::create) before it was killed.
    fn remove_left_over(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(entries) = openat(&self.directory, ".", flags, Mode::empty()).and_then(Dir::new) else {
            return;
        };
        let entries = entries.filter_map(Result::ok);
        for entry in entries.filter(|entry| self.is_beside(entry.file_name().to_bytes())) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let Ok(file) = openat(&self.directory, name, flags, Mode::empty()) else { continue };
            let is_left_over =
                fstat(&file).is_ok_and(|stat| is_file(&stat) && is_ours(&stat) && is_old(&stat));
            let is_free = is_left_over && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            // Another cgscope may have removed the file and created a new file with the same name.
            let is_same = || {
                let named = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
                named.is_ok_and(|named| fstat(&file).is_ok_and(|stat| stat.st_ino == named.st_ino))
            };
            if is_free && is_same() {
                let _ = unlinkat(&self.directory, name, AtFlags::empty());
            }
        }
    }

    /// Whether [`create`](Self::create) could have made this name: `NAME.PID-NUMBER.new`.
    fn is_beside(&self, name: &[u8]) -> bool {
        let own = name.strip_prefix(self.name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
        let Some(ids) = own.and_then(|rest| rest.strip_suffix(b".new")) else { return false };
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let mut ids = ids.split(|byte| *byte == b'-');
        ids.next().is_some_and(is_number) && ids.next().is_some_and(is_number) && ids.next().is_none()
    }

    /// Opens the file. Fails if the file is no longer the one that was found when the path was resolved.
    fn open_as(&self, flags: OFlags) -> io::Result<File> {
        let follow = if self.kind == PlaceKind::Open { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = flags | follow | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let is_same = match self.kind {
            PlaceKind::File => is_file(&stat),
            PlaceKind::Special(device, inode) => (stat.st_dev, stat.st_ino) == (device, inode),
            PlaceKind::Open => true,
        };
        if is_same { Ok(file.into()) } else { Err(io::Error::other("the file was replaced at this moment")) }
    }
}

enum Named {
    Link(PathBuf),
    Place(PlaceKind),
}

/// Returns what has this name in the directory. Opens the name only once, so that all checks apply to the same file.
fn look(directory: &OwnedFd, name: &OsStr) -> io::Result<Named> {
    // Links in `/proc` lead to open files, which may have no path.
    if fstatfs(directory)?.f_type == PROC_SUPER_MAGIC {
        return Ok(Named::Place(PlaceKind::Open));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Named::Place(PlaceKind::File)),
        opened => opened?,
    };
    let stat = fstat(&opened)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        FileType::RegularFile => return Ok(Named::Place(PlaceKind::File)),
        _ if is_planted(&stat, &fstat(directory)?) => return Err(io::ErrorKind::PermissionDenied.into()),
        FileType::Symlink => {}
        _ => return Ok(Named::Place(PlaceKind::Special(stat.st_dev, stat.st_ino))),
    }
    let target = readlinkat(&opened, "", Vec::new())?.into_bytes();
    Ok(Named::Link(OsString::from_vec(target).into()))
}

/// Whether another user may have planted the file as an attack. In a sticky, world-writable directory, we trust only files of our
/// own user and of the directory's owner.
fn is_planted(stat: &Stat, directory: &Stat) -> bool {
    const STICKY_AND_FOR_ALL: u32 = 0o1002;
    directory.st_mode & STICKY_AND_FOR_ALL == STICKY_AND_FOR_ALL
        && stat.st_uid != geteuid().as_raw()
        && stat.st_uid != directory.st_uid
}

fn is_ours(stat: &Stat) -> bool {
    let invoker = Invoker::of(getuid(), geteuid(), |name| env::var(name).ok());
    let invoker = invoker.map(|invoker| invoker.uid);
    [Some(geteuid()), invoker].contains(&Some(Uid::from_raw(stat.st_uid)))
}

/// Whether the last write to the file was more than a minute ago.
fn is_old(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    now.saturating_sub(stat.st_mtime) > 60
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens a directory by a path without links. Fails if a directory on the path has been replaced by a link.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6 and under the seccomp filter of some containers, `openat2` is not available. Then we check only the
        // last component of the path.
        Err(Errno::NOSYS | Errno::PERM) => Ok(openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// A new file without its final name; `None` if it is written in place. Dropping this without [`Self::keep`] removes it.
#[derive(Debug)]
pub struct Beside(Option<(Place, OsString)>);

impl Beside {
    /// Renames the file to its final path.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some((place, beside)) = &self.0 {
            renameat(&place.directory, beside, &place.directory, &place.name)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some((place, beside)) = &self.0 {
            let _ = unlinkat(&place.directory, beside, AtFlags::empty());
        }
    }
}

/// Creates a new file in the working directory. Fails if the name exists.
pub fn create_here(name: impl AsRef<OsStr>) -> io::Result<File> {
    Ok(new_file(&open_directory(Path::new("."))?, name.as_ref(), None)?)
}

/// Creates a new file in a directory. `replaced` is the file that the new file will replace, if there is one.
fn new_file(directory: &OwnedFd, name: &OsStr, replaced: Option<&Stat>) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::from_raw_mode(new_mode(geteuid(), replaced)))?;
    if let Some(invoker) = Invoker::of(getuid(), geteuid(), |name| env::var(name).ok())
        && fstat(directory).is_ok_and(|directory| invoker.can_make_files_in(&directory))
    {
        // Ignore errors: some network file systems cannot change the owner, and root then remains the owner.
        let _ = fchown(file.as_fd(), Some(invoker.uid), Some(invoker.gid));
    }
    Ok(file.into())
}

/// Returns the permissions of a new file, before the umask. A file that replaces a file of the same owner gets no permissions
/// that the replaced file lacks. If another user owns the replaced file, its permissions are ignored, because that user may have
/// planted the file.
fn new_mode(user: Uid, replaced: Option<&Stat>) -> u32 {
    let most = if user.is_root() { 0o600 } else { 0o666 };
    match replaced {
        Some(replaced) if replaced.st_uid == user.as_raw() => most & replaced.st_mode,
        _ => most,
    }
}

/// The user who ran `sudo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Invoker {
    uid: Uid,
    gid: Gid,
}

impl Invoker {
    /// Reads the user from the environment. Returns `None` unless both the real and the effective user are root: only then do we
    /// know that root has set the variables.
    fn of(real: Uid, effective: Uid, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let id = |name| variable(name)?.parse().ok().filter(|id: &u32| *id != 0 && *id != u32::MAX);
        let (uid, gid) = (id("SUDO_UID")?, id("SUDO_GID")?);
        let is_root = real.is_root() && effective.is_root();
        is_root.then(|| Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) })
    }

    /// Whether the user can create files in a directory. Ignores the user's groups, which we do not know here.
    fn can_make_files_in(self, directory: &Stat) -> bool {
        let owns = directory.st_uid == self.uid.as_raw() && directory.st_mode & 0o200 != 0;
        owns || directory.st_mode & 0o002 != 0
    }
}

#[cfg(test)]
mod tests;
