//! An io_uring with one request at a time.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::published::Params;

const READ: u8 = 22;
const ENTER_GETEVENTS: u32 = 1;
const SINGLE_MMAP: u32 = 1;
const AT_ENTRIES: i64 = 0x1000_0000;
const BYTES: usize = 4096;

/// `struct io_uring_sqe`, as far as a read needs it.
#[repr(C)]
struct Entry {
    operation: u8,
    flags: u8,
    priority: u16,
    file: i32,
    offset: u64,
    address: u64,
    length: u32,
    rest: [u32; 9],
}

pub(super) struct Ring {
    file: OwnedFd,
    rings: *mut u8,
    entries: *mut Entry,
    offsets: [u32; 20],
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        let mut params = Params::default();
        // SAFETY: the kernel reads and writes `params`, which has the size of its structure.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1u32, &mut params) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        let file = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        assert_ne!(params.features & SINGLE_MMAP, 0, "Linux 5.4");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let map = |at: i64| {
            let kind = libc::MAP_SHARED | libc::MAP_POPULATE;
            // SAFETY: a new mapping. The rings and the entries of one request fit into one page each.
            let start = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, file.as_raw_fd(), at) };
            if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start) }
        };
        Ok(Self { rings: map(0)?.cast(), entries: map(AT_ENTRIES)?.cast(), offsets: params.offsets, file })
    }

    /// Returns the word of the rings that the kernel placed at this offset.
    fn word(&self, number: usize) -> &AtomicU32 {
        // SAFETY: the offset is within the mapping, and the kernel changes the word only atomically.
        unsafe { AtomicU32::from_ptr(self.rings.add(self.offsets[number] as usize).cast()) }
    }

    /// Reads from a pipe. Sleeps in `io_uring_enter`.
    pub(super) fn read(&mut self, file: i32, into: &mut [u8]) -> io::Result<()> {
        let entry = Entry {
            operation: READ,
            flags: 0,
            priority: 0,
            file,
            offset: u64::MAX,
            address: into.as_mut_ptr() as u64,
            length: into.len() as u32,
            rest: [0; 9],
        };
        // SAFETY: the kernel does not read the only entry now, because no request is under way.
        unsafe { self.entries.write(entry) };
        // The array of entries has one element, which is 0: the only entry.
        let [queue_tail, done_head] = [1, 10].map(|number| self.word(number));
        queue_tail.fetch_add(1, Ordering::Release);
        // SAFETY: the buffer lives until the request is done, because this call returns only then.
        let entered = unsafe {
            let ring = self.file.as_raw_fd();
            libc::syscall(libc::SYS_io_uring_enter, ring, 1u32, 1u32, ENTER_GETEVENTS, 0usize, 0usize)
        };
        if entered < 0 {
            return Err(io::Error::last_os_error());
        }
        let at = done_head.load(Ordering::Relaxed) & self.word(12).load(Ordering::Relaxed);
        // SAFETY: the completion is within the mapping: `user_data`, then the result.
        let result = unsafe {
            self.rings.add(self.offsets[15] as usize + at as usize * 16 + 8).cast::<i32>().read_volatile()
        };
        done_head.fetch_add(1, Ordering::Release);
        if result == into.len() as i32 { Ok(()) } else { Err(io::Error::other(format!("read: {result}"))) }
    }
}
