//! The views of the screen, their keys, and the mouse, in a terminal.

use std::{fs, thread, time::Duration};

use crate::{
    bench::{cgscope, run, stderr},
    files::Dir,
    load::{Cgroup, Load},
    terminal::Terminal,
};

fn top(terminal: &Terminal, args: &str) {
    terminal.cgscope(&format!("top -d 0.3 {args}"));
    terminal.wait_for("tasks on average");
}

fn quit(terminal: &Terminal) {
    terminal.press("q");
    terminal.wait_for("left with 0");
}

/// Returns the position of a text on a screen: column and row, counted from 1 as terminals do.
fn place(screen: &str, text: &str) -> (usize, usize) {
    let found = screen.lines().enumerate().find_map(|(y, line)| {
        let before = line.split_once(text)?.0;
        Some((before.chars().count() + 1, y + 1))
    });
    found.unwrap_or_else(|| panic!("{text:?} is not on\n{screen}"))
}

/// Presses a mouse button. 0 is the left button; 64 and 65 are wheel up and down.
fn mouse(terminal: &Terminal, button: u8, (x, y): (usize, usize)) {
    terminal.send(&format!("\x1b[<{button};{x};{y}M"));
    if button == 0 {
        terminal.send(&format!("\x1b[<{button};{x};{y}m"));
    }
}

fn selected(screen: &str) -> Option<u32> {
    screen.lines().find_map(|line| line.split_once("[thread ")?.1.split_once(']')?.0.parse().ok())
}

fn tids(screen: &str) -> Vec<u32> {
    let below = screen.lines().skip_while(|line| !line.trim_start().starts_with("tid")).skip(1);
    below.map_while(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Shows a list of more threads than fit on the screen, sorted by id so that the order does not change.
fn threads(terminal: &Terminal) -> (Load, String) {
    let (load, _out) = Load::workload(&["sleep", "60", "60"], None);
    terminal.set("tree = false\nprocesses = false\n[sort]\nthreads = \"tid\"\n");
    top(terminal, "");
    (load, terminal.wait_until(|screen| tids(screen).len() > 8, "a list of threads"))
}

fn wait_for_selected(terminal: &Terminal, tid: u32) -> String {
    terminal.wait_until(|screen| selected(screen) == Some(tid), &format!("thread {tid} as the selected one"))
}

/// Tests only that input arrives. The tests in `view/tests/views.rs` check, without a terminal, what each key and click shows.
#[test]
fn keys_clicks_and_the_wheel_of_a_terminal_reach_the_screen() {
    let terminal = Terminal::new(120, 40);
    let (_load, screen) = threads(&terminal);
    let shown = tids(&screen);
    wait_for_selected(&terminal, shown[0]);
    for (key, row) in [("Down", 1), ("Up", 0)] {
        terminal.press(key);
        wait_for_selected(&terminal, shown[row]);
    }
    for (button, row) in [(65, 3), (64, 0)] {
        mouse(&terminal, button, place(&screen, &format!("{:>7} ", shown[0])));
        wait_for_selected(&terminal, shown[row]);
    }
    terminal.press("PageDown");
    terminal.wait_until(|screen| selected(screen) > Some(shown[4]), "the next page");
    terminal.press("Home");
    wait_for_selected(&terminal, shown[0]);
    terminal.press("End");
    terminal.wait_until(|screen| selected(screen) > shown.last().copied(), "the last row");
    terminal.press("BTab");
    terminal.wait_for("start with --chains");
    terminal.press("BTab");
    terminal.wait_for("its own sum (run_delay)");
    terminal.press("Tab");
    terminal.wait_for("start with --chains");
    terminal.press("Tab");
    terminal.wait_for("nvcswch/s");
    mouse(&terminal, 0, place(&terminal.screen(), "4 Cgroups"));
    terminal.wait_for("limited by");
    quit(&terminal);
    terminal.assert_given_back();
}

#[test]
fn keys_pause_the_screen_change_the_interval_and_show_command_lines() {
    let (_busy, _out) = Load::workload(&["burn", "4", "60", "pin"], None);
    let sleeping = Load::start("sleep", &["86413"], None);
    let terminal = Terminal::new(120, 40);
    terminal.set("tree = false");
    top(&terminal, "");
    terminal.wait_for("every 300ms");
    for (key, said) in [("+", "every 500ms"), ("-", "every 200ms"), ("-", "every 100ms")] {
        // The next intervals below 500 ms are 200 ms and 100 ms.
        terminal.press(key);
        terminal.wait_for(said);
    }
    terminal.press("Space");
    let still = terminal.wait_for("PAUSED");
    thread::sleep(Duration::from_millis(700));
    let later = terminal.screen();
    assert_eq!(still, later, "the screen is paused");
    terminal.press("Space");
    terminal.wait_until(|screen| !screen.contains("PAUSED") && *screen != *later, "new figures");

    terminal.send(&format!("/{}", sleeping.pid()));
    terminal.press("Enter");
    terminal.wait_for(&format!("{} sleep ", sleeping.pid()));
    terminal.press("c");
    terminal.wait_for("sleep 86413");
    quit(&terminal);
}

#[test]
fn the_screen_is_written_to_a_file_with_all_rows() {
    let cgroup = Cgroup::new("written");
    let (load, _out) = Load::workload(&["burn", "3", "60"], Some(&cgroup));
    let terminal = Terminal::new(80, 24);
    top(&terminal, "--filter no-such-name-anywhere");
    terminal.wait_for("no row matches the filter");
    terminal.press("Space");
    let screen = terminal.wait_for("PAUSED");
    terminal.press("w");
    terminal.wait_for("written to ");
    terminal.press("w");
    terminal.wait_for("-1.txt");
    let names = fs::read_dir(terminal.home()).expect("a folder of ours").flatten().map(|entry| entry.path());
    let files: Vec<_> = names.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        let shown: Vec<&str> = screen.lines().take(12).map(str::trim_end).collect();
        let written: Vec<&str> = text.lines().take(12).collect();
        assert_eq!(written, shown, "the file begins with the screen");
        let rows = text
            .lines()
            .filter(|line| line.contains(&format!(" {} ", cgroup.name)) && line.ends_with(" workload"));
        assert!(rows.count() >= 3, "threads that the filter hides on the screen:\n{text}");
        for said in [format!(" {} ", load.pid()), "Linux ".into(), cgroup.name.clone(), "losses".into()] {
            assert!(text.contains(&said), "{said:?} is not in\n{text}");
        }
    }
    quit(&terminal);
}

#[test]
fn view_column_and_filter_can_be_given_as_arguments() {
    let terminal = Terminal::new(120, 30);
    top(&terminal, "--view cgroups --sort %CPU --filter /");
    let screen = terminal.wait_for("limited by");
    assert!(screen.contains("%CPU▾") && screen.contains("with /  "), "{screen}");
    quit(&terminal);
    assert!(!terminal.settings().exists(), "arguments of one run are not saved as settings");

    let output = run(&["top", "--sort", "nonsense"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("\"nonsense\"") && said.contains("wait/s, %wait, why, "), "{said}");
    let said = stderr(&run(&["top", "--view", "states", "--sort", "wait/s"]));
    assert!(said.contains("has no columns") && said.contains("--view"), "{said}");
    let output = run(&["top", "--view", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("overview, histogram, heatmap, cgroups"), "{}", stderr(&output));
}

#[test]
fn tests_do_not_read_the_settings_of_the_user_who_runs_them() {
    let home = Dir::new("home");
    let folder = home.path().join(".config/cgscope");
    fs::create_dir_all(&folder).expect("a folder of ours");
    fs::write(folder.join("settings.toml"), "view = \"numa\"\n").expect("a file of ours");
    let output = cgscope().args(["top", "--sort", "ran on"]).env("HOME", home.path()).output();
    let said = stderr(&output.expect("cgscope starts"));
    assert!(said.contains("the list of cgroups has no column"), "{said}");
}

#[test]
fn chosen_settings_are_saved_and_a_broken_settings_file_is_not_changed() {
    let cgroup = Cgroup::new("chosen");
    let (_load, _out) = Load::workload(&["burn", "3", "60"], Some(&cgroup));
    let terminal = Terminal::new(120, 30);
    top(&terminal, "");
    for key in ["u", "i", "P", "2"] {
        terminal.press(key);
    }
    terminal.wait_for("[since the start");
    quit(&terminal);
    let file = terminal.settings();
    let remembered = fs::read_to_string(&file).expect("the settings file");
    for line in ["view = \"histogram\"", "unit = \"ms\"", "span = \"start\"", "cgroups = \"p99\""] {
        assert!(remembered.contains(line), "{line} is not in\n{remembered}");
    }
    top(&terminal, "");
    let screen = terminal.wait_for("[since the start");
    assert!(screen.contains("msecs"), "{screen}");
    terminal.press("1");
    terminal.wait_for("p99▾");
    // When a setting changes, cgscope replaces only the line of that setting and keeps the rest of the file.
    fs::write(&file, format!("# by hand\n{remembered}")).expect("a file of ours");
    quit(&terminal);
    let again = fs::read_to_string(&file).expect("the settings file");
    assert!(again.contains("# by hand") && again.contains("view = \"overview\""), "{again}");

    let broken = "view = [\n";
    terminal.set(broken);
    top(&terminal, "");
    let screen = terminal.wait_for("settings.toml, ");
    assert!(screen.contains("nvcswch/s"), "the defaults apply:\n{screen}");
    terminal.press("u");
    terminal.press("2");
    quit(&terminal);
    terminal.wait_for("and nothing is saved");
    assert_eq!(fs::read_to_string(&file).expect("a file of ours"), broken);
}
