//! Tests that a panic in any thread restores the terminal. The panic needs a separate process with its own terminal, so this test
//! program starts itself on a new terminal.

use std::{
    fs::File,
    io::{self, Read},
    mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio},
    ptr,
};

use super::super::*;

const WHO: &str = "WHO_PANICS";
const MESSAGE: &str = "a panic on purpose";
/// Escape sequences that change the terminal's state, each with the sequence that restores the state.
const TAKEN: [(&str, &str); 3] =
    [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h"), ("\x1b[?1000h", "\x1b[?1000l")];

struct Panics {
    in_thread: bool,
}

impl Updates for Panics {
    async fn next(&mut self, _: &mut App) -> Result<Flow> {
        if !mem::take(&mut self.in_thread) {
            panic!("{MESSAGE}");
        }
        drop(std::thread::spawn(|| panic!("{MESSAGE}")));
        std::future::pending().await
    }
}

#[test]
#[ignore = "needs its own terminal, which the test below creates"]
fn the_screen_of_a_process_that_panics() {
    let Ok(who) = std::env::var(WHO) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut app = App::new(About::default(), Settings::default(), Theme::default(), Duration::from_secs(1));
    let screen = Screen::take("cgscope top -b", true).unwrap();
    let mut feed = Panics { in_thread: who == "thread" };
    let error = runtime.block_on(show(screen, &mut app, &mut feed)).unwrap_err();
    assert_eq!(error.exit, crate::exit::Exit::Incomplete);
}

#[test]
fn a_panic_gives_the_terminal_back_before_its_message_is_printed() {
    // The test program exits with code 101 if one of its tests panicked.
    for (who, code) in [("screen", 101), ("thread", 0)] {
        let (mut master, slave) = terminal();
        let before = modes(&master);
        let mut child = start(who, &slave);
        drop(slave);
        let seen = read(&mut master);
        let text = String::from_utf8_lossy(&seen).into_owned();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{text:?}");
        for (taken, back) in TAKEN {
            assert!(text.contains(taken) && text.rfind(back) > text.rfind(taken), "{back:?}: {text:?}");
        }
        assert_eq!(text.matches("\x1b[?1049l").count(), 1, "{text:?}");
        let said = text.find(MESSAGE);
        assert!(said.is_some() && said > text.find("\x1b[?1049l"), "on the screen that stays: {text:?}");
        let now = modes(&master);
        assert_eq!(
            (before.c_lflag, before.c_iflag, before.c_oflag),
            (now.c_lflag, now.c_iflag, now.c_oflag),
            "{who}"
        );
    }
}

fn start(who: &str, slave: &OwnedFd) -> std::process::Child {
    let end = || Stdio::from(slave.try_clone().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "top::screen::tests::panics::the_screen_of_a_process_that_panics"]);
    command.args(["--ignored", "--nocapture"]).env(WHO, who).env("TERM", "xterm-256color");
    command.stdin(end()).stdout(end()).stderr(end());
    // SAFETY: only two system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    command.spawn().unwrap()
}

/// Reads everything until the other end is closed, which Linux reports as an error.
fn read(master: &mut File) -> Vec<u8> {
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = master.read(&mut bytes) {
        seen.extend(&bytes[..count]);
    }
    seen
}

fn terminal() -> (File, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize { ws_col: 100, ws_row: 30, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the arguments are integers and our own structure; nobody else uses the two descriptors.
    unsafe {
        let opened = libc::openpty(&mut master, &mut slave, ptr::null_mut(), ptr::null(), &size);
        assert_eq!(opened, 0, "{}", io::Error::last_os_error());
        for end in [master, slave] {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

fn modes(master: &File) -> libc::termios {
    // SAFETY: the kernel fills our own structure.
    unsafe {
        let mut modes = mem::zeroed();
        assert_eq!(libc::tcgetattr(master.as_raw_fd(), &mut modes), 0);
        modes
    }
}
