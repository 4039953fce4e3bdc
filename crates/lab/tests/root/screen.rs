//! The live screen, in a terminal of tmux.

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{bench::cgscope, load::Load};

/// A terminal with a shell in it; gone with its value.
pub(crate) struct Terminal {
    socket: String,
}

impl Terminal {
    pub(crate) fn new(width: u16, height: u16) -> Self {
        // A server of its own each: the one before may still be on its way out.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let terminal = Self { socket: format!("cgscope-test-{}-{number}", std::process::id()) };
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
            "env PS1='$ ' sh",
        ]);
        terminal.wait_for("$");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(args).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    pub(crate) fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.press("Enter");
    }

    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    pub(crate) fn wait_for(&self, text: &str) -> String {
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < end, "{text:?} does not come:\n{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the screen for these arguments.
    fn top(&self, args: &str) {
        self.line(&format!(
            "clear; {} top -d 0.3 {args}; echo left with $?",
            cgscope().get_program().display()
        ));
    }

    /// The id of the cgscope that runs in this terminal.
    fn top_pid(&self) -> i32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children =
            std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("a shell");
        children.trim().parse().expect("one child: cgscope")
    }

    /// Whether the terminal is as a shell leaves it: its prompt seen, what is typed echoed, the cursor shown.
    fn assert_given_back(&self) {
        self.line("echo e''choed");
        self.wait_for("\nechoed");
        assert_eq!(self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_shows_who_waits_and_q_gives_the_terminal_back() {
    let (_load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    terminal.top("");
    let screen = terminal.wait_for("tasks on average");
    assert!(screen.contains("own cost"), "{screen}");
    let screen = terminal.wait_for("workload");
    assert!(screen.contains("usecs"), "the histogram of the selected task:\n{screen}");
    terminal.press("?");
    terminal.wait_for("What the columns mean");
    terminal.press("x");
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}

#[test]
fn the_histogram_of_the_selected_task_moves() {
    let (load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    terminal.top(&format!("--pid {}", load.pid()));
    let count = |screen: &str| -> u64 {
        let line =
            screen.lines().find(|line| line.contains("since it was selected")).expect("a selected task");
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with("wait")).expect("a number of waits");
        words[at - 1].parse().expect("a number")
    };
    let before = count(&terminal.wait_for("since it was selected"));
    let end = Instant::now() + Duration::from_secs(10);
    while count(&terminal.screen()) <= before {
        assert!(Instant::now() < end, "the histogram stands still:\n{}", terminal.screen());
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn sigterm_and_ctrl_c_give_the_terminal_back() {
    for way in ["SIGTERM", "SIGHUP", "C-c"] {
        let terminal = Terminal::new(100, 30);
        terminal.top("");
        terminal.wait_for("tasks on average");
        let pid = terminal.top_pid();
        // SAFETY: the child of a shell of ours, which runs.
        match way {
            "SIGTERM" => assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0),
            "SIGHUP" => assert_eq!(unsafe { libc::kill(pid, libc::SIGHUP) }, 0),
            keys => terminal.press(keys),
        }
        terminal.wait_for("left with 0");
        terminal.assert_given_back();
    }
}

#[test]
fn a_panic_gives_the_terminal_back_and_its_message_is_seen() {
    let terminal = Terminal::new(100, 30);
    terminal.line("export CGSCOPE_TEST_PANIC=1");
    terminal.top("");
    terminal.wait_for("a panic that was asked for");
    terminal.wait_for("left with 101");
    terminal.assert_given_back();
}

#[test]
fn a_target_that_exits_is_said_and_the_last_figures_stay() {
    let (mut load, _out) = Load::workload(&["burn", "2", "60"], None);
    let terminal = Terminal::new(120, 30);
    terminal.top(&format!("--pid {}", load.pid()));
    terminal.wait_for("tasks on average");
    load.kill();
    terminal.wait_for("the target has exited");
    terminal.press("q");
    terminal.wait_for("left with 1");
    terminal.assert_given_back();
}

#[test]
fn sigterm_ends_the_screen_of_a_target_that_has_exited() {
    let (mut load, _out) = Load::workload(&["burn", "2", "60"], None);
    let terminal = Terminal::new(120, 30);
    terminal.top(&format!("--pid {}", load.pid()));
    terminal.wait_for("tasks on average");
    load.kill();
    terminal.wait_for("the target has exited");
    // SAFETY: the child of a shell of ours, which runs.
    assert_eq!(unsafe { libc::kill(terminal.top_pid(), libc::SIGTERM) }, 0);
    terminal.wait_for("left with 1");
    terminal.assert_given_back();
}

#[test]
fn a_terminal_that_is_too_small_says_so_and_recovers() {
    let terminal = Terminal::new(40, 8);
    terminal.top("");
    terminal.wait_for("enlarge it");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.wait_for("tasks on average");
    terminal.press("q");
    terminal.wait_for("left with 0");
}

#[test]
fn the_coarse_mode_says_so_and_shows_nothing_that_it_does_not_know() {
    let (_load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    terminal.top("--mode coarse");
    let screen = terminal.wait_for("tasks on average");
    for said in ["COARSE: as asked for", "now      not known (coarse)", "behind   not known (coarse)"] {
        assert!(screen.contains(said), "{said:?} is not on the screen:\n{screen}");
    }
    let screen = terminal.wait_for("workload");
    assert!(screen.contains("there is no histogram"), "{screen}");
    let heading = screen.lines().find(|line| line.contains("p99") && line.contains("TID")).expect("a table");
    let end = heading.find("p99").expect("a column") + "p99".len();
    let below = screen.lines().skip_while(|line| *line != heading).skip(1);
    let row = below.into_iter().find(|line| line.contains("workload")).expect("the load");
    assert_eq!(row.chars().nth(end - 1), Some('-'), "{row}");
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}

#[test]
fn without_a_terminal_the_screen_is_refused_in_one_sentence() {
    let output = crate::bench::run(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    let said = crate::bench::stderr(&output);
    assert!(said.contains("cgscope top -b") && said.lines().count() == 1, "{said}");
}
