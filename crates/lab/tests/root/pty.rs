//! The live screen on a pseudo-terminal. A test sees each byte in both directions, and when the byte was sent.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command, Stdio},
    ptr, thread,
    time::{Duration, Instant},
};

use crate::{
    bench::{OF_THE_HOST, SETTINGS, assert_ended, cgscope, median, patience, scaled},
    files::Dir,
    spread::Spread,
};

/// Escape sequence at the beginning of each frame.
const BEGIN: &[u8] = b"\x1b[?2026h";
/// Pairs of escape sequences. The first sequence changes the terminal, and the second sequence must undo this change exactly
/// once.
const TAKEN: [(&str, &str); 4] = [
    ("\x1b[?1049h", "\x1b[?1049l"),
    ("\x1b[?25l", "\x1b[?25h"),
    ("\x1b[?1000h", "\x1b[?1000l"),
    ("\x1b[?1006h", "\x1b[?1006l"),
];

pub(crate) struct Pty {
    master: Option<File>,
    modes: libc::termios,
    child: Child,
    pub(crate) seen: Vec<u8>,
    /// Directory of the settings of this process, which must neither read nor write a user's settings.
    _home: Dir,
}

impl Pty {
    /// Starts `cgscope ARGS` as a session leader. If `controlling` is true, this terminal is the controlling terminal of the
    /// session. Otherwise, cgscope receives no signal when the terminal is closed.
    fn start(args: &[&str], size: [u16; 2], controlling: bool) -> Self {
        Self::start_in(args, size, controlling, &[])
    }

    pub(crate) fn start_in(
        args: &[&str],
        size: [u16; 2],
        controlling: bool,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_command(cgscope(), args, size, controlling, variables)
    }

    fn start_command(
        mut command: Command,
        args: &[&str],
        size: [u16; 2],
        controlling: bool,
        variables: &[(&str, &str)],
    ) -> Self {
        let (master, slave) = open(size);
        let modes = modes(&master);
        let end = || Stdio::from(slave.try_clone().expect("a terminal"));
        command.args(args).stdin(end()).stdout(end()).stderr(end());
        let home = Dir::new("pty");
        command.env_remove("NO_COLOR").env_remove("COLORTERM").env("TERM", "xterm-256color");
        command.env(SETTINGS, home.path()).envs(variables.iter().copied());
        // SAFETY: between fork and exec, the closure only makes two system calls.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                if controlling {
                    libc::ioctl(0, libc::TIOCSCTTY, 0);
                }
                Ok(())
            })
        };
        let child = command.spawn().expect("cgscope starts");
        Self { master: Some(master), modes, child, seen: Vec::new(), _home: home }
    }

    pub(crate) fn start_beside(args: &[&str], directory: &Path) -> Self {
        let mut command = cgscope();
        command.current_dir(directory);
        Self::start_command(command, args, [100, 30], true, &[])
    }

    pub(crate) fn press(&self, keys: &str) {
        let mut master = self.master.as_ref().expect("a terminal");
        master.write_all(keys.as_bytes()).expect("a terminal");
    }

    fn resize(&self, size: [u16; 2]) {
        let size = winsize(size);
        // SAFETY: the descriptor and the structure belong to this function.
        let done =
            unsafe { libc::ioctl(self.master.as_ref().expect("one").as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(done, 0);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child is ours and has not been reaped.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for output, and appends it to `seen`. Returns false if no output arrived within this time, or if the terminal is
    /// closed.
    pub(crate) fn take(&mut self, within: Duration) -> bool {
        let Some(mut master) = self.master.as_ref() else {
            thread::sleep(within);
            return false;
        };
        let mut polled = libc::pollfd { fd: master.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` gets one entry, which belongs to this function.
        unsafe { libc::poll(&mut polled, 1, within.as_millis() as i32) };
        let mut bytes = [0; 1 << 16];
        if polled.revents & libc::POLLIN == 0 {
            return false;
        }
        // The read fails if the other end is closed.
        let count = master.read(&mut bytes).unwrap_or(0);
        self.seen.extend(&bytes[..count]);
        count != 0
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).replace('\x1b', "ESC")
    }

    /// Waits until new output contains a word. The word must not have spaces, because the screen does not draw cells again that
    /// are already blank.
    pub(crate) fn wait_for(&mut self, word: &str) {
        let begun = self.seen.len();
        let end = Instant::now() + patience(20_000);
        while !contains(&self.seen[begun..], word.as_bytes()) {
            assert!(Instant::now() < end, "{word:?} does not appear: {}", self.text());
            self.take(Duration::from_millis(100));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the output pauses, and presses a key. Returns the time until new output arrives.
    pub(crate) fn answer(&mut self, key: &str) -> Duration {
        while self.take(Duration::from_millis(20)) {}
        let pressed = Instant::now();
        self.press(key);
        assert!(self.take(patience(10_000)), "no answer to {key:?}");
        pressed.elapsed()
    }

    pub(crate) fn wait(&mut self, within: Duration) -> Option<i32> {
        let end = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                while self.take(Duration::from_millis(20)) {}
                return status.code();
            }
            assert!(Instant::now() < end, "cgscope does not exit: {}", self.text());
            self.take(Duration::from_millis(20));
        }
    }

    /// Asserts that the process ends within 10 seconds, and reports no losses except those that [other programs](OF_THE_HOST) can
    /// cause.
    pub(crate) fn assert_ends(&mut self) {
        let code = self.wait(patience(10_000));
        let text = self.text();
        // Read only the last message. The screen shows losses, too, but draws its cells in any order.
        let said = text.rfind("losses: ").map_or(&*text, |at| &text[at..]);
        assert_ended(code, said, OF_THE_HOST);
    }

    /// Asserts that cgscope has undone each change to the terminal once, and that the terminal modes are as before.
    fn assert_given_back(&self) {
        for (taken, back) in TAKEN {
            assert!(contains(&self.seen, taken.as_bytes()), "{taken:?} is missing: {}", self.text());
            let (taken_at, back_at) = (last(&self.seen, taken), last(&self.seen, back));
            assert!(back_at > taken_at, "{back:?} is missing at the end: {}", self.text());
        }
        assert_eq!(count(&self.seen, b"\x1b[?1049l"), 1, "{}", self.text());
        assert!(last(&self.seen, "\x1b[?2026l") > last(&self.seen, "\x1b[?2026h"), "{}", self.text());
        let (before, now) = (&self.modes, modes(self.master.as_ref().expect("a terminal")));
        assert_eq!((before.c_lflag, before.c_iflag), (now.c_lflag, now.c_iflag));
        assert_eq!((before.c_oflag, before.c_cflag), (now.c_oflag, now.c_cflag));
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    count(bytes, part) != 0
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

fn last(bytes: &[u8], part: &str) -> Option<usize> {
    bytes.windows(part.len()).rposition(|window| window == part.as_bytes())
}

fn winsize([width, height]: [u16; 2]) -> libc::winsize {
    libc::winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 }
}

fn open(size: [u16; 2]) -> (File, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    let size = winsize(size);
    // SAFETY: the numbers and the structure belong to this function, and nothing else owns the two new descriptors.
    unsafe {
        let opened = libc::openpty(&mut master, &mut slave, ptr::null_mut(), ptr::null(), &size);
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // Close the descriptors at exec, because copies in the child would keep the terminal open.
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

fn modes(master: &File) -> libc::termios {
    // SAFETY: the descriptor is open, and `tcgetattr` fills the structure.
    unsafe {
        let mut modes = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(master.as_raw_fd(), &mut modes), 0);
        modes
    }
}

#[test]
fn every_exit_restores_each_change_of_the_terminal_once() {
    for way in ["q", "\x03", "SIGTERM", "SIGHUP", "SIGINT"] {
        let mut pty = Pty::start(&["top", "-d", "0.2"], [100, 30], true);
        pty.wait_for("average");
        match way {
            "SIGTERM" => pty.signal(libc::SIGTERM),
            "SIGHUP" => pty.signal(libc::SIGHUP),
            "SIGINT" => pty.signal(libc::SIGINT),
            _ => pty.press(way),
        }
        pty.assert_ends();
        pty.assert_given_back();
    }
}

/// Panics are tested in `top/screen/tests/panics.rs`.
#[test]
fn the_binary_has_no_switch_for_tests() {
    let path = cgscope().get_program().to_owned();
    let binary = fs::read(&path).expect("the binary");
    assert!(contains(&binary, b"cgscope.interval/1"), "{path:?} is not cgscope");
    assert!(!contains(&binary, b"CGSCOPE_TEST"), "{path:?}");
}

#[test]
fn a_closed_terminal_ends_the_screen_with_or_without_a_signal() {
    let dir = Dir::new("closed");
    for controlling in [true, false] {
        // Write messages to a file, because a closed terminal shows no messages.
        let said = dir.file("messages");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" top -d 0.2 2> \"$1\""]).arg(cgscope().get_program()).arg(&said);
        let mut pty = Pty::start_command(command, &[], [100, 30], controlling, &[]);
        pty.wait_for("average");
        pty.master = None;
        let code = pty.wait(patience(10_000));
        assert_ended(code, &fs::read_to_string(said).expect("messages"), OF_THE_HOST);
    }
}

#[test]
#[ignore = "all CPUs: asserts times"]
fn a_key_is_answered_among_hundreds_of_resizes_that_share_drawings() {
    let mut pty = Pty::start(&["top", "-d", "0.2"], [100, 30], true);
    pty.wait_for("average");
    let begun = (Instant::now(), count(&pty.seen, BEGIN));
    let storm = |pty: &mut Pty, times: u16| {
        for i in 0..times {
            let size = if i % 50 == 49 { [i % 2, 1] } else { [80 + i % 40, 24 + i % 10] };
            pty.resize(size);
            thread::sleep(Duration::from_micros(500));
            while pty.take(Duration::ZERO) {}
        }
    };
    storm(&mut pty, 400);
    pty.resize([100, 30]);
    let before = pty.seen.len();
    pty.press("?");
    let pressed = Instant::now();
    while !contains(&pty.seen[before..], b"closes") {
        assert!(pressed.elapsed() < patience(2_000), "no answer: {}", pty.text());
        storm(&mut pty, 2);
    }
    let answered = pressed.elapsed();
    storm(&mut pty, 400);
    while pty.take(Duration::from_millis(50)) {}
    let (passed, drawn) = (begun.0.elapsed(), count(&pty.seen, BEGIN) - begun.1);
    println!("{drawn} drawings in {passed:?} of about 800 resizes; the key was answered after {answered:?}");
    // Allow one frame per 16 ms, and two more frames, one of them for the key.
    assert!(drawn as u128 <= passed.as_millis() / 16 + 2, "{drawn} in {passed:?}");
    assert!(answered < patience(200), "{answered:?}");
    pty.press("?q");
    pty.assert_ends();
    pty.assert_given_back();
}

#[test]
fn a_terminal_with_one_cell_or_none_causes_no_error() {
    for size in [[1, 1], [0, 0], [1, 200], [500, 1]] {
        let mut pty = Pty::start(&["top", "-d", "0.1"], size, true);
        let end = Instant::now() + patience(1_500);
        while Instant::now() < end {
            pty.take(Duration::from_millis(100));
        }
        pty.press("??q");
        pty.assert_ends();
        pty.assert_given_back();
    }
}

#[test]
#[ignore = "all CPUs: asserts times"]
fn a_key_is_answered_within_50_ms_with_ten_thousand_threads_in_two_thousand_cgroups() {
    let _spread = Spread::new("spread", scaled(2_000) as usize, 5, 60);
    let mut pty = Pty::start(&["top", "-d", "1"], [160, 50], true);
    pty.wait_for("average");
    let keys = ["j", ">", "W", "?", "?", "G", "r"];
    let answers: Vec<_> = (0..4).flat_map(|_| keys).map(|key| pty.answer(key)).collect();
    println!("{answers:.1?}");
    let median = median(answers);
    assert!(median < patience(50), "{median:?}");
    pty.press("q");
    pty.assert_ends();
    pty.assert_given_back();
}
