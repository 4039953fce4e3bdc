//! A load that creates many cgroups, half of them with a process, and removes each after some milliseconds.

use std::{
    fs, io,
    os::fd::AsRawFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Number of cgroups that a thread creates before it removes them. The processes in these cgroups run at the same time and wait
/// for each other.
const AT_A_TIME: u32 = 10;
const THREADS: u32 = 2;

/// Creates and removes cgroups below `directory`. Prints how many cgroups were created.
pub fn storm(directory: &str, per_second: u32, seconds: u64) -> io::Result<()> {
    crate::ready()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let pause = Duration::from_secs(1) * AT_A_TIME * THREADS / per_second;
    let made: io::Result<Vec<u64>> = thread::scope(|scope| {
        let run = |thread| scope.spawn(move || of_a_thread(Path::new(directory), thread, pause, end));
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    println!("{}", made?.iter().sum::<u64>());
    Ok(())
}

fn of_a_thread(directory: &Path, thread: u32, pause: Duration, end: Instant) -> io::Result<u64> {
    let (mut made, mut due) = (0, Instant::now());
    while Instant::now() < end {
        let paths: Vec<_> =
            (0..AT_A_TIME).map(|at| directory.join(format!("{thread}-{}", made + u64::from(at)))).collect();
        let mut children = Vec::new();
        for (at, path) in paths.iter().enumerate() {
            fs::create_dir(path)?;
            // Start a process only in every second cgroup. More processes per second are impossible on two CPUs with other loads.
            if at % 2 == 0 {
                children.push(fork_into(path)?);
            }
        }
        for child in children {
            let mut status = 0;
            // SAFETY: the child is ours.
            if unsafe { libc::waitpid(child, &raw mut status, 0) } != child || status != 0 {
                return Err(io::Error::other(format!("a process ended with status {status:#x}")));
            }
        }
        paths.iter().try_for_each(fs::remove_dir)?;
        made += u64::from(AT_A_TIME);
        due += pause;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(made)
}

fn fork_into(path: &Path) -> io::Result<i32> {
    let procs = fs::OpenOptions::new().write(true).open(path.join("cgroup.procs"))?;
    // SAFETY: the child has a copy of all memory. The child of a process with several threads can call only async-signal-safe
    // functions, and this child calls no others.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let has_entered = libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) == 1;
                for _ in 0..2 {
                    crate::spin(20);
                    libc::sched_yield();
                }
                libc::_exit((!has_entered).into())
            }
            child => Ok(child),
        }
    }
}
