//! Tests what the screen shows after keys and mouse events: views, the selected row, opened rows, order and filter.

use std::{sync::Arc, time::Duration};

use cgscope_made_up::host;
use cgscope_model::Interval;
use cgscope_view::{
    app::{About, App},
    keys::KeyPress,
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};
use crossterm::event::{Event, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

/// Words that appear in only one view, by the view's key.
const VIEWS: [(&str, &str); 9] = [
    ("1", "nvcswch/s"),
    ("2", "i: next span"),
    ("3", "; most tasks waited at "),
    ("4", "limited by"),
    ("5", "behind/s"),
    ("6", "ran on"),
    ("7", "threads on average: on CPU"),
    ("8", "in all; p50 "),
    ("9", "start with --chains"),
];

struct Shown {
    app: App,
    interval: Arc<Interval>,
}

impl Shown {
    fn new(settings: Settings, (width, height): (u16, u16)) -> Self {
        let mut app = App::new(About::default(), settings, Theme::new(Colours::None), Duration::from_secs(1));
        app.on_resize(width, height);
        let interval = Arc::new(Interval::between(&host(200, 40, 0), &host(200, 40, 1)));
        app.on_interval(interval.clone());
        Self { app, interval }
    }

    fn screen(&self) -> String {
        snapshot::plain(&snapshot::buffer(&self.app))
    }

    fn press(&mut self, key: &str) -> String {
        self.app.on_key(key.parse::<KeyPress>().expect("a key").into());
        self.screen()
    }

    fn type_in(&mut self, text: &str) -> String {
        text.chars().for_each(|letter| drop(self.press(&letter.to_string())));
        self.screen()
    }

    fn mouse(&mut self, kind: MouseEventKind, (column, row): (u16, u16)) -> String {
        self.app.on_event(&Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        self.screen()
    }

    fn click(&mut self, text: &str) -> String {
        self.mouse(MouseEventKind::Down(MouseButton::Left), place(&self.screen(), text))
    }
}

/// Returns the column and the row of a text on a screen, from 0.
fn place(screen: &str, text: &str) -> (u16, u16) {
    let found = screen.lines().zip(0..).find_map(|(line, y)| {
        let (before, _) = line.split_once(text)?;
        Some((before.chars().count() as u16, y))
    });
    found.unwrap_or_else(|| panic!("{text:?} is not on\n{screen}"))
}

fn assert_shows(screen: &str, text: &str) {
    assert!(screen.contains(text), "{text:?} is not on\n{screen}");
}

fn selected(screen: &str) -> Option<u32> {
    screen.lines().find_map(|line| line.split_once("[thread ")?.1.split_once(']')?.0.parse().ok())
}

/// Returns the visible threads of the list.
fn tids(screen: &str) -> Vec<u32> {
    let below = screen.lines().skip_while(|line| !line.trim_start().starts_with("tid")).skip(1);
    below.map_while(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn its_number_tab_and_a_click_open_every_view() {
    let mut shown = Shown::new(Settings::default(), (120, 40));
    for (key, words) in VIEWS.into_iter().rev() {
        let screen = shown.press(key);
        assert_shows(&screen, words);
        let others = VIEWS.iter().filter(|(other, _)| *other != key && !"13".contains(other));
        for (_, words) in others {
            assert!(!screen.contains(words), "{words:?} of another view is on\n{screen}");
        }
    }
    for (_, words) in VIEWS.into_iter().cycle().skip(1).take(VIEWS.len()) {
        assert_shows(&shown.press("tab"), words);
    }
    for (_, words) in VIEWS.into_iter().rev().take(2) {
        assert_shows(&shown.press("shift-tab"), words);
    }
    for name in ["4 Cgroups", "2 Histogram", "7 States"] {
        let (_, words) = VIEWS.into_iter().find(|(key, _)| name.starts_with(key)).expect("a view");
        assert_shows(&shown.click(name), words);
    }
    for back in ["?", "esc"] {
        assert_shows(&shown.press("?"), "opens or closes this help");
        assert_shows(&shown.press(back), "threads on average: on CPU");
    }
}

#[test]
fn rows_are_selected_by_keys_and_by_the_mouse() {
    let settings = Settings { tree: false, processes: false, ..Settings::default() };
    let mut shown = Shown::new(settings, (120, 40));
    let screen = shown.press("home");
    let first = tids(&screen);
    assert_eq!(selected(&screen), Some(first[0]), "{screen}");
    for (key, row) in [("down", 1), ("j", 2), ("up", 1), ("k", 0), ("k", 0)] {
        assert_eq!(selected(&shown.press(key)), Some(first[row]), "{key}");
    }
    let next = shown.press("pagedown");
    assert!(!tids(&next).contains(&first[0]) && tids(&next).contains(&selected(&next).expect("a thread")));
    assert_eq!(selected(&shown.press("pageup")), Some(first[0]));
    let end = shown.press("end");
    assert_eq!(selected(&end), tids(&end).last().copied(), "{end}");
    assert_ne!(tids(&end), first);
    assert_eq!(selected(&shown.press("home")), Some(first[0]));

    let row = |tid: u32| format!("{tid:>7} ");
    assert_eq!(selected(&shown.click(&row(first[4]))), Some(first[4]));
    let at = place(&shown.screen(), &row(first[0]));
    assert_eq!(selected(&shown.mouse(MouseEventKind::ScrollDown, at)), Some(first[7]));
    assert_eq!(selected(&shown.mouse(MouseEventKind::ScrollUp, at)), Some(first[4]));
    assert_shows(&shown.click(&row(first[4])), "its own sum (run_delay)");
    assert_eq!(selected(&shown.press("esc")), Some(first[4]));
}

#[test]
fn a_cgroup_can_be_found_opened_down_to_a_thread_and_left_again() {
    let mut shown = Shown::new(Settings::default(), (120, 40));
    assert_shows(&shown.press("/"), "show only: ");
    let path = shown.interval.cgroups.last().expect("a cgroup").1.to_string();
    // The filter already applies while the user types it.
    assert_shows(&shown.type_in(&path), "  1 row");
    assert!(!shown.press("esc").contains("show only"));
    shown.type_in(&format!("/{path}"));
    let screen = shown.press("enter");
    assert_shows(&screen, &format!("with {path}  1 row"));
    assert!(!screen.contains("show only"), "{screen}");
    let mut crumbs = Vec::new();
    while crumbs.len() < 2 {
        let screen = shown.press("enter");
        let crumb = screen.lines().find(|line| line.contains("Esc goes back"));
        crumbs.push(crumb.unwrap_or_else(|| panic!("no opened row:\n{screen}")).trim().to_owned());
    }
    let last = path.rsplit('/').next().expect("a name");
    assert!(crumbs[0].contains(&format!("/{last}  ")) && crumbs[1].contains("[process "), "{crumbs:?}");
    assert!(!tids(&shown.screen()).is_empty(), "{}", shown.screen());
    assert_shows(&shown.press("enter"), "its own sum (run_delay)");
    for crumb in crumbs.iter().rev() {
        assert_shows(&shown.press("esc"), crumb);
    }
    let screen = shown.press("esc");
    assert!(!screen.contains("Esc goes back"), "{screen}");
    assert_shows(&screen, "of quota");
}

#[test]
fn lists_can_be_sorted_and_reversed() {
    let mut shown = Shown::new(Settings::default(), (200, 40));
    assert_shows(&shown.screen(), "wait/s▾");
    for (key, heading) in [("P", "p99▾"), ("r", "p99▴"), ("P", "p99▾"), ("s", "sort by (Enter")] {
        assert_shows(&shown.press(key), heading);
    }
    shown.press("down");
    let screen = shown.press("enter");
    assert!(screen.contains("max▾") && !screen.contains("sort by (Enter"), "{screen}");
    assert_shows(&shown.press(">"), "now▾");
    shown.press("<");
    assert_shows(&shown.press("<"), "p99▾");
    assert_shows(&shown.click("%CPU"), "%CPU▾");
    for (key, heading) in [("t", "    pid "), ("p", "    tid "), ("p", "    pid "), ("t", "of quota")] {
        assert_shows(&shown.press(key), heading);
    }
}
