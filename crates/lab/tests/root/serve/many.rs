//! Many viewers of one collection.

use std::{
    fs,
    io::Read,
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cgscope_serve::protocol::Request;

use super::Daemon;
use crate::load::Load;

const CLIENTS: usize = 50;
const TASKS: &str = "2000";
/// Of each phase.
const SECONDS: u64 = 5;
const ROUNDS: usize = 4;

/// CPU time of all its threads, ns, by the kernel's own account.
pub(super) fn cpu_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let ran = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        text.split_ascii_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default()
    };
    threads.map(ran).sum()
}

/// A client that reads what comes, and counts the bytes. It ends with its value.
pub(super) struct Reader {
    socket: UnixStream,
    pub(super) bytes: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reader {
    pub(super) fn start(path: &str) -> Self {
        let mut socket = UnixStream::connect(path).expect("the socket");
        socket.write_all(&Request::every(1_000_000_000).line()).expect("it is read");
        let bytes = Arc::new(AtomicU64::new(0));
        let (mut input, counted) = (socket.try_clone().expect("a socket"), bytes.clone());
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while let Ok(got @ 1..) = input.read(&mut buffer) {
                counted.fetch_add(got as u64, Ordering::Relaxed);
            }
        });
        Self { socket, bytes, thread: Some(thread) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// What the daemon costs, ns of CPU time a second, with so many clients that are there already.
fn cost(pid: u32) -> f64 {
    let (before, begun) = (cpu_ns(pid), Instant::now());
    thread::sleep(Duration::from_secs(SECONDS));
    (cpu_ns(pid) - before) as f64 / begun.elapsed().as_secs_f64()
}

#[test]
fn fifty_viewers_of_two_thousand_tasks_cost_less_than_a_tenth_more_than_one() {
    let (_sleepers, _out) = Load::workload(&["sleep", TASKS, "300"], None);
    let mut daemon = Daemon::start();
    let pid = daemon.pid();
    let path = daemon.socket();
    let one = Reader::start(&path);
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let alone = cost(pid);
        let others: Vec<Reader> = (1..CLIENTS).map(|_| Reader::start(&path)).collect();
        // What they are sent when they come is not what they cost.
        thread::sleep(Duration::from_secs(2));
        let before: Vec<u64> = others.iter().map(|reader| reader.bytes.load(Ordering::Relaxed)).collect();
        let together = cost(pid);
        for (reader, before) in others.iter().zip(before) {
            assert!(reader.bytes.load(Ordering::Relaxed) > before, "each was sent something");
        }
        costs.push((alone, together));
        drop(others);
        thread::sleep(Duration::from_secs(1));
    }
    assert!(one.bytes.load(Ordering::Relaxed) > 0);
    // What else the machine does only adds to it: the least of each is what it costs.
    let least = |of: fn(&(f64, f64)) -> f64| costs.iter().map(of).fold(f64::INFINITY, f64::min);
    let times = least(|(_, together)| *together) / least(|(alone, _)| *alone);
    eprintln!("ns of CPU time a second, alone and with {CLIENTS}: {costs:.0?}; {times:.3} times");
    assert!(times < 1.10, "{costs:.0?}: {times}");
}
