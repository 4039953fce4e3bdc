//! A pool of processes as a web server forks them: each takes a request, computes, asks a remote service and answers.

use std::{
    hint, io,
    io::{Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    thread,
    time::{Duration, Instant},
};

/// A worker computes so long for a request, on a CPU ...
pub const COMPUTE: Duration = Duration::from_millis(20);
/// ... waits so long for the remote service ...
pub const CALL: Duration = Duration::from_millis(65);
/// ... and so long for the next request.
pub const PAUSE: Duration = Duration::from_millis(15);

/// Forks `workers` and gives them work for `seconds`. The children are the workers; the remote service and the clients are threads of
/// this process. `ready` is called when all is under way.
///
/// # Errors
/// Where the host refuses a process, a thread, a socket or the priority, which only root may have.
pub fn prefork(workers: usize, seconds: u64, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // Before all others, whatever else the machine does: answers that come late would be another load. Children and threads inherit it.
    // SAFETY: no preconditions.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A name without a file: nothing is left of it, however this ends.
    let place = SocketAddr::from_abstract_name(format!("cgscope-prefork-{}", std::process::id()))?;
    let listener = UnixListener::bind_addr(&place)?;
    let (mut services, mut children) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let (worker_side, service_side) = UnixStream::pair()?;
        // SAFETY: no thread was started yet, so that the child may do anything.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop((service_side, services));
                let _ = work(&listener, worker_side);
                // SAFETY: no preconditions. What the parent has to clean up is not done twice.
                unsafe { libc::_exit(0) };
            }
            child => children.push(child),
        }
        services.push(service_side);
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let cycle = COMPUTE + CALL + PAUSE;
    for (at, service) in services.into_iter().enumerate() {
        thread::Builder::new().name("remote".into()).spawn(move || serve(service))?;
        let pool = place.clone();
        // One after the other, so that they do not all compute at once.
        let begins = cycle * at as u32 / workers as u32;
        thread::Builder::new().name("client".into()).spawn(move || {
            thread::sleep(begins);
            ask(&pool)
        })?;
    }
    ready()?;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    for child in children {
        // SAFETY: children of ours that have not been reaped.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    Ok(())
}

/// The worker: until the pool is gone.
fn work(listener: &UnixListener, mut remote: UnixStream) -> io::Result<()> {
    // SAFETY: no preconditions. Who is killed cannot kill.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    loop {
        let (mut client, _) = listener.accept()?;
        let end = ran() + COMPUTE;
        while ran() < end {
            hint::spin_loop();
        }
        remote.write_all(b"?")?;
        remote.read_exact(&mut [0])?;
        client.write_all(b"!")?;
    }
}

/// The remote service: it answers late.
fn serve(mut worker: UnixStream) -> io::Result<()> {
    loop {
        worker.read_exact(&mut [0])?;
        thread::sleep(CALL);
        worker.write_all(b"!")?;
    }
}

/// A client: one request after the other.
fn ask(pool: &SocketAddr) -> io::Result<()> {
    loop {
        UnixStream::connect_addr(pool)?.read_exact(&mut [0])?;
        thread::sleep(PAUSE);
    }
}

/// Time on a CPU of this thread.
fn ran() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is written whole.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
