//! Where a file goes: a file that must be there whole or not at all is written beside its place and renamed.
//!
//! Everything happens in the directory that was opened when the path was resolved. Whoever can rename or replace a directory
//! on the way cannot redirect a write of root after that.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{
        Access, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, accessat, fstat,
        fstatfs, openat, openat2, readlinkat, renameat, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use crate::new_file;

/// What a path leads to.
#[derive(Clone, Debug)]
pub struct Place {
    directory: Arc<OwnedFd>,
    name: OsString,
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file, or nothing yet: the new file is written beside it and replaces it.
    File,
    /// A pipe or a device, told from others by device and inode: written as it is.
    Special(u64, u64),
    /// An entry of `/proc`, such as what a process has open (`/dev/stdout` may be a file): written as it is.
    Open,
}

/// The kernel follows as many.
const MOST_LINKS: usize = 40;

impl Place {
    /// Follows links, also one to a file that is not there yet: a link stays a link.
    ///
    /// # Errors
    /// The path is a directory, has too many links, or has a link or a special file that somebody else made in a directory
    /// in which everybody can (as `fs.protected_symlinks` and `fs.protected_fifos` have it, whatever they are set to).
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")))?;
            let directory = open_directory(&parent)?;
            path = parent.join(&name);
            match look(&directory, &name)? {
                Found::Link(target) => path = parent.join(target),
                Found::Place(kind) => return Ok(Self { directory: Arc::new(directory), name, path, kind }),
            }
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// The path, with all links followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the path, as it was when the links were followed.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// True for a pipe, a device, or what a process has open.
    pub fn is_direct(&self) -> bool {
        self.kind != Kind::File
    }

    /// True if a file is there that holds something.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn holds_something(&self) -> io::Result<bool> {
        let flags = if self.kind == Kind::Open { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match statat(&self.directory, &self.name, flags) {
            Err(Errno::NOENT) => Ok(false),
            found => found.map(|stat| is_file(&stat) && stat.st_size != 0).map_err(Into::into),
        }
    }

    /// Opens the file that is there for reading. It is neither waited for nor is a link followed that was put there since.
    ///
    /// # Errors
    /// It is not there any more, or cannot be read.
    pub fn open(&self) -> io::Result<File> {
        self.open_as(OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Tries whether it can be written, and changes nothing.
    ///
    /// # Errors
    /// It cannot.
    pub fn check_writable(&self) -> io::Result<()> {
        if self.is_direct() {
            // Whoever reads a pipe would take its end for the end of the recording.
            return Ok(accessat(&self.directory, &self.name, Access::WRITE_OK, AtFlags::empty())?);
        }
        self.create()?;
        match self.open_as(OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Begins to write: beside the place, under a name that nobody else has.
    ///
    /// A new file has no permissions that a file of ours that it replaces did not have. Root's is for its owner alone:
    /// root, or the user of `sudo` where that user could have made it.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn create(&self) -> io::Result<(File, Beside)> {
        if self.kind != Kind::File {
            let file = self.open_as(OFlags::WRONLY | OFlags::TRUNC)?;
            return Ok((file, Beside { moves: None }));
        }
        let (file, beside) = self.create_beside()?;
        Ok((file, Beside { moves: Some(Move { place: self.clone(), beside }) }))
    }

    /// Opens what is there, if it is still what was looked at.
    fn open_as(&self, flags: OFlags) -> io::Result<File> {
        let follow = if self.kind == Kind::Open { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = flags | follow | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let is_same = match self.kind {
            Kind::File => is_file(&stat),
            Kind::Special(device, inode) => (stat.st_dev, stat.st_ino) == (device, inode),
            Kind::Open => true,
        };
        if is_same { Ok(file.into()) } else { Err(io::Error::other("it was replaced at this moment")) }
    }

    fn create_beside(&self) -> io::Result<(File, OsString)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let replaced = self.replaced();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut beside = self.name.clone();
            beside.push(format!(".{}-{number}.new", std::process::id()));
            match new_file::create(&self.directory, &beside, replaced.as_ref()) {
                Err(Errno::EXIST) => {}
                created => return Ok((created?, beside)),
            }
        }
    }

    /// The file that is there, if it is one.
    fn replaced(&self) -> Option<Stat> {
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().filter(is_file)
    }
}

/// What has a name in a directory.
enum Found {
    /// A link to there.
    Link(PathBuf),
    /// Anything else.
    Place(Kind),
}

/// Looks once: what is judged is what was opened.
fn look(directory: &OwnedFd, name: &OsStr) -> io::Result<Found> {
    // What has a name there is in a place of its own, or in none.
    if fstatfs(directory)?.f_type == PROC_SUPER_MAGIC {
        return Ok(Found::Place(Kind::Open));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Found::Place(Kind::File)),
        opened => opened?,
    };
    let stat = fstat(&opened)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        FileType::RegularFile => return Ok(Found::Place(Kind::File)),
        _ if is_planted(&stat, &fstat(directory)?) => return Err(io::ErrorKind::PermissionDenied.into()),
        FileType::Symlink => {}
        _ => return Ok(Found::Place(Kind::Special(stat.st_dev, stat.st_ino))),
    }
    let target = readlinkat(&opened, "", Vec::new())?.into_bytes();
    Ok(Found::Link(OsString::from_vec(target).into()))
}

/// In a directory in which everybody can make files, only what is ours or of the directory's owner is to be trusted.
fn is_planted(stat: &Stat, directory: &Stat) -> bool {
    const STICKY_AND_FOR_ALL: u32 = 0o1002;
    directory.st_mode & STICKY_AND_FOR_ALL == STICKY_AND_FOR_ALL
        && stat.st_uid != geteuid().as_raw()
        && stat.st_uid != directory.st_uid
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens a directory by a path that has no links, or had none a moment ago: then it fails.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, and where a container's filter does not know it: only the last name is sure to be no link.
        Err(Errno::NOSYS | Errno::PERM) => Ok(openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// A file that is not in its place yet; it goes with this value unless it is kept.
#[derive(Debug)]
pub struct Beside {
    moves: Option<Move>,
}

#[derive(Debug)]
struct Move {
    place: Place,
    beside: OsString,
}

impl Beside {
    /// From now on it has its name.
    pub fn keep(mut self) -> io::Result<()> {
        if let Some(Move { place, beside }) = &self.moves {
            renameat(&place.directory, beside, &place.directory, &place.name)?;
        }
        self.moves = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(Move { place, beside }) = &self.moves {
            let _ = unlinkat(&place.directory, beside, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
