//! The live screen, in a tmux terminal.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{load::Load, terminal::Terminal};

const HELP: &str = "opens or closes this help";

fn top(terminal: &Terminal, args: &str) {
    terminal.cgscope(&format!("top -d 0.3 {args}"));
}

#[test]
fn top_shows_waiting_tasks_and_q_restores_the_terminal() {
    let (_load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    terminal.set("tree = false");
    top(&terminal, "");
    let screen = terminal.wait_for("tasks on average");
    assert!(screen.contains("cost hook ") && screen.contains("collector "), "the cost of cgscope:\n{screen}");
    terminal.wait_for("workload");
    let screen = terminal.screen();
    assert!(screen.contains("usecs"), "the histogram of the selected row:\n{screen}");
    terminal.press("?");
    terminal.wait_for(HELP);
    terminal.press("?");
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}

#[test]
fn the_histogram_of_the_selected_task_is_updated() {
    let (load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    terminal.set("span = \"start\"");
    top(&terminal, &format!("--pid {}", load.pid()));
    let count = |screen: &str| -> u64 {
        let line = screen.lines().find_map(|line| line.split_once(", since the start"));
        // The row: `workload [process 1234]  56 waits`
        let words: Vec<&str> = line.expect("the selected row").0.split_whitespace().collect();
        words[words.len() - 2].parse().expect("a number")
    };
    let before = count(&terminal.wait_for("since the start"));
    let end = Instant::now() + Duration::from_secs(10);
    while count(&terminal.screen()) <= before {
        assert!(Instant::now() < end, "the histogram does not change:\n{}", terminal.screen());
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn sigterm_and_ctrl_c_restore_the_terminal() {
    for way in ["SIGTERM", "SIGHUP", "C-c"] {
        let terminal = Terminal::new(100, 30);
        top(&terminal, "");
        terminal.wait_for("tasks on average");
        let pid = terminal.cgscope_pid();
        // SAFETY: the process is a running child of our shell.
        let signal = |signal| assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        match way {
            "SIGTERM" => signal(libc::SIGTERM),
            "SIGHUP" => signal(libc::SIGHUP),
            keys => terminal.press(keys),
        }
        terminal.wait_for("left with 0");
        terminal.assert_given_back();
    }
}

#[test]
fn the_exit_of_the_target_is_reported_and_the_last_figures_stay() {
    let (mut load, _out) = Load::workload(&["burn", "2", "60"], None);
    let terminal = Terminal::new(120, 30);
    top(&terminal, &format!("--pid {}", load.pid()));
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
    top(&terminal, &format!("--pid {}", load.pid()));
    terminal.wait_for("tasks on average");
    load.kill();
    terminal.wait_for("the target has exited");
    // SAFETY: the process is a running child of our shell.
    assert_eq!(unsafe { libc::kill(terminal.cgscope_pid(), libc::SIGTERM) }, 0);
    terminal.wait_for("left with 1");
    terminal.assert_given_back();
}

#[test]
fn a_terminal_that_is_too_small_shows_a_message_and_recovers() {
    let terminal = Terminal::new(40, 8);
    top(&terminal, "");
    terminal.wait_for("enlarge it");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.wait_for("tasks on average");
    terminal.press("q");
    terminal.wait_for("left with 0");
}

#[test]
fn the_screen_names_the_coarse_mode_and_leaves_out_unknown_figures() {
    let (_load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    terminal.set("tree = false\nprocesses = false");
    top(&terminal, "--mode coarse --filter workload");
    terminal.wait_for("tasks on average");
    let screen = terminal.wait_for("workload");
    for said in ["COARSE: as requested", "no histogram"] {
        assert!(screen.contains(said), "{said:?} is not on the screen:\n{screen}");
    }
    assert!(!screen.contains("  none waiting") && !screen.contains("behind "), "{screen}");
    let heading = screen.lines().find(|line| line.contains("p99") && line.contains("tid")).expect("a table");
    let end = heading.split_once("p99").expect("a column").0.chars().count() + "p99".len();
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

/// Starts the screen as a job of the shell, waits until the screen shows data, and returns the process id of the job.
fn job(terminal: &Terminal) -> i32 {
    terminal.line(&format!("{} top -d 0.3", crate::bench::cgscope().get_program().display()));
    terminal.wait_for("tasks on average");
    terminal.cgscope_pid()
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: the process is a child of our shell, which has not reaped it.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn state(pid: i32) -> Option<char> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()
}

fn is_stopped(pid: i32) -> bool {
    state(pid) == Some('T')
}

fn wait_until_stopped(pid: i32) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_stopped(pid) {
        assert!(Instant::now() < end, "the process is not stopped");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stopped_screen_restores_the_terminal_and_fg_redraws_all_of_it() {
    let terminal = Terminal::new(100, 30);
    let pid = job(&terminal);
    for way in ["C-z", "SIGTSTP"] {
        match way {
            "SIGTSTP" => signal(pid, libc::SIGTSTP),
            keys => terminal.press(keys),
        }
        terminal.wait_for("Stopped");
        assert!(is_stopped(pid), "{way}");
        terminal.assert_given_back();
        // Clear the terminal, so that the test does not read text from before the stop.
        terminal.line("clear; fg; echo left with $?");
        let screen = terminal.wait_for("tasks on average");
        assert!(screen.starts_with("cgscope top") && screen.contains("q quit"), "{way}: {screen}");
        assert!(!screen.contains("Stopped"), "{way}: {screen}");
        assert_eq!(terminal.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "1 0");
        terminal.press("?");
        terminal.wait_for(HELP);
        terminal.press("?");
        terminal.wait_for("tasks on average");
    }
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}

#[test]
fn bg_leaves_a_stopped_screen_stopped_and_does_not_change_the_terminal() {
    let terminal = Terminal::new(100, 30);
    let pid = job(&terminal);
    terminal.press("C-z");
    terminal.wait_for("Stopped");
    for _ in 0..2 {
        terminal.line("clear; bg");
        terminal.wait_for("top -d 0.3");
        // cgscope does not stop at once, but first waits a moment for a signal that would end it.
        thread::sleep(Duration::from_millis(300));
        wait_until_stopped(pid);
        terminal.assert_given_back();
    }
    terminal.line("clear; fg; echo left with $?");
    terminal.wait_for("tasks on average");
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}

#[test]
fn a_stopped_screen_that_gets_sigterm_ends_without_using_the_terminal() {
    let terminal = Terminal::new(100, 30);
    let pid = job(&terminal);
    terminal.press("C-z");
    terminal.wait_for("Stopped");
    wait_until_stopped(pid);
    terminal.line("clear; kill %1; kill -CONT %1");
    let end = Instant::now() + Duration::from_secs(10);
    while state(pid).is_some_and(|state| state != 'Z') {
        assert!(Instant::now() < end, "the process does not exit");
        thread::sleep(Duration::from_millis(20));
    }
    // The shell reports the end of a job only before the next prompt.
    terminal.press("Enter");
    let screen = terminal.wait_for("Done");
    assert!(!screen.contains("tasks on average"), "{screen}");
    terminal.assert_given_back();
}

#[test]
fn after_sigstop_fg_takes_the_terminal_even_if_the_shell_reset_its_modes() {
    let terminal = Terminal::new(100, 30);
    terminal.line("exec env PS1='$ ' bash --norc");
    let pid = job(&terminal);
    signal(pid, libc::SIGSTOP);
    wait_until_stopped(pid);
    // Because of SIGSTOP, cgscope cannot restore the terminal. The shell restores the terminal and then receives typed
    // characters.
    thread::sleep(Duration::from_millis(300));
    terminal.line("clear; fg; echo left with $?");
    terminal.wait_until(|screen| screen.starts_with("cgscope top"), "the screen");
    terminal.press("?");
    terminal.wait_for(HELP);
    terminal.press("?");
    terminal.press("q");
    terminal.wait_for("left with 0");
    terminal.assert_given_back();
}

#[test]
#[ignore = "all CPUs: thousands of threads"]
fn if_ten_thousand_tasks_exit_at_once_the_screen_stays_correct() {
    let threads = crate::bench::scaled(10_000) as usize;
    let (mut load, _out) = Load::workload(&["sleep", &threads.to_string(), "60"], None);
    let terminal = Terminal::new(160, 40);
    top(&terminal, "");
    let shown = |screen: &str| -> Option<usize> {
        let words: Vec<&str> = screen.lines().next()?.split_whitespace().collect();
        words.windows(2).find(|two| two[1] == "threads")?[0].parse().ok()
    };
    terminal.wait_until(|screen| shown(screen).is_some_and(|count| count >= threads), "all of them");
    load.kill();
    let screen = terminal.wait_until(
        |screen| shown(screen).is_some_and(|count| count < threads / 2),
        "only the other threads",
    );
    let living = std::fs::read_dir("/proc").expect("/proc").count();
    assert!(shown(&screen).is_some_and(|count| count < living + threads / 2), "{screen}");
    terminal.press("?");
    terminal.wait_for(HELP);
    terminal.press("?");
    terminal.press("q");
    let ended = |screen: &str| ["left with 0", "left with 1"].iter().any(|words| screen.contains(words));
    terminal.wait_until(ended, "its end");
    terminal.assert_given_back();
}
