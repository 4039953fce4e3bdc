//! Tests of the views of the screen, their keys, and the mouse, in a terminal.

use std::{fs, thread, time::Duration};

use crate::{
    bench::{cgscope, run, stderr},
    files::Dir,
    load::{Cgroup, Load},
    terminal::Terminal,
};

/// Words that appear in only one view, by the view's key.
const VIEWS: [(&str, &str); 8] = [
    ("1", "nvcswch/s"),
    ("2", "i: next span"),
    ("3", "; most tasks waited at "),
    ("4", "limited by"),
    ("5", "behind/s"),
    ("6", "ran on"),
    ("7", "threads on average: on CPU"),
    ("8", "its own sum (run_delay)"),
];

fn top(terminal: &Terminal, args: &str) {
    terminal.cgscope(&format!("top -d 0.3 {args}"));
    terminal.wait_for("tasks on average");
}

fn quit(terminal: &Terminal) {
    terminal.press("q");
    terminal.wait_until(
        |screen| ["left with 0", "left with 1"].iter().any(|words| screen.contains(words)),
        "its end",
    );
}

/// Returns the position of a text on a screen: column and row, counted from 1 as terminals do.
fn place(screen: &str, text: &str) -> (usize, usize) {
    let found = screen.lines().enumerate().find_map(|(y, line)| {
        let before = line.split_once(text)?.0;
        Some((before.chars().count() + 1, y + 1))
    });
    found.unwrap_or_else(|| panic!("{text:?} is not on\n{screen}"))
}

/// Presses a mouse button: 0 is the left one, 64 and 65 are wheel up and down.
fn mouse(terminal: &Terminal, button: u8, (x, y): (usize, usize)) {
    terminal.send(&format!("\x1b[<{button};{x};{y}M"));
    if button == 0 {
        terminal.send(&format!("\x1b[<{button};{x};{y}m"));
    }
}

/// Returns the thread that the pane below the list shows.
fn selected(screen: &str) -> Option<u32> {
    screen.lines().find_map(|line| line.split_once("[thread ")?.1.split_once(']')?.0.parse().ok())
}

/// Returns the visible threads of the list.
fn tids(screen: &str) -> Vec<u32> {
    let below = screen.lines().skip_while(|line| !line.trim_start().starts_with("tid")).skip(1);
    below.map_while(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// Shows a list of threads in stable order: sorted by id, with more threads than fit.
fn threads(terminal: &Terminal) -> (Load, String) {
    let (load, _out) = Load::workload(&["sleep", "60", "60"], None);
    terminal.set("tree = false\nprocesses = false\n[sort]\nthreads = \"tid\"\n");
    top(terminal, "");
    (load, terminal.wait_until(|screen| tids(screen).len() > 8, "a list of threads"))
}

fn wait_for_selected(terminal: &Terminal, tid: u32) -> String {
    terminal.wait_until(|screen| selected(screen) == Some(tid), &format!("thread {tid} as the selected one"))
}

/// Clicks on the row of a thread until the condition holds. Repeats the click, because a finding that appears or ends can move
/// the list between our reading of the screen and the click.
fn click_until(terminal: &Terminal, tid: u32, holds: impl Fn(&str) -> bool, what: &str) {
    for _ in 0..5 {
        mouse(terminal, 0, place(&terminal.screen(), &format!("{tid:>7} ")));
        let end = std::time::Instant::now() + std::time::Duration::from_secs(3);
        while std::time::Instant::now() < end {
            if holds(&terminal.screen()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    panic!("five clicks did not show {what}:\n{}", terminal.screen());
}

#[test]
fn its_number_tab_and_a_click_open_every_view() {
    let cgroup = Cgroup::new("views");
    cgroup.limit(50_000, 100_000);
    let _load = Load::busy_loop(Some(&cgroup));
    let _other = Load::busy_loop(None);
    let terminal = Terminal::new(120, 40);
    top(&terminal, "");
    for (at, (key, words)) in VIEWS.into_iter().enumerate().rev() {
        terminal.press(key);
        let others = VIEWS.iter().enumerate().filter(|(other, (key, _))| *other != at && !"13".contains(key));
        let others: Vec<&str> = others.map(|(_, (_, words))| *words).collect();
        // A half-drawn frame has words of two views.
        let alone =
            |screen: &str| screen.contains(words) && !others.iter().any(|words| screen.contains(words));
        terminal.wait_until(alone, &format!("view {key}, {words:?} and nothing of another view"));
    }
    for (_, words) in VIEWS.into_iter().cycle().skip(1).take(VIEWS.len()) {
        terminal.press("Tab");
        terminal.wait_for(words);
    }
    for (_, words) in VIEWS.into_iter().rev().take(2) {
        terminal.press("BTab");
        terminal.wait_for(words);
    }
    for name in ["4 Cgroups", "2 Histogram", "7 States"] {
        mouse(&terminal, 0, place(&terminal.screen(), name));
        let (_, words) = VIEWS.into_iter().find(|(key, _)| name.starts_with(key)).expect("a view");
        terminal.wait_for(words);
    }
    // Open the help and return to the previous view.
    for back in ["?", "Escape"] {
        terminal.press("?");
        terminal.wait_for("opens or closes this help");
        terminal.press(back);
        terminal.wait_for("threads on average: on CPU");
    }
    quit(&terminal);
    terminal.assert_given_back();
}

#[test]
fn rows_are_selected_by_keys_and_by_the_mouse() {
    let terminal = Terminal::new(120, 40);
    let (_load, screen) = threads(&terminal);
    let shown = tids(&screen);
    let press = |key: &str, tid: u32| {
        terminal.press(key);
        wait_for_selected(&terminal, tid)
    };
    wait_for_selected(&terminal, shown[0]);
    for (key, row) in [("Down", 1), ("j", 2), ("Up", 1), ("k", 0), ("k", 0)] {
        press(key, shown[row]);
    }
    // A finding about the load of another test takes rows away, so pages differ: a page once had 12 rows, and 15 before and after.
    terminal.press("PageDown");
    let half = shown[shown.len() / 2];
    let next = terminal.wait_until(|screen| selected(screen) > Some(half), "the next page");
    assert!(tids(&next).contains(&selected(&next).expect("a thread")), "{next}");
    terminal.press("PageUp");
    press("PageUp", shown[0]);
    terminal.press("End");
    let ends = |screen: &str| {
        let last = tids(screen).last().copied();
        selected(screen) == last && last > shown.last().copied()
    };
    terminal.wait_until(ends, "the last row");
    press("Home", shown[0]);

    let row = |tid: u32| place(&terminal.screen(), &format!("{tid:>7} "));
    let is_selected = |screen: &str| selected(screen) == Some(shown[4]);
    click_until(&terminal, shown[4], is_selected, "the clicked row as the selected one");
    mouse(&terminal, 65, row(shown[0]));
    wait_for_selected(&terminal, shown[7]);
    mouse(&terminal, 64, row(shown[0]));
    wait_for_selected(&terminal, shown[4]);
    // A click on the selected row opens it.
    let is_open = |screen: &str| screen.contains("its own sum (run_delay)");
    click_until(&terminal, shown[4], is_open, "the thread of the selected row");
    terminal.press("Escape");
    wait_for_selected(&terminal, shown[4]);
    quit(&terminal);
    terminal.assert_given_back();
}

#[test]
fn a_cgroup_can_be_found_opened_down_to_a_thread_and_left_again() {
    let cgroup = Cgroup::new("drill");
    let (load, _out) = Load::workload(&["blink", "5", "60"], Some(&cgroup));
    let terminal = Terminal::new(120, 40);
    top(&terminal, "");
    // The filter already applies while the user types it.
    terminal.send("/");
    terminal.wait_for("show only: ");
    terminal.send(&cgroup.name);
    terminal.wait_for("  1 row");
    terminal.press("Escape");
    terminal.wait_until(|screen| !screen.contains("show only"), "the list without a filter");
    terminal.send(&format!("/{}", cgroup.name));
    terminal.press("Enter");
    let screen = terminal.wait_for(&format!("with {}  1 row", cgroup.name));
    assert!(!screen.contains("show only"), "{screen}");
    let into = [
        format!("in {}  Esc goes back", cgroup.name),
        format!("in workload [process {}]  Esc goes back", load.pid()),
    ];
    for crumbs in &into {
        terminal.press("Enter");
        terminal.wait_for(crumbs);
    }
    terminal.wait_until(|screen| tids(screen).len() >= 5, "its threads");
    terminal.press("Enter");
    terminal.wait_for("its own sum (run_delay)");
    for crumbs in into.iter().rev() {
        terminal.press("Escape");
        terminal.wait_for(crumbs);
    }
    terminal.press("Escape");
    let screen = terminal.wait_until(|screen| !screen.contains("Esc goes back"), "all cgroups");
    assert!(screen.contains("of quota"), "{screen}");
    quit(&terminal);
}

#[test]
fn lists_can_be_sorted_and_reversed() {
    let cgroup = Cgroup::new("sorted");
    let (_load, _out) = Load::workload(&["blink", "5", "60"], Some(&cgroup));
    let terminal = Terminal::new(200, 40);
    top(&terminal, "");
    let (after, press) = (|text: &str| terminal.wait_for(text), |key: &str| terminal.press(key));
    after("wait/s▾");
    press("P");
    after("p99▾");
    press("r");
    after("p99▴");
    press("P");
    after("p99▾");
    press("s");
    after("sort by (Enter");
    press("Down");
    press("Enter");
    let screen = after("max▾");
    assert!(!screen.contains("sort by (Enter"), "{screen}");
    press(">");
    after("now▾");
    press("<");
    press("<");
    after("p99▾");
    let (x, y) = place(&terminal.screen(), "%CPU");
    mouse(&terminal, 0, (x + 1, y));
    after("%CPU▾");
    press("t");
    after("    pid ");
    press("p");
    after("    tid ");
    press("p");
    after("    pid ");
    press("t");
    after("of quota");
    press("?");
    after("opens or closes this help");
    quit(&terminal);
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
        // Below 500 ms, the next steps are 200 ms and 100 ms.
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
    // A changed setting replaces only its own key: the rest of the file stays.
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
