//! Loads of a known kind, each bounded in number and time.
//!
//! Every command prints `ready` when its load is under way, and its result, if any, as the last line.

use std::{
    fs, hint,
    io::{self, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

const USAGE: &str = "workload burn THREADS SECONDS [pair|pin] | sleep THREADS SECONDS | blink THREADS SECONDS | fork COUNT | threads COUNT | mergeable MIB SECONDS";

/// Children or threads alive at a time.
const BATCH: usize = 100;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().ok();
    let done = match words.as_slice() {
        ["burn", threads, seconds, rest @ ..] => number(threads)
            .zip(number(seconds))
            .map(|(threads, seconds)| burn(threads, seconds as u64, rest.first().copied())),
        ["sleep", threads, seconds] => {
            number(threads).zip(number(seconds)).map(|(threads, seconds)| sleep(threads, seconds as u64))
        }
        ["blink", threads, seconds] => {
            number(threads).zip(number(seconds)).map(|(threads, seconds)| blink(threads, seconds as u64))
        }
        ["fork", count] => number(count).map(fork),
        ["mergeable", mib, seconds] => {
            number(mib).zip(number(seconds)).map(|(mib, seconds)| mergeable(mib << 20, seconds as u64))
        }
        ["threads", count] => number(count).map(threads),
        _ => None,
    };
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("workload: {error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn ready() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()
}

/// Memory whose pages differ, so that the kernel's search for equal ones never ends, and sleeps.
fn mergeable(bytes: usize, seconds: u64) -> io::Result<()> {
    let mut memory = vec![0u8; bytes];
    for (n, page) in memory.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(n as u64 + 1).to_ne_bytes());
    }
    let start = memory.as_mut_ptr().align_offset(4096);
    let whole = (bytes - start) & !4095;
    // SAFETY: whole pages within our own memory.
    let advised =
        unsafe { libc::madvise(memory.as_mut_ptr().add(start).cast(), whole, libc::MADV_MERGEABLE) };
    if advised != 0 {
        return Err(io::Error::last_os_error());
    }
    ready()?;
    thread::sleep(Duration::from_secs(seconds));
    hint::black_box(&memory);
    Ok(())
}

/// Busy loops, free to move; or between the CPUs 0 and 1; or each kept on one of these: the same load on hosts of all sizes.
fn burn(count: usize, seconds: u64, place: Option<&str>) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for i in 0..count {
            scope.spawn(move || {
                match place {
                    Some("pair") => keep_on(&[0, 1]),
                    Some("pin") => keep_on(&[i % 2]),
                    _ => {}
                }
                while Instant::now() < end {
                    spin(10_000);
                }
            });
        }
        ready()
    })
}

/// Threads that do nothing at all.
fn sleep(count: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for _ in 0..count {
            thread::Builder::new().stack_size(16 * 1024).spawn_scoped(scope, move || {
                thread::sleep(end.saturating_duration_since(Instant::now()));
            })?;
        }
        ready()
    })
}

/// Threads that sleep for a millisecond and run for some microseconds, over and over.
fn blink(count: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while Instant::now() < end {
                    spin(10_000);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        ready()
    })
}

/// Short-lived processes. Prints the kernel's own sum of their waits, read of each as a zombie, when it is final, and of
/// ours so far.
fn fork(count: usize) -> io::Result<()> {
    ready()?;
    let mut run_delay_ns = 0;
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let children: Vec<i32> = (0..batch).map(|i| fork_one(i as u64)).collect::<io::Result<_>>()?;
        for child in children {
            run_delay_ns += run_delay_of_zombie(child)?;
        }
        left -= batch;
    }
    println!("{}", run_delay_ns + run_delay("/proc/self/schedstat")?);
    Ok(())
}

fn fork_one(i: u64) -> io::Result<i32> {
    // SAFETY: this process has one thread, and the child calls nothing but sched_yield and _exit.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                for _ in 0..=i % 4 {
                    spin(5_000);
                    libc::sched_yield();
                }
                libc::_exit(0)
            }
            child => Ok(child),
        }
    }
}

fn run_delay_of_zombie(child: i32) -> io::Result<u64> {
    // SAFETY: waits for a child of ours without reaping it, then reaps it.
    unsafe {
        let mut info = std::mem::zeroed();
        if libc::waitid(libc::P_PID, child as u32, &mut info, libc::WEXITED | libc::WNOWAIT) != 0 {
            return Err(io::Error::last_os_error());
        }
        // A zombie may still be on its way off the CPU; afterwards its figures are final.
        let mut before = run_delay(&format!("/proc/{child}/schedstat"))?;
        loop {
            thread::sleep(Duration::from_micros(50));
            let after = run_delay(&format!("/proc/{child}/schedstat"))?;
            if after == before {
                break;
            }
            before = after;
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
        Ok(before)
    }
}

/// Short-lived threads. Prints the sum of their waits as each read it just before its end: a lower bound.
fn threads(count: usize) -> io::Result<()> {
    ready()?;
    let mut run_delay_ns = 0;
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let threads: Vec<_> = (0..batch)
            .map(|i| {
                thread::Builder::new().stack_size(64 * 1024).spawn(move || {
                    for _ in 0..=i % 4 {
                        spin(5_000);
                        thread::yield_now();
                    }
                    run_delay("/proc/thread-self/schedstat")
                })
            })
            .collect::<io::Result<_>>()?;
        for thread in threads {
            run_delay_ns += thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        left -= batch;
    }
    println!("{run_delay_ns}");
    Ok(())
}

fn run_delay(path: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.split_ascii_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{path} reads {text:?}")))
}

fn spin(rounds: u32) {
    for i in 0..rounds {
        hint::black_box(i);
    }
}

fn keep_on(cpus: &[usize]) {
    // SAFETY: a set of ours; where none of the CPUs is there it is refused and leaves the thread free.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
