//! A tmux terminal, to which tests send keys and from which they read the screen.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    bench::{SETTINGS, cgscope, patience},
    files::Dir,
};

/// A terminal with a shell. Drop closes the terminal.
pub(crate) struct Terminal {
    socket: String,
    home: Dir,
}

impl Terminal {
    pub(crate) fn new(width: u16, height: u16) -> Self {
        // Each terminal has its own tmux server, because the server of an earlier terminal can still be exiting.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("cgscope-test-{}-{number}", std::process::id());
        let terminal = Self { socket, home: Dir::new("terminal") };
        // Start the shell in a new directory that also contains the settings, so that programs in this terminal neither read nor
        // write a user's settings.
        let home = terminal.home.path().display().to_string();
        let shell = format!("env PS1='$ ' {SETTINGS}={home} sh");
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "-c",
            &home,
            &shell,
        ]);
        terminal.wait_for("$");
        terminal
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns the path of the settings file that programs in this terminal use.
    pub(crate) fn settings(&self) -> PathBuf {
        self.home().join("cgscope/settings.toml")
    }

    pub(crate) fn set(&self, settings: &str) {
        let file = self.settings();
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder of ours");
        fs::write(file, settings).expect("a file of ours");
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(args).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    pub(crate) fn line(&self, text: &str) {
        self.send(text);
        self.press("Enter");
    }

    /// Sends characters as they are, such as letters or the escape sequences of a mouse.
    pub(crate) fn send(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Returns the text on the screen. A capture can contain halves of two frames, because tmux ignores synchronized updates.
    /// Therefore captures the screen until two successive captures are equal. If the screen changes all the time, returns the
    /// last capture.
    pub(crate) fn screen(&self) -> String {
        let capture = || self.tmux(&["capture-pane", "-p"]);
        let mut screen = capture();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(30));
            let again = capture();
            if again == screen {
                break;
            }
            screen = again;
        }
        screen
    }

    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.wait_until(|screen| screen.contains(text), &format!("{text:?}"))
    }

    /// Waits until `wanted` returns true for the screen, and returns the screen. `what` describes the wanted screen in the
    /// failure message.
    pub(crate) fn wait_until(&self, wanted: impl Fn(&str) -> bool, what: &str) -> String {
        let end = Instant::now() + patience(15_000);
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "{what} does not appear:\n{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts cgscope with these arguments. When cgscope ends, `left with` and its exit status appear on the screen.
    pub(crate) fn cgscope(&self, args: &str) {
        // Clear the terminal, so that the test does not mistake the output of an earlier cgscope for that of the new one.
        self.line("clear");
        self.wait_until(|screen| !screen.contains("left with"), "an empty screen");
        self.line(&format!("{} {args}; echo left with $?", cgscope().get_program().display()));
    }

    pub(crate) fn cgscope_pid(&self) -> i32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children =
            std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("a shell");
        children.trim().parse().expect("one child: cgscope")
    }

    /// Asserts that the terminal is in the normal state of a shell: prompt visible, input echoed, cursor shown, mouse not
    /// captured.
    pub(crate) fn assert_given_back(&self) {
        self.line("echo e''choed");
        self.wait_for("\nechoed");
        let modes = "#{alternate_on} #{cursor_flag} #{mouse_any_flag}";
        assert_eq!(self.tmux(&["display-message", "-p", modes]).trim(), "0 1 0");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
