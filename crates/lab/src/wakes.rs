//! Loads of tasks that sleep until other tasks wake them. Who wakes whom, and by which call, is known.
//!
//! All processes settle first, and sleep until SIGUSR1. After their rounds, they sleep until they are killed. So a measurement from
//! before the signal to after the result contains every round.

mod ring;

use std::{
    fs::{self, File},
    io::{self, PipeReader, PipeWriter, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::net::UnixStream,
    },
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Duration,
};

use crate::requests::compute;

/// Maximum number of processes of a load.
const MEMBERS: usize = 16;

/// What a process measured itself, ns of CLOCK_MONOTONIC: when its rounds began and ended, and how long it waited in them.
type Marks = [AtomicU64; 3];

/// Memory that all processes share.
#[repr(C)]
struct Shared {
    words: [AtomicU32; 2],
    marks: [Marks; MEMBERS],
}

fn shared() -> io::Result<&'static Shared> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: the mapping is new, and is never unmapped. Zeros are valid for all fields.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), size_of::<Shared>(), access, kind, -1, 0);
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(&*start.cast()) }
    }
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` writes all of `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn signals() -> libc::sigset_t {
    // SAFETY: the set is ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        set
    }
}

fn block_signal() {
    // SAFETY: the set is ours.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &signals(), ptr::null_mut()) };
}

fn wait_for_signal() {
    let mut signal = 0;
    // SAFETY: the set and the number are ours.
    unsafe { libc::sigwait(&signals(), &mut signal) };
}

fn join(cgroup: &str) -> io::Result<()> {
    fs::write(format!("{cgroup}/cgroup.procs"), "0")
}

/// The processes of a load.
struct Group {
    shared: &'static Shared,
    members: usize,
    reports: PipeReader,
    report: PipeWriter,
}

impl Group {
    /// If the load does not end within `seconds`, SIGALRM ends it.
    fn new(seconds: u64) -> io::Result<Self> {
        block_signal();
        // SAFETY: no preconditions.
        unsafe { libc::alarm(seconds as u32) };
        let (reports, report) = io::pipe()?;
        Ok(Self { shared: shared()?, members: 0, reports, report })
    }

    /// Starts a process in a cgroup.
    fn add(
        &mut self,
        cgroup: &str,
        rounds: impl FnOnce(&'static Shared, &Marks) -> io::Result<()>,
    ) -> io::Result<()> {
        let marks = &self.shared.marks[self.members];
        self.members += 1;
        // SAFETY: this process has one thread, so its child can call any function.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: the call takes no pointer.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let done = join(cgroup).and_then(|()| self.report.write_all(&[0])).and_then(|()| {
                    wait_for_signal();
                    marks[0].store(now_ns(), Relaxed);
                    rounds(self.shared, marks)?;
                    marks[1].store(now_ns(), Relaxed);
                    self.report.write_all(&[0])
                });
                if done.is_err() {
                    std::process::exit(1);
                }
                loop {
                    // SAFETY: no preconditions.
                    unsafe { libc::pause() };
                }
            }
            _ => Ok(()),
        }
    }

    /// Calls `ready`, and prints the marks of all processes after their rounds.
    fn finish(mut self, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut bytes = vec![0; self.members];
        self.reports.read_exact(&mut bytes)?;
        ready()?;
        self.reports.read_exact(&mut bytes)?;
        let marks = self.shared.marks[..self.members].iter().flatten();
        let words: Vec<_> = marks.map(|mark| mark.load(Relaxed).to_string()).collect();
        println!("{}", words.join(" "));
        // Until SIGALRM.
        loop {
            thread::park();
        }
    }
}

type Call = Box<dyn FnMut() -> io::Result<()>>;

/// One end of a connection between two processes.
struct End {
    wait: Call,
    wake: Call,
}

impl End {
    fn of(mut from: impl Read + 'static, mut to: impl Write + 'static) -> Self {
        Self {
            wait: Box::new(move || from.read_exact(&mut [0; 8])),
            wake: Box::new(move || to.write_all(&1_u64.to_ne_bytes())),
        }
    }

    fn of_words(own: &'static AtomicU32, others: &'static AtomicU32) -> Self {
        Self {
            wait: Box::new(|| {
                take(own);
                Ok(())
            }),
            wake: Box::new(|| {
                give(others);
                Ok(())
            }),
        }
    }

    /// Waits, and adds the time to the third mark.
    fn wait(&mut self, marks: &Marks) -> io::Result<()> {
        let begun_ns = now_ns();
        (self.wait)()?;
        marks[2].fetch_add(now_ns() - begun_ns, Relaxed);
        Ok(())
    }

    fn wake(&mut self) -> io::Result<()> {
        (self.wake)()
    }
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word lives as long as the call, and there is no timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, ptr::null::<libc::timespec>()) };
}

/// Takes one from a number, and sleeps while it is 0.
fn take(word: &AtomicU32) {
    while word.fetch_update(SeqCst, SeqCst, |number| number.checked_sub(1)).is_err() {
        futex(word, libc::FUTEX_WAIT, 0);
    }
}

fn give(word: &AtomicU32) {
    word.fetch_add(1, SeqCst);
    futex(word, libc::FUTEX_WAKE, 1);
}

fn lock(file: &File, operation: i32) -> io::Result<()> {
    // SAFETY: no preconditions.
    if unsafe { libc::flock(file.as_raw_fd(), operation) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn event() -> io::Result<[File; 2]> {
    // SAFETY: the descriptor is new and ours.
    let file = unsafe { File::from_raw_fd(libc::eventfd(0, 0)) };
    Ok([file.try_clone()?, file])
}

fn enter(namespace: &str) -> io::Result<()> {
    let file = File::open(namespace)?;
    // SAFETY: no preconditions.
    if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Connects two sockets. `apart`: the network namespaces of the two, and the address of the second one.
fn connected(apart: Option<[&str; 3]>) -> io::Result<[TcpStream; 2]> {
    let [first, second, address] = apart.unwrap_or(["/proc/self/ns/net", "/proc/self/ns/net", "127.0.0.1"]);
    enter(second)?;
    let listener = TcpListener::bind((address, 0))?;
    enter(first)?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let server = listener.accept()?.0;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok([client, server])
}

fn ends(how: &str, shared: &'static Shared, apart: Option<[&str; 3]>) -> io::Result<[End; 2]> {
    let pipes = || io::pipe().and_then(|one| Ok((one, io::pipe()?)));
    Ok(match how {
        "pipe" => {
            let ((own, others_wake), (others, own_wake)) = pipes()?;
            [End::of(own, own_wake), End::of(others, others_wake)]
        }
        "ring" => {
            let ((own, others_wake), (others, own_wake)) = pipes()?;
            let mut ring = ring::Ring::new()?;
            let mut end = End::of(io::empty(), own_wake);
            end.wait = Box::new(move || ring.read(own.as_raw_fd(), &mut [0; 8]));
            [end, End::of(others, others_wake)]
        }
        "eventfd" => {
            let ([own, others_wake], [others, own_wake]) = (event()?, event()?);
            [End::of(own, own_wake), End::of(others, others_wake)]
        }
        "unix" => {
            let (one, other) = UnixStream::pair()?;
            [End::of(one.try_clone()?, one), End::of(other.try_clone()?, other)]
        }
        "tcp" => {
            let [one, other] = connected(apart)?;
            [End::of(one.try_clone()?, one), End::of(other.try_clone()?, other)]
        }
        "futex" => {
            let [one, other] = &shared.words;
            [End::of_words(one, other), End::of_words(other, one)]
        }
        _ => return Err(io::Error::other(format!("unknown: {how}"))),
    })
}

/// Starts a process that sleeps and one that wakes it, each in its cgroup. In each round, the second one uses `work` of CPU time
/// while the first one sleeps. `how` they wait is `pipe`, `ring` (the first one reads through io_uring), `eventfd`, `unix`, `tcp`,
/// `futex`, `flock` or `child` (a new child works in each round). Then prints the times of all processes.
///
/// # Errors
/// Fails if the host refuses a process or a connection.
pub fn wakes(
    how: &str,
    rounds: usize,
    work: Duration,
    seconds: u64,
    cgroups: [&str; 2],
    apart: Option<[&str; 3]>,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut group = Group::new(seconds)?;
    match how {
        "child" => group.add(cgroups[0], |_, marks| {
            (0..rounds).try_for_each(|_| sleep_for_child(cgroups[1], work, marks))
        })?,
        "flock" => {
            let [mut sleeper, mut waker] = ends("pipe", group.shared, None)?;
            let (file, same_file) = crate::blocked::same_file_twice()?;
            group.add(cgroups[0], |_, marks| {
                (0..rounds).try_for_each(|_| {
                    sleeper.wait(marks)?;
                    let begun_ns = now_ns();
                    lock(&file, libc::LOCK_EX)?;
                    marks[2].fetch_add(now_ns() - begun_ns, Relaxed);
                    lock(&file, libc::LOCK_UN)?;
                    sleeper.wake()
                })
            })?;
            group.add(cgroups[1], |_, marks| {
                (0..rounds).try_for_each(|_| {
                    lock(&same_file, libc::LOCK_EX)?;
                    waker.wake()?;
                    compute(work);
                    lock(&same_file, libc::LOCK_UN)?;
                    waker.wait(marks)
                })
            })?;
        }
        _ => {
            let [mut sleeper, mut waker] = ends(how, group.shared, apart)?;
            group.add(cgroups[0], |_, marks| {
                (0..rounds).try_for_each(|_| sleeper.wake().and_then(|()| sleeper.wait(marks)))
            })?;
            group.add(cgroups[1], |_, marks| {
                (0..rounds).try_for_each(|_| {
                    waker.wait(marks)?;
                    compute(work);
                    waker.wake()
                })
            })?;
        }
    }
    group.finish(ready)
}

fn sleep_for_child(cgroup: &str, work: Duration, marks: &Marks) -> io::Result<()> {
    // SAFETY: this process has one thread, so its child can call any function.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let joined = join(cgroup);
            compute(work);
            // SAFETY: ends this process.
            unsafe { libc::_exit(i32::from(joined.is_err())) }
        }
        child => {
            let (begun_ns, mut status) = (now_ns(), 0);
            // SAFETY: the child is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            marks[2].fetch_add(now_ns() - begun_ns, Relaxed);
            if status == 0 { Ok(()) } else { Err(io::Error::other("a child failed")) }
        }
    }
}

/// Keeps this process on one of the CPUs 0 and 1. Without that CPU, it may run on any.
fn keep_on(cpu: usize) {
    // SAFETY: the CPU set is ours.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Starts three processes, each in its cgroup, on CPU 0, 1 and 0: nobody waits for the CPU of the task that it woke. In each round,
/// the first one sleeps for the second one, which works, sleeps for the third one and works again. `works`: the CPU time of the
/// second and of the third one. Between rounds, the first one sleeps for `pause`. Then prints the times of all processes.
///
/// # Errors
/// Fails if the host refuses a process or a connection.
pub fn line(
    rounds: usize,
    works: [Duration; 2],
    pause: Duration,
    seconds: u64,
    cgroups: [&str; 3],
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut group = Group::new(seconds)?;
    let [mut first, mut second] = ends("pipe", group.shared, None)?;
    let [mut middle, mut last] = ends("eventfd", group.shared, None)?;
    group.add(cgroups[0], |_, marks| {
        keep_on(0);
        (0..rounds).try_for_each(|_| {
            first.wake()?;
            first.wait(marks)?;
            thread::sleep(pause);
            Ok(())
        })
    })?;
    group.add(cgroups[1], |_, marks| {
        keep_on(1);
        // The mark has only the waits for the third one.
        let idle = Marks::default();
        (0..rounds).try_for_each(|_| {
            second.wait(&idle)?;
            compute(works[0] / 2);
            middle.wake()?;
            middle.wait(marks)?;
            compute(works[0] / 2);
            second.wake()
        })
    })?;
    group.add(cgroups[2], |_, marks| {
        keep_on(0);
        (0..rounds).try_for_each(|_| {
            last.wait(marks)?;
            compute(works[1]);
            last.wake()
        })
    })?;
    group.finish(ready)
}

/// Starts processes in one cgroup, which need the same lock in shared memory. In each round, a process uses the CPU time `free`
/// without the lock, and then `held` with the lock. Then prints the times of all processes.
///
/// # Errors
/// Fails if the host refuses a process.
pub fn queue(
    processes: usize,
    rounds: usize,
    [free, held]: [Duration; 2],
    seconds: u64,
    cgroup: &str,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let mut group = Group::new(seconds)?;
    group.shared.words[0].store(1, SeqCst);
    for _ in 0..processes {
        group.add(cgroup, |shared, marks| {
            let lock = &shared.words[0];
            for _ in 0..rounds {
                compute(free);
                let begun_ns = now_ns();
                take(lock);
                marks[2].fetch_add(now_ns() - begun_ns, Relaxed);
                compute(held);
                give(lock);
            }
            Ok(())
        })?;
    }
    group.finish(ready)
}

/// Starts threads that wake each other at random, without a pause, for `time` from SIGUSR1 on: `tokens` of them are awake. Prints
/// the number of wakeups.
///
/// # Errors
/// Fails if the host refuses a thread.
pub fn tokens(
    threads: usize,
    tokens: usize,
    time: Duration,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    block_signal();
    let words: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
    let (count, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for own in 0..threads {
            let (words, count, over) = (&words, &count, &over);
            let pass = move || {
                let mut random = (own as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                loop {
                    take(&words[own]);
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if !over.load(Relaxed) {
                        count.fetch_add(1, Relaxed);
                        give(&words[(random % threads as u64) as usize]);
                    }
                }
            };
            thread::Builder::new().stack_size(16 * 1024).spawn_scoped(scope, pass)?;
        }
        ready()?;
        wait_for_signal();
        (0..tokens).for_each(|token| give(&words[token % threads]));
        thread::sleep(time);
        over.store(true, Relaxed);
        // The tokens on their way.
        thread::sleep(Duration::from_millis(200));
        println!("{}", count.load(Relaxed));
        loop {
            thread::park();
        }
    })
}
