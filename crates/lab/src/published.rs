//! Loads of situations that people published: bursts of jobs, threads that spin at a barrier, and a polling thread of io_uring.

use std::{
    fs, hint, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::requests::compute;

/// Starts `count` processes at once, each of which computes for `cost` and exits, once in each `gap`.
///
/// # Errors
/// Fails if the host refuses a process.
pub fn jobs(count: usize, cost: Duration, gap: Duration, end: Instant) -> io::Result<()> {
    let mut due = Instant::now();
    while due < end {
        let mut started = Vec::new();
        for _ in 0..count {
            started.push(child(|| compute(cost))?);
        }
        started.into_iter().for_each(reap);
        due += gap;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Runs `count` processes that compute all the time. If `name` is not empty, they have this name.
///
/// # Errors
/// Fails if the host refuses a process.
pub fn processes(
    count: usize,
    name: &str,
    end: Instant,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let run = || {
        if !name.is_empty() {
            let _ = fs::write("/proc/self/comm", name);
        }
        while Instant::now() < end {
            (0..10_000).for_each(|_| hint::spin_loop());
        }
    };
    let started = (0..count).map(|_| child(run)).collect::<io::Result<Vec<_>>>()?;
    ready()?;
    started.into_iter().for_each(reap);
    Ok(())
}

/// Starts a process that calls `work` and exits. The kernel kills it if this thread ends first.
fn child(work: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: this process has one thread, so its child can call any function.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: `PR_SET_PDEATHSIG` takes no pointer.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            work();
            // SAFETY: no preconditions. `_exit` skips the cleanup, because the parent does it.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

fn reap(pid: libc::pid_t) {
    // SAFETY: the child is ours, and was not reaped.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// Runs threads that compute for `work`, and then spin until all of them have done so. Returns the number of rounds.
pub fn spinning_pool(threads: usize, work: Duration, end: Instant) -> usize {
    let (arrived, round) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                while Instant::now() < end {
                    compute(work);
                    let now = round.load(SeqCst);
                    if arrived.fetch_add(1, SeqCst) + 1 == threads {
                        arrived.store(0, SeqCst);
                        round.store(now + 1, SeqCst);
                    }
                    while round.load(SeqCst) == now && Instant::now() < end {
                        hint::spin_loop();
                    }
                }
            });
        }
    });
    round.load(SeqCst)
}

/// `struct io_uring_params` (Linux 5.1, include/uapi/linux/io_uring.h).
#[repr(C)]
#[derive(Default)]
pub(crate) struct Params {
    entries: [u32; 2],
    flags: u32,
    poller_cpu: u32,
    poller_idle_ms: u32,
    pub(crate) features: u32,
    queue_fd: u32,
    reserved: [u32; 3],
    /// `sq_off` and `cq_off`.
    pub(crate) offsets: [u32; 20],
}

const SQPOLL: u32 = 1 << 1;
const SQ_AFF: u32 = 1 << 2;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;

/// An io_uring whose kernel thread `iou-sqp-PID` polls on `cpu` until `idle` has passed without a request.
///
/// # Errors
/// Fails if the kernel refuses the io_uring.
pub fn polled_ring(cpu: u32, idle: Duration) -> io::Result<OwnedFd> {
    let mut params = Params {
        flags: SQPOLL | SQ_AFF,
        poller_cpu: cpu,
        poller_idle_ms: idle.as_millis() as u32,
        ..Params::default()
    };
    // SAFETY: the kernel reads and writes `params`, which has the size of its structure.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8u32, &mut params) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let ring = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // The thread starts, sleeps at once, and polls after a wakeup.
    thread::sleep(Duration::from_millis(100));
    // SAFETY: the call has no pointers.
    let woken = unsafe {
        libc::syscall(libc::SYS_io_uring_enter, ring.as_raw_fd(), 0u32, 0u32, ENTER_SQ_WAKEUP, 0usize, 0usize)
    };
    if woken < 0 { Err(io::Error::last_os_error()) } else { Ok(ring) }
}
