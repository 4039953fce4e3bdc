//! Test loads with known effects. Each load has a limited number of tasks and a limited run time.
//!
//! Every command prints `ready` when its load has started. If a command has a result, it prints the result as its last line.

#[path = "workload/blend.rs"]
mod blend;
#[path = "workload/storm.rs"]
mod storm;

use std::{
    fs, hint,
    io::{self, Read, Write},
    net::UdpSocket,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use cgscope_lab::{published, requests::Arrivals};

const USAGE: &str = "workload burn THREADS SECONDS [pair|pin] | bound CPUS THREADS SECONDS | far CPUS NODE MIB SECONDS | hop CPU CPU COUNT SECONDS | \
                     sleep THREADS SECONDS | blink THREADS SECONDS | mix THREADS SECONDS | fork COUNT | threads COUNT | churn SECONDS | mergeable MIB SECONDS | \
                     spread DIRECTORY CGROUPS THREADS SECONDS [yield] | relay FROM TO CPU MICROSECONDS SECONDS | doze CPU SECONDS | packets CPU SECONDS | vfork SECONDS | requests regular|uneven|random|closed COST_US GAP_US SECONDS | convoy THREADS FREE_US HELD_US SECONDS | prefork WORKERS SECONDS | jobs COUNT COST_US GAP_MS SECONDS | processes COUNT NAME SECONDS | pool THREADS WORK_US SECONDS | ring CPU SECONDS | fifo COST_US GAP_US SECONDS | blocked SECONDS | wakes HOW ROUNDS WORK_US SECONDS CGROUP CGROUP [NETNS NETNS ADDRESS] | line ROUNDS WORK_US WORK_US PAUSE_US SECONDS CGROUP CGROUP CGROUP | queue PROCESSES ROUNDS FREE_US HELD_US SECONDS CGROUP | tokens THREADS TOKENS SECONDS | moved-children SECONDS | blend FILE SECONDS | storm DIRECTORY PER_SECOND SECONDS | \
                     cost COMMAND...";

/// Number of children or threads that run at the same time.
const BATCH: usize = 100;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().ok();
    let done = match words.as_slice() {
        ["burn", threads, seconds, rest @ ..] => number(threads)
            .zip(number(seconds))
            .map(|(threads, seconds)| burn(threads, seconds as u64, rest.first().copied())),
        ["bound", cpus, threads, seconds] => number(threads)
            .zip(number(seconds))
            .zip(list(cpus))
            .map(|((threads, seconds), cpus)| bound(&cpus, threads, seconds as u64)),
        ["far", cpus, node, mib, seconds] => number(node)
            .zip(number(mib))
            .zip(number(seconds).zip(list(cpus)))
            .map(|((node, mib), (seconds, cpus))| far(&cpus, node, mib << 20, seconds as u64)),
        ["hop", from, to, count, seconds] => number(from)
            .zip(number(to))
            .zip(number(count).zip(number(seconds)))
            .map(|(cpus, (count, seconds))| hop(cpus.into(), count, seconds as u64)),
        ["sleep", threads, seconds] => {
            number(threads).zip(number(seconds)).map(|(threads, seconds)| sleep(threads, seconds as u64))
        }
        ["blink", threads, seconds] => {
            number(threads).zip(number(seconds)).map(|(threads, seconds)| blink(threads, seconds as u64))
        }
        ["mix", threads, seconds] => {
            number(threads).zip(number(seconds)).map(|(threads, seconds)| mix(threads, seconds as u64))
        }
        ["fork", count] => number(count).map(fork),
        ["mergeable", mib, seconds] => {
            number(mib).zip(number(seconds)).map(|(mib, seconds)| mergeable(mib << 20, seconds as u64))
        }
        ["spread", directory, cgroups, threads, seconds, rest @ ..] => {
            number(cgroups).zip(number(threads)).zip(number(seconds)).map(|((cgroups, threads), seconds)| {
                spread(directory, cgroups, threads, seconds as u64, rest == ["yield"])
            })
        }
        ["relay", from, to, cpu, micros, seconds] => number(cpu)
            .zip(number(micros))
            .zip(number(seconds))
            .map(|((cpu, micros), seconds)| relay([from, to], cpu, micros as u64, seconds as u64)),
        ["doze", cpu, seconds] => {
            number(cpu).zip(number(seconds)).map(|(cpu, seconds)| doze(cpu, seconds as u64))
        }
        ["packets", cpu, seconds] => {
            number(cpu).zip(number(seconds)).map(|(cpu, seconds)| packets(cpu, seconds as u64))
        }
        ["threads", count] => number(count).map(threads),
        ["moved-children", seconds] => number(seconds).map(|seconds| moved_children(seconds as u64)),
        ["churn", seconds] => number(seconds).map(|seconds| churn(seconds as u64)),
        ["blend", file, seconds] => number(seconds).map(|seconds| blend::blend(file, seconds as u64)),
        ["vfork", seconds] => number(seconds).map(|seconds| ready().and_then(|()| vfork(seconds as u32))),
        ["blocked", seconds] => number(seconds).map(|seconds| cgscope_lab::blocked(seconds as u64, ready)),
        ["wakes" | "line" | "queue" | "tokens", ..] => wakes(&words),
        ["requests", arrivals, cost, gap, seconds] => Arrivals::parse(arrivals)
            .zip(number(cost))
            .zip(number(gap).zip(number(seconds)))
            .map(|((arrivals, cost), (gap, seconds))| {
                requests(arrivals, cost as u64, gap as u64, seconds as u64)
            }),
        ["convoy", threads, free, held, seconds] => number(threads)
            .zip(number(free))
            .zip(number(held).zip(number(seconds)))
            .map(|((threads, free), (held, seconds))| convoy(threads, [free, held], seconds as u64)),
        ["prefork", workers, seconds] => number(workers)
            .zip(number(seconds))
            .map(|(workers, seconds)| cgscope_lab::prefork(workers, seconds as u64, ready)),
        ["jobs", count, cost, gap, seconds] => number(count)
            .zip(number(cost))
            .zip(number(gap).zip(number(seconds)))
            .map(|((count, cost), (gap, seconds))| jobs(count, cost as u64, gap as u64, seconds as u64)),
        ["processes", count, name, seconds] => number(count).zip(number(seconds)).map(|(count, seconds)| {
            published::processes(count, name, Instant::now() + Duration::from_secs(seconds as u64), ready)
        }),
        ["pool", threads, work, seconds] => number(threads)
            .zip(number(work))
            .zip(number(seconds))
            .map(|((threads, work), seconds)| pool(threads, work as u64, seconds as u64)),
        ["ring", cpu, seconds] => {
            number(cpu).zip(number(seconds)).map(|(cpu, seconds)| ring(cpu, seconds as u64))
        }
        ["fifo", cost, gap, seconds] => number(cost)
            .zip(number(gap))
            .zip(number(seconds))
            .map(|((cost, gap), seconds)| fifo(cost as u64, gap as u64, seconds as u64)),
        ["storm", directory, per_second, seconds] => number(per_second)
            .zip(number(seconds))
            .map(|(per_second, seconds)| storm::storm(directory, per_second as u32, seconds as u64)),
        ["cost", program, args @ ..] => Some(cost(program, args)),
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

/// Runs a command and discards its output. Prints its duration (ns) and its maximum resident memory (bytes). The kernel's maximum
/// includes the memory of the process before `execve`, so a small process must start the command.
fn cost(program: &str, args: &[&str]) -> io::Result<()> {
    ready()?;
    let begun = Instant::now();
    let child = Command::new(program).args(args).stdout(Stdio::null()).spawn()?;
    let mut status = 0;
    // SAFETY: `wait4` writes `status` and `usage`. The child was started above.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(child.id() as i32, &mut status, 0, &mut usage) < 0 {
            return Err(io::Error::last_os_error());
        }
        usage
    };
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        return Err(io::Error::other(format!("{program} {args:?} ended with status {status:#x}")));
    }
    println!("{} {}", begun.elapsed().as_nanos(), usage.ru_maxrss as u64 * 1024);
    Ok(())
}

/// Holds mergeable memory and sleeps. All pages differ, so the kernel's search for equal pages (KSM) never ends.
fn mergeable(bytes: usize, seconds: u64) -> io::Result<()> {
    let mut memory = vec![0u8; bytes];
    for (n, page) in memory.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(n as u64 + 1).to_ne_bytes());
    }
    let start = memory.as_mut_ptr().align_offset(4096);
    let whole = (bytes - start) & !4095;
    // SAFETY: the range has only whole pages of `memory`.
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

/// Runs busy loops: on any CPU, on CPUs 0 and 1 (`pair`), or alternately pinned to CPU 0 and CPU 1 (`pin`). With `pair` and
/// `pin`, the load does not depend on the number of CPUs of the host.
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

fn bound(cpus: &[usize], count: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(move || {
                keep_on(cpus);
                while Instant::now() < end {
                    spin(10_000);
                }
            });
        }
        ready()
    })
}

/// Writes repeatedly to memory that is bound to the NUMA node `node`, from a thread that runs only on `cpus`.
fn far(cpus: &[usize], node: usize, bytes: usize, seconds: u64) -> io::Result<()> {
    keep_on(cpus);
    let nodes = [1u64 << node];
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the mapping is new and is bound to the node before its first page exists. `node` is below 64.
    let memory = unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0);
        if start == libc::MAP_FAILED
            || libc::syscall(libc::SYS_mbind, start, bytes, libc::MPOL_BIND, nodes.as_ptr(), 64usize, 0) != 0
        {
            return Err(io::Error::last_os_error());
        }
        std::slice::from_raw_parts_mut(start.cast::<u8>(), bytes)
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut touch = || memory.iter_mut().step_by(4096).for_each(|byte| *byte = byte.wrapping_add(1));
    touch();
    ready()?;
    while Instant::now() < end {
        touch();
    }
    Ok(())
}

/// Waits on the first CPU for SIGUSR1, moves `count` times between the two CPUs, and then prints `count`.
fn hop(cpus: [usize; 2], count: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    keep_on(&cpus[..1]);
    // SAFETY: the signal set and the signal number are ours.
    unsafe {
        let (mut signals, mut signal) = (std::mem::zeroed(), 0);
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        ready()?;
        libc::sigwait(&signals, &mut signal);
    }
    for i in 1..=count {
        keep_on(&cpus[i % 2..=i % 2]);
        spin(1_000);
    }
    println!("{count}");
    thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

/// Reads a byte from one FIFO, computes for `micros` and writes the byte to the other FIFO. Several relays form a ring that keeps
/// one CPU busy, although each relay runs only briefly.
fn relay(fifos: [&str; 2], cpu: usize, micros: u64, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    keep_on(&[cpu]);
    // Open each FIFO for reading and writing, so that `open` does not wait for the other process.
    let open = |path| fs::OpenOptions::new().read(true).write(true).open(path);
    let (mut from, mut to) = (open(fifos[0])?, open(fifos[1])?);
    ready()?;
    let mut byte = [0];
    while Instant::now() < end {
        from.read_exact(&mut byte)?;
        compute(Duration::from_micros(micros));
        to.write_all(&byte)?;
    }
    Ok(())
}

fn doze(cpu: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    keep_on(&[cpu]);
    ready()?;
    while Instant::now() < end {
        compute(Duration::from_millis(1));
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Sends UDP packets to its own address and never reads them. The kernel delivers each packet in a softirq on this CPU.
fn packets(cpu: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    keep_on(&[cpu]);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(socket.local_addr()?)?;
    ready()?;
    while Instant::now() < end {
        for _ in 0..100 {
            socket.send(&[0; 1024])?;
        }
    }
    Ok(())
}

/// Starts a load of [`cgscope_lab::wakes`].
fn wakes(words: &[&str]) -> Option<io::Result<()>> {
    let number = |text: &str| text.parse::<usize>().ok();
    let micros = |text: &str| text.parse().ok().map(Duration::from_micros);
    Some(match words {
        ["wakes", how, rounds, work, seconds, sleeper, waker, rest @ ..] => {
            let (rounds, seconds) = (number(rounds)?, number(seconds)? as u64);
            let apart = rest.try_into().ok();
            cgscope_lab::wakes::wakes(how, rounds, micros(work)?, seconds, [sleeper, waker], apart, ready)
        }
        ["line", rounds, middle, last, pause, seconds, cgroups @ ..] => {
            let works = [micros(middle)?, micros(last)?];
            let (pause, seconds) = (micros(pause)?, number(seconds)? as u64);
            cgscope_lab::wakes::line(number(rounds)?, works, pause, seconds, cgroups.try_into().ok()?, ready)
        }
        ["queue", processes, rounds, free, held, seconds, cgroup] => {
            let (costs, seconds) = ([micros(free)?, micros(held)?], number(seconds)? as u64);
            cgscope_lab::wakes::queue(number(processes)?, number(rounds)?, costs, seconds, cgroup, ready)
        }
        ["tokens", threads, tokens, seconds] => {
            let time = Duration::from_secs(number(seconds)? as u64);
            cgscope_lab::wakes::tokens(number(threads)?, number(tokens)?, time, ready)
        }
        _ => return None,
    })
}

/// Serves requests of a fixed cost. Prints the number of requests.
fn requests(arrivals: Arrivals, cost_us: u64, gap_us: u64, seconds: u64) -> io::Result<()> {
    ready()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let (cost, gap) = (Duration::from_micros(cost_us), Duration::from_micros(gap_us));
    println!("{}", cgscope_lab::requests::requests(arrivals, cost, gap, end)?);
    Ok(())
}

/// Runs threads that compete for one lock. Prints how often a thread took the lock.
fn convoy(threads: usize, costs_us: [usize; 2], seconds: u64) -> io::Result<()> {
    ready()?;
    let [free, held] = costs_us.map(|us| Duration::from_micros(us as u64));
    println!("{}", cgscope_lab::convoy(threads, free, held, Instant::now() + Duration::from_secs(seconds)));
    Ok(())
}

fn jobs(count: usize, cost_us: u64, gap_ms: u64, seconds: u64) -> io::Result<()> {
    ready()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    published::jobs(count, Duration::from_micros(cost_us), Duration::from_millis(gap_ms), end)
}

/// Runs threads that spin at a barrier. Prints the number of rounds.
fn pool(threads: usize, work_us: u64, seconds: u64) -> io::Result<()> {
    ready()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    println!("{}", published::spinning_pool(threads, Duration::from_micros(work_us), end));
    Ok(())
}

/// Computes on one CPU, on which a thread of its io_uring polls.
fn ring(cpu: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    keep_on(&[cpu]);
    let _ring = published::polled_ring(cpu as u32, Duration::from_secs(seconds))?;
    ready()?;
    while Instant::now() < end {
        spin(10_000);
    }
    Ok(())
}

/// Requests SCHED_FIFO, and serves requests under whatever policy it has then. Prints the number of requests.
fn fifo(cost_us: u64, gap_us: u64, seconds: u64) -> io::Result<()> {
    let wanted = libc::sched_param { sched_priority: 50 };
    // SAFETY: the kernel only reads the parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &wanted) } < 0 {
        eprintln!("no SCHED_FIFO: {}", io::Error::last_os_error());
    }
    requests(Arrivals::Regular, cost_us, gap_us, seconds)
}

fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        spin(100);
    }
}

/// Waits for a sleeping child, as a parent does after `vfork`. Only SIGKILL interrupts this wait.
fn vfork(seconds: u32) -> io::Result<()> {
    extern "C" fn child(seconds: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `sleep` touches no memory.
        unsafe { libc::sleep(seconds as libc::c_uint) as libc::c_int }
    }
    let mut stack = vec![0u128; 4096];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child has its own stack. This call returns only after the child has ended, so the stack outlives the child.
    let pid =
        unsafe { libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, seconds as usize as *mut _) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

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

/// Runs threads that alternately compute for some microseconds and sleep for 1 ms.
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

/// Starts one process with `threads` threads in each of the cgroups `0`, `1`, ... below `directory`. If `yields` is true, the
/// main thread of each process runs and yields all the time. Otherwise the main thread wakes every second. The other threads
/// sleep.
fn spread(directory: &str, cgroups: usize, threads: usize, seconds: u64, yields: bool) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut settled, settle) = io::pipe()?;
    for i in 0..cgroups {
        // SAFETY: this process has one thread, so its child can call any function.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                let lived = live_in(&format!("{directory}/{i}"), threads, end, settle, yields);
                std::process::exit(if lived.is_ok() { 0 } else { 1 });
            }
            _ => {}
        }
    }
    drop(settle);
    for _ in 0..cgroups {
        settled.read_exact(&mut [0])?;
    }
    ready()?;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

fn live_in(
    cgroup: &str,
    threads: usize,
    end: Instant,
    mut settle: io::PipeWriter,
    yields: bool,
) -> io::Result<()> {
    // SAFETY: `PR_SET_PDEATHSIG` takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    fs::write(format!("{cgroup}/cgroup.procs"), "0")?;
    thread::scope(|scope| {
        for _ in 1..threads {
            thread::Builder::new().stack_size(16 * 1024).spawn_scoped(scope, move || {
                thread::sleep(end.saturating_duration_since(Instant::now()));
            })?;
        }
        settle.write_all(&[0])?;
        drop(settle);
        while Instant::now() < end {
            spin(10_000);
            if yields {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now())));
            }
        }
        Ok(())
    })
}

/// Runs a mix of threads as on a real host. Half of the threads sleep. One thread in 500 runs all the time. The other threads
/// wake 1, 10, 100 or 200 times a second. Most of these wake once a second.
fn mix(count: usize, seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        for i in 0..count {
            let pause_ms = match i % 20 {
                0..10 => seconds * 1_000,
                10..15 => 1_000,
                15..18 => 100,
                18 => 10,
                _ => 5,
            };
            let burns = i % 500 == 499;
            scope.spawn(move || {
                while Instant::now() < end {
                    spin(20_000);
                    let left = end.saturating_duration_since(Instant::now());
                    if !burns {
                        thread::sleep(Duration::from_millis(pause_ms).min(left));
                    }
                }
            });
        }
        ready()
    })
}

/// Runs short-lived processes. Prints the sum of the run delays of this process and of all children, as the kernel's files report
/// them (ns). Reads the run delay of a child when the child is a zombie, because then the run delay no longer changes.
fn fork(count: usize) -> io::Result<()> {
    ready()?;
    // Subtract this earlier run delay: it is from before the process entered its cgroup, so it does not count for the cgroup.
    let before_ns = run_delay("/proc/self/schedstat")?;
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
    println!("{}", run_delay_ns + run_delay("/proc/self/schedstat")? - before_ns);
    Ok(())
}

/// Runs short-lived processes, one after the other. Before a process first runs, moves the process from CPU 0 to CPU 1 and back.
fn moved_children(seconds: u64) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    ready()?;
    while Instant::now() < end {
        let child = fork_one(0)?;
        for cpu in [0, 1, 0] {
            keep_task_on(child, &[cpu]);
        }
        // SAFETY: the child is ours.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    Ok(())
}

fn fork_one(i: u64) -> io::Result<i32> {
    // SAFETY: this process has one thread, and the child calls only `sched_yield` and `_exit`.
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
    // SAFETY: the child is ours. `waitid` does not reap the child, so `waitpid` can reap it.
    unsafe {
        let mut info = std::mem::zeroed();
        if libc::waitid(libc::P_PID, child as u32, &mut info, libc::WEXITED | libc::WNOWAIT) != 0 {
            return Err(io::Error::last_os_error());
        }
        // A zombie can still be on its CPU. Its run delay is final only after its last switch.
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

/// Runs threads one after the other. Each thread ends after 20 ms of CPU time.
fn churn(seconds: u64) -> io::Result<()> {
    ready()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let busy = thread::spawn(|| -> io::Result<()> {
            while on_cpu_ns("/proc/thread-self/schedstat")? < 20_000_000 {
                spin(5_000);
            }
            Ok(())
        });
        busy.join().map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(())
}

/// Runs short-lived threads. Prints the sum of their run delays (ns). Each thread reads its own run delay just before it ends, so
/// the sum is a lower bound.
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
    schedstat(path, 1)
}

fn on_cpu_ns(path: &str) -> io::Result<u64> {
    schedstat(path, 0)
}

fn schedstat(path: &str, field: usize) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.split_ascii_whitespace()
        .nth(field)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{path} reads {text:?}")))
}

fn spin(rounds: u32) {
    for i in 0..rounds {
        hint::black_box(i);
    }
}

fn keep_on(cpus: &[usize]) {
    keep_task_on(0, cpus);
}

fn keep_task_on(tid: i32, cpus: &[usize]) {
    // SAFETY: the CPU set is ours. If none of the CPUs exists, the call fails and the thread keeps its affinity.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(tid, size_of_val(&set), &set);
    }
}

/// Parses a CPU list such as `0-3,8`.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    Some(cpus)
}
