//! Hostile clients of one user must not disturb the measurement of another user.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cgscope_record::Message;
use cgscope_serve::{
    client::Connection,
    protocol::{LONGEST, Request},
};

use super::{ALICE, Daemon, VIEWERS};
use crate::{
    bench::{assert_measured, rss_bytes},
    load::Load,
};

const CONNECTS_A_SECOND: u64 = 1_000;
const SLOW: usize = 40;
const INTERVAL_NS: u64 = 1_000_000_000;
/// Maximum error of the length of an interval: 5 %.
const OFF_NS: u64 = INTERVAL_NS / 20;
const MEMORY_BYTES: u64 = 64 << 20;

/// Makes this thread run as the user Alice, with her groups. Other threads keep their user.
pub(super) fn become_alice() {
    let groups = [VIEWERS];
    // SAFETY: the calls change only this thread, and the list of groups outlives its call.
    let done = unsafe {
        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
            && libc::syscall(libc::SYS_setresgid, VIEWERS, VIEWERS, VIEWERS) == 0
            && libc::syscall(libc::SYS_setresuid, ALICE, ALICE, ALICE) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

/// Threads of the user Alice that repeat an action until drop.
struct Attack {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn new() -> Self {
        Self { over: Arc::default(), threads: Vec::new() }
    }

    fn with(&mut self, mut what: impl FnMut() + Send + 'static) {
        let over = self.over.clone();
        self.threads.push(thread::spawn(move || {
            become_alice();
            while !over.load(Ordering::Relaxed) {
                what();
            }
        }));
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns bad requests of several kinds, each with the number of times to send it. The kinds are: empty line, incomplete line,
/// invalid text, other protocol version, deep nesting, too many processes, too many bytes, HTTP. The daemon disconnects a client
/// at its first bad request.
fn bad_requests(per_kind: usize) -> Vec<(Vec<u8>, u64)> {
    let pids = vec!["1"; 5_000].join(",");
    let kinds: [Vec<u8>; 8] = [
        b"\n".to_vec(),
        b"{\"version\":1,\"interval_ns\":\n".to_vec(),
        [vec![0xff; 40], b"\n".to_vec()].concat(),
        b"{\"version\":99,\"interval_ns\":1}\n".to_vec(),
        [b"[".repeat(1_000), b"\n".to_vec()].concat(),
        format!("{{\"version\":1,\"interval_ns\":1,\"pids\":[{pids}]}}\n").into_bytes(),
        [vec![b'x'; LONGEST + 1], b"\n".to_vec()].concat(),
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
    ];
    let times = |kind: &Vec<u8>| if kind.len() > 1_000 { per_kind / 50 } else { per_kind };
    kinds.iter().map(|kind| (kind.repeat(times(kind).max(1)), times(kind).max(1) as u64)).collect()
}

fn offer(path: &str, bytes: &[u8]) {
    let Ok(mut socket) = UnixStream::connect(path) else { return };
    let _ = socket.set_write_timeout(Some(Duration::from_millis(500)));
    let _ = socket.set_read_timeout(Some(Duration::from_millis(500)));
    // Ignore errors, because the daemon can disconnect before it has read the whole request.
    let _ = socket.write_all(bytes);
    let _ = socket.read(&mut [0; 4_096]);
}

#[test]
#[ignore = "all CPUs: asserts times"]
fn bad_requests_slow_readers_and_thousands_of_connects_do_not_disturb_other_users() {
    disturbs_nobody(50_000);
}

mod long {
    #[test]
    #[ignore = "all CPUs: asserts times"]
    fn a_million_bad_requests_slow_readers_and_thousands_of_connects_do_not_disturb_other_users() {
        super::disturbs_nobody(1_000_000);
    }
}

fn disturbs_nobody(bad_requests: u64) {
    let (_sleepers, _out) = Load::workload(&["sleep", "500", "300"], None);
    let mut daemon = Daemon::start();
    let (pid, path) = (daemon.pid(), daemon.socket());
    let (mut viewer, _sender) =
        Connection::open(path.as_ref(), &Request::every(INTERVAL_NS)).expect("the daemon");
    let sample = |viewer: &mut Connection| loop {
        match viewer.receive() {
            Some(Message::Sample(sample)) => return sample,
            Some(Message::Word(word)) if word.shows_all.is_some() => {}
            other => panic!("{other:?}"),
        }
    };
    for _ in 0..3 {
        sample(&mut viewer);
    }
    let before_bytes = rss_bytes(pid);

    let (requests, connects) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut attack = Attack::new();
    for of in 0..2 {
        let (path, requests, kinds) = (path.clone(), requests.clone(), self::bad_requests(2_000));
        let mut next = of;
        attack.with(move || {
            let (bytes, count) = &kinds[next % kinds.len()];
            next += 1;
            offer(&path, bytes);
            requests.fetch_add(*count, Ordering::Relaxed);
        });
    }
    for _ in 0..2 {
        let (path, connects) = (path.clone(), connects.clone());
        attack.with(move || {
            let begun = Instant::now();
            for _ in 0..CONNECTS_A_SECOND / 20 {
                connects.fetch_add(UnixStream::connect(&path).is_ok().into(), Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(100).saturating_sub(begun.elapsed()));
        });
    }
    let mut slow = Vec::new();
    let slow_path = path.clone();
    attack.with(move || {
        // Slow readers are clients that request as much data as possible and read nothing.
        if slow.len() < SLOW
            && let Ok(mut socket) = UnixStream::connect(&slow_path)
            && socket.write_all(&Request::every(100_000_000).line()).is_ok()
        {
            slow.push(socket);
        }
        thread::sleep(Duration::from_millis(50));
    });

    let begun = Instant::now();
    let mut most_bytes = 0;
    let mut stamps = vec![sample(&mut viewer).mono_ns];
    while stamps.len() < 8 || requests.load(Ordering::Relaxed) < bad_requests {
        stamps.push(sample(&mut viewer).mono_ns);
        most_bytes = most_bytes.max(rss_bytes(pid));
        assert!(begun.elapsed() < Duration::from_secs(120), "{requests:?} requests");
    }
    let off = stamps.windows(2).map(|two| (two[1] - two[0]).abs_diff(INTERVAL_NS));
    let worst = off.max().unwrap_or_default();
    let seconds = begun.elapsed().as_secs();
    drop(attack);
    let connects = connects.load(Ordering::Relaxed);
    eprintln!(
        "{requests:?} bad requests and {connects} connects in {seconds} s: an interval was off by at most {worst} ns, \
         {before_bytes} bytes before, at most {most_bytes}"
    );
    assert!(connects >= seconds * CONNECTS_A_SECOND * 8 / 10, "{connects} connects in {seconds} s");
    assert!(worst <= OFF_NS, "an interval was off by {worst} ns");
    assert!(
        most_bytes < before_bytes + MEMORY_BYTES,
        "memory: {before_bytes} bytes before, at most {most_bytes} during the attack"
    );

    // After the attack, the daemon must serve another user at once, and the attacking user after a short pause.
    let output = daemon.as_user(0, &[0], &["hist", "--json", "0.2", "1"]);
    assert_measured(&output);
    thread::sleep(Duration::from_secs(1));
    let output = daemon.as_user(ALICE, &[VIEWERS], &["hist", "--json", "0.2", "1"]);
    assert_measured(&output);
    let (code, words) = daemon.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(!words.contains("panicked"), "{words}");
}
