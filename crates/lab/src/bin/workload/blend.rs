//! A load with threads of several kinds. The name of each thread says what the thread does.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    ptr, slice,
    sync::Mutex,
    thread::{self, Scope},
    time::{Duration, Instant},
};

use super::{keep_on, ready, spin, vfork};

/// Size of one read, bytes. The size is large, so that a read spends more time on the disk than on the CPU.
const PIECE: usize = 4 << 20;
const PIECES: u64 = 8;

/// Starts one or two threads of each kind. `spin` computes on CPU 0, and two `pair` threads share CPU 1. `sleeper` sleeps. `pipe`
/// reads from a pipe that no thread writes to. `futex` waits for a lock that is never released. `disk` reads `file` with direct
/// I/O. `vfork` waits for its child, and only SIGKILL interrupts that wait.
pub(crate) fn blend(file: &str, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    make(file)?;
    let (mut reader, writer) = io::pipe()?;
    let lock = Mutex::new(());
    let held = lock.lock().map_err(|_| io::Error::other("a thread panicked"))?;
    thread::scope(|scope| {
        for (name, cpu) in [("spin", 0), ("pair", 1), ("pair", 1)] {
            start(scope, name, move || burn_on(cpu, end))?;
        }
        start(scope, "sleeper", move || thread::sleep(end.saturating_duration_since(Instant::now())))?;
        start(scope, "pipe", move || drop(reader.read(&mut [0])))?;
        start(scope, "futex", || drop(lock.lock()))?;
        start(scope, "disk", move || drop(read_past_the_cache(file, end)))?;
        start(scope, "vfork", move || drop(vfork(seconds as u32)))?;
        ready()?;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        drop((held, writer));
        Ok(())
    })
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn_scoped(scope, work).map(|_| ())
}

fn burn_on(cpu: usize, end: Instant) {
    keep_on(&[cpu]);
    while Instant::now() < end {
        spin(10_000);
    }
}

fn make(file: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(file)?;
    let piece = vec![7; PIECE];
    for _ in 0..PIECES {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

fn read_past_the_cache(path: &str, end: Instant) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the mapping is new and is never unmapped. A mapping is page-aligned, as direct reads require.
    let into = unsafe {
        let start = libc::mmap(ptr::null_mut(), PIECE, access, kind, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        slice::from_raw_parts_mut(start.cast::<u8>(), PIECE)
    };
    for piece in (0..PIECES).cycle().take_while(|_| Instant::now() < end) {
        let at = (piece * PIECE as u64) as libc::off_t;
        // SAFETY: the target slice is ours and has `PIECE` bytes.
        if unsafe { libc::pread(file.as_raw_fd(), into.as_mut_ptr().cast(), PIECE, at) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
