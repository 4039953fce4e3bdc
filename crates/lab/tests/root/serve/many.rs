//! Many viewers share one collector.

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
use crate::{bench::median, load::Load};

const CLIENTS: usize = 50;
const TASKS: &str = "2000";
const SECONDS: u64 = 3;
/// Number of rounds. In each round, the test measures for [`SECONDS`] with one viewer, and then for [`SECONDS`] with all viewers.
/// The result is the median of the differences.
const ROUNDS: usize = 3;
/// Maximum CPU time that each additional viewer causes in the thread that takes samples, ns per second. The measured value is
/// 2,600, of 900,000 that this thread uses in total.
const MOST: f64 = 10_000.0;

#[derive(Clone, Copy, Debug)]
struct Cpu {
    /// CPU time of the thread that takes samples.
    collection: u64,
    /// CPU time of all threads, including the threads that filter, write and send.
    all: u64,
}

fn cpu(pid: u32) -> Cpu {
    let mut cpu = Cpu { collection: 0, all: 0 };
    for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("the threads of a live process").flatten()
    {
        let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let ran = read("schedstat");
        let ns: u64 = ran.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or_default();
        cpu.all += ns;
        if read("comm").trim() == "collector" {
            cpu.collection += ns;
        }
    }
    cpu
}

/// A client that reads all data and counts the bytes. Drop disconnects the client.
pub(super) struct Reader {
    socket: UnixStream,
    pub(super) bytes: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Reader {
    pub(super) fn start(path: &str) -> Self {
        let mut socket = UnixStream::connect(path).expect("the socket");
        socket.write_all(&Request::every(1_000_000_000).line()).expect("the daemon reads the request");
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

fn cost(pid: u32) -> [f64; 2] {
    let (before, begun) = (cpu(pid), Instant::now());
    thread::sleep(Duration::from_secs(SECONDS));
    let (now, seconds) = (cpu(pid), begun.elapsed().as_secs_f64());
    [now.collection - before.collection, now.all - before.all].map(|ns| ns as f64 / seconds)
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: asserts CPU time for each task of the host"]
    fn each_of_fifty_viewers_of_two_thousand_tasks_costs_some_microseconds_a_second() {
        let (_sleepers, _out) = Load::workload(&["sleep", TASKS, "300"], None);
        let mut daemon = Daemon::start();
        let pid = daemon.pid();
        let path = daemon.socket();
        let one = Reader::start(&path);
        // CPU time that each additional viewer causes in the thread that takes samples, and in all threads, ns per second.
        let mut added = [[0.0; ROUNDS]; 2];
        for round in 0..ROUNDS {
            let alone = cost(pid);
            let others: Vec<Reader> = (1..CLIENTS).map(|_| Reader::start(&path)).collect();
            // Wait until each new viewer has received the data that it gets only once.
            thread::sleep(Duration::from_secs(1));
            let before: Vec<u64> = others.iter().map(|reader| reader.bytes.load(Ordering::Relaxed)).collect();
            let together = cost(pid);
            eprintln!("CPU time, ns a second: {alone:.0?} with one viewer, {together:.0?} with {CLIENTS}");
            for (of, added) in added.iter_mut().enumerate() {
                added[round] = (together[of] - alone[of]) / (CLIENTS - 1) as f64;
            }
            for (reader, before) in others.iter().zip(before) {
                assert!(reader.bytes.load(Ordering::Relaxed) > before, "each client receives data");
            }
            drop(others);
            thread::sleep(Duration::from_millis(500));
        }
        assert!(one.bytes.load(Ordering::Relaxed) > 0);
        let [collection, all] = added.map(median);
        assert!(collection < MOST, "taking Samples costs {collection} ns more for each viewer");
        // For each viewer, the daemon makes one write and one wakeup.
        assert!(all < 4.0 * MOST, "the whole daemon costs {all} ns more for each viewer");
    }
}
