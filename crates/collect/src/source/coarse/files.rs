//! Reads files of `/proc` into one buffer.

use std::{
    ffi::CStr,
    fmt::Write as _,
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, RawDir, openat},
    io::Errno,
};

/// Bytes of directory entries per system call.
const ENTRIES: usize = 32 << 10;
/// Maximum length of a file, bytes. Only `/proc/stat` can come close: its interrupt lines grow with the number of interrupts.
const LONGEST: usize = 1 << 20;

/// A mounted `/proc`.
pub struct ProcFiles {
    proc: OwnedFd,
    entries: Vec<MaybeUninit<u8>>,
    path: String,
    buffer: Vec<u8>,
}

impl ProcFiles {
    /// Opens the `/proc` mounted at this path.
    pub fn open(proc: &Path) -> io::Result<Self> {
        Ok(Self {
            proc: File::open(proc)?.into(),
            entries: vec![MaybeUninit::uninit(); ENTRIES],
            path: String::new(),
            buffer: vec![0; 8 << 10],
        })
    }

    /// Reads the ids of all processes, ascending.
    pub fn processes(&mut self, into: &mut Vec<u32>) -> io::Result<()> {
        into.clear();
        let directory = openat(&self.proc, ".", DIRECTORY, Mode::empty())?;
        numbers(directory.as_fd(), &mut self.entries, into)?;
        into.sort_unstable();
        Ok(())
    }

    /// Opens the directory of a process's threads, and reads their ids. `None` if the process has exited or is hidden.
    pub fn threads(&mut self, pid: u32, into: &mut Vec<u32>) -> Option<OwnedFd> {
        into.clear();
        self.path.clear();
        let _ = write!(self.path, "{pid}/task");
        let directory = openat(&self.proc, self.path.as_str(), DIRECTORY, Mode::empty()).ok()?;
        numbers(directory.as_fd(), &mut self.entries, into).ok()?;
        Some(directory)
    }

    /// Reads a file of a thread; `threads` comes from [`threads`](Self::threads).
    pub fn of_thread(&mut self, threads: BorrowedFd<'_>, tid: u32, name: &str) -> Option<&[u8]> {
        self.path.clear();
        let _ = write!(self.path, "{tid}/{name}");
        read(threads, &self.path, &mut self.buffer)
    }

    /// Reads a file of a process.
    pub fn of_process(&mut self, pid: u32, name: &str) -> Option<&[u8]> {
        self.path.clear();
        let _ = write!(self.path, "{pid}/{name}");
        read(self.proc.as_fd(), &self.path, &mut self.buffer)
    }

    /// Reads a file of the host.
    pub fn of_host(&mut self, name: &str) -> Option<&[u8]> {
        read(self.proc.as_fd(), name, &mut self.buffer)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn numbers(
    directory: BorrowedFd<'_>,
    entries: &mut [MaybeUninit<u8>],
    into: &mut Vec<u32>,
) -> Result<(), Errno> {
    let mut list = RawDir::new(directory, entries);
    while let Some(entry) = list.next() {
        into.extend(number(entry?.file_name()));
    }
    Ok(())
}

fn number(name: &CStr) -> Option<u32> {
    name.to_str().ok().filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))?.parse().ok()
}

fn read<'b>(directory: BorrowedFd<'_>, path: &str, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    let file = openat(directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut length = 0;
    loop {
        match rustix::io::read(&file, &mut buffer[length..]) {
            Ok(more) => length += more,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        // Each file is one record (`single_open`), so a short read is the end. Another read would cost a third more.
        if length < buffer.len() {
            return Some(&buffer[..length]);
        }
        if length >= LONGEST {
            return None;
        }
        buffer.resize(2 * length, 0);
    }
}
