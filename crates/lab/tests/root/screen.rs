//! The live screen, in a terminal of tmux.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{load::Load, terminal::Terminal};

/// Starts the screen for these arguments.
fn top(terminal: &Terminal, args: &str) {
    terminal.cgscope(&format!("top -d 0.3 {args}"));
}

#[test]
fn top_shows_who_waits_and_q_gives_the_terminal_back() {
    let (_load, _out) = Load::workload(&["burn", "6", "30", "pin"], None);
    let terminal = Terminal::new(160, 40);
    top(&terminal, "");
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
    top(&terminal, &format!("--pid {}", load.pid()));
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
        top(&terminal, "");
        terminal.wait_for("tasks on average");
        let pid = terminal.cgscope_pid();
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
    top(&terminal, "");
    terminal.wait_for("a panic that was asked for");
    terminal.wait_for("left with 101");
    terminal.assert_given_back();
}

#[test]
fn a_target_that_exits_is_said_and_the_last_figures_stay() {
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
    // SAFETY: the child of a shell of ours, which runs.
    assert_eq!(unsafe { libc::kill(terminal.cgscope_pid(), libc::SIGTERM) }, 0);
    terminal.wait_for("left with 1");
    terminal.assert_given_back();
}

#[test]
fn a_terminal_that_is_too_small_says_so_and_recovers() {
    let terminal = Terminal::new(40, 8);
    top(&terminal, "");
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
    top(&terminal, "--mode coarse");
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
