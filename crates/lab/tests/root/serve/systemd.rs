//! The daemon as a systemd service: the notifications that it sends to systemd.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    process::Command,
    time::{Duration, Instant},
};

use super::Daemon;
use crate::{
    background::Background,
    bench::{cgscope, patience},
    files::Dir,
};

struct Systemd {
    dir: Dir,
    socket: UnixDatagram,
}

impl Systemd {
    fn new() -> Self {
        let dir = Dir::new("systemd");
        let socket = UnixDatagram::bind(dir.file("notify")).expect("a directory of ours");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket of ours");
        Self { dir, socket }
    }

    /// Starts the daemon as systemd does for a unit with this `WatchdogSec`.
    fn start(&self, config: &str, watchdog: Duration) -> Background {
        let mut shell = Command::new("sh");
        shell.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]).arg(cgscope().get_program());
        shell.args(["serve", "--config", config]);
        shell.env("NOTIFY_SOCKET", self.dir.file("notify"));
        shell.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        Background::start(&mut shell)
    }

    fn receive(&self, longest: Duration) -> Option<String> {
        let end = Instant::now() + longest;
        let mut bytes = [0; 4096];
        while Instant::now() < end {
            match self.socket.recv(&mut bytes) {
                Ok(length) => return Some(String::from_utf8_lossy(&bytes[..length]).trim().into()),
                // Retry if a signal interrupts the read, because the kernel does not restart a read with a timeout (signal(7)).
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
                        "{error}"
                    );
                }
            }
        }
        None
    }

    /// Waits for a notification that begins with the line `word`. Asserts that only watchdog pings arrive before it.
    fn wait_for(&self, word: &str) {
        let end = Instant::now() + patience(10_000);
        loop {
            assert!(Instant::now() < end, "{word}");
            match self.receive(Duration::from_millis(500)) {
                Some(said) if said.lines().next() == Some(word) => return,
                Some(said) => assert_eq!(said, "WATCHDOG=1", "not {word}"),
                None => {}
            }
        }
    }
}

#[test]
fn the_daemon_notifies_systemd_of_start_watchdog_reload_and_stop() {
    let mut daemon = Daemon::start();
    daemon.end();
    let systemd = Systemd::new();
    let watchdog = patience(1_000);
    let mut process = systemd.start(&daemon.config(), watchdog);
    process.wait_for("serving viewers at ");
    systemd.wait_for("READY=1");
    for _ in 0..4 {
        assert_eq!(
            systemd.receive(watchdog).as_deref(),
            Some("WATCHDOG=1"),
            "within the time that systemd waits"
        );
    }
    process.signal(libc::SIGHUP);
    systemd.wait_for("RELOADING=1");
    systemd.wait_for("READY=1");
    process.signal(libc::SIGTERM);
    systemd.wait_for("STOPPING=1");
    assert_eq!(process.wait().0, Some(0));
}
