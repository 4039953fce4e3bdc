//! A pool of forked processes, as in a web server. Each process receives a request, computes, calls a remote service and answers
//! the request.

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

/// CPU time that a worker uses for each request.
pub const COMPUTE: Duration = Duration::from_millis(20);
/// Time that a worker waits for the remote service.
pub const CALL: Duration = Duration::from_millis(65);
/// Time that a client pauses between two requests.
pub const PAUSE: Duration = Duration::from_millis(15);

/// Forks `workers` processes and sends requests to them for `seconds`. The remote service and the clients are threads of this
/// process. Calls `ready` when all workers and threads have started.
///
/// # Errors
/// Fails if the host refuses a process, a thread, a socket, or the highest priority, which only root can set.
pub fn prefork(workers: usize, seconds: u64, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // Run at the highest priority, because delayed answers would change the load. Children and threads inherit the priority.
    // SAFETY: no preconditions.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // An abstract socket has no file, so no file remains after a crash.
    let place = SocketAddr::from_abstract_name(format!("cgscope-prefork-{}", std::process::id()))?;
    let listener = UnixListener::bind_addr(&place)?;
    let (mut services, mut children) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let (worker_side, service_side) = UnixStream::pair()?;
        // SAFETY: no thread was started yet, so the child can call any function.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop((service_side, services));
                let _ = work(&listener, worker_side);
                // SAFETY: no preconditions. `_exit` skips the cleanup, because the parent does it.
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
        // Stagger the clients, so that the workers do not all compute at once.
        let begins = cycle * at as u32 / workers as u32;
        thread::Builder::new().name("client".into()).spawn(move || {
            thread::sleep(begins);
            ask(&pool)
        })?;
    }
    ready()?;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    for child in children {
        // SAFETY: the children are ours and have not been reaped.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    Ok(())
}

/// Runs a worker, which serves requests until the parent kills this process.
fn work(listener: &UnixListener, mut remote: UnixStream) -> io::Result<()> {
    // SAFETY: no preconditions. If the parent is killed, the kernel kills the workers.
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

/// Runs the remote service of one worker. Answers each request after [`CALL`].
fn serve(mut worker: UnixStream) -> io::Result<()> {
    loop {
        worker.read_exact(&mut [0])?;
        thread::sleep(CALL);
        worker.write_all(b"!")?;
    }
}

/// Runs a client, which sends one request after the other.
fn ask(pool: &SocketAddr) -> io::Result<()> {
    loop {
        UnixStream::connect_addr(pool)?.read_exact(&mut [0])?;
        thread::sleep(PAUSE);
    }
}

/// Returns the CPU time of this thread.
fn ran() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` writes all of `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
