//! Tests how keys, the mouse and intervals change the state.

use cgscope_made_up::small::{interval, task, waiting};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::*;
use crate::{settings::Span, theme::Colours};

/// Returns a screen with a flat list of threads. A tuple has a thread's tid and how long it waited, ms.
fn app(tasks: &[(u32, u64)]) -> App {
    let settings = Settings { tree: false, processes: false, ..Settings::default() };
    let mut app = App::new(About::default(), settings, Theme::new(Colours::None), Duration::from_secs(1));
    app.on_resize(80, 24);
    again(&mut app, tasks);
    app
}

fn again(app: &mut App, tasks: &[(u32, u64)]) {
    app.on_interval(interval(tasks.iter().map(|(tid, ms)| task(*tid, &[ms * 1_000_000])).collect()));
}

fn press(app: &mut App, code: KeyCode) -> Effect {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(app: &mut App, text: &str) {
    text.chars().for_each(|letter| {
        press(app, KeyCode::Char(letter));
    });
}

fn tids(app: &App) -> Vec<u32> {
    let data = app.data.as_ref().unwrap();
    let subjects = app.rows.iter().filter_map(|row| data.subject(&row.key));
    subjects.filter_map(|subject| subject.task().map(|task| task.reading.tid)).collect()
}

fn selected_tid(app: &App) -> u32 {
    app.subject().unwrap().task().unwrap().reading.tid
}

fn paths(app: &App) -> Vec<String> {
    app.rows
        .iter()
        .map(|row| match &row.key {
            Key::Cgroup(path) => path.to_string(),
            key => format!("{key:?}"),
        })
        .collect()
}

#[test]
fn the_task_that_waits_most_is_first_and_selected() {
    let app = app(&[(1, 5), (2, 9), (3, 7)]);
    assert_eq!((tids(&app), selected_tid(&app)), (vec![2, 3, 1], 2));
}

#[test]
fn an_unfinished_wait_counts_for_sorting() {
    let mut app = app(&[(1, 5)]);
    app.on_interval(interval(vec![task(1, &[5_000_000]), waiting(task(2, &[]), 80_000_000)]));
    assert_eq!(tids(&app), [2, 1]);
}

#[test]
fn the_selection_follows_its_task_to_another_row() {
    let mut app = app(&[(1, 5), (2, 9), (3, 7)]);
    press(&mut app, KeyCode::Down);
    assert_eq!(selected_tid(&app), 3);
    again(&mut app, &[(1, 5), (2, 9), (3, 70)]);
    assert_eq!((app.selected, selected_tid(&app)), (0, 3));
    assert_eq!(app.focus.past.len(), 2);
    assert_eq!(app.span(Span::Minute).0.count, 2);
}

#[test]
fn when_the_selected_task_exits_its_row_stays_selected() {
    let mut app = app(&[(1, 5), (2, 9), (3, 7)]);
    press(&mut app, KeyCode::End);
    again(&mut app, &[(2, 9), (3, 7)]);
    assert_eq!((app.selected, selected_tid(&app)), (1, 3));
    again(&mut app, &[]);
    assert!(app.rows.is_empty());
    again(&mut app, &[(8, 1)]);
    assert_eq!(selected_tid(&app), 8);
}

#[test]
fn equal_rows_keep_their_order() {
    let mut app = app(&[(1, 5), (2, 5), (3, 5)]);
    assert_eq!(tids(&app), [1, 2, 3]);
    type_in(&mut app, "r");
    assert_eq!(tids(&app), [1, 2, 3]);
}

#[test]
fn a_paused_screen_shows_nothing_new_and_loses_nothing() {
    let mut app = app(&[(1, 5)]);
    type_in(&mut app, " ");
    again(&mut app, &[(2, 5)]);
    assert_eq!(tids(&app), [1]);
    type_in(&mut app, " ");
    assert_eq!(tids(&app), [2], "the latest interval is shown at once");
    assert_eq!(app.history.frames.len(), 2);
}

#[test]
fn the_letter_of_a_column_sorts_by_it_and_then_reverses() {
    let mut app = app(&[(30, 5), (10, 9), (20, 7)]);
    type_in(&mut app, "V");
    assert_eq!(tids(&app), [30, 20, 10], "tasks with most involuntary switches first");
    type_in(&mut app, "V");
    assert_eq!(tids(&app), [10, 20, 30]);
    assert_eq!(
        app.settings.sort_of(ListKind::Threads),
        (Column::Of(cgscope_model::Counter::Involuntary), true),
        "the sort column is saved"
    );
}

#[test]
fn a_column_is_chosen_from_a_list() {
    let mut app = app(&[(30, 5), (10, 9), (20, 7)]);
    press(&mut app, KeyCode::Char('s'));
    press(&mut app, KeyCode::Home);
    assert_eq!(press(&mut app, KeyCode::Enter), Effect::Draw);
    assert_eq!((app.sort_of(ListKind::Threads).0, tids(&app)), (Column::Tid, vec![10, 20, 30]));
    press(&mut app, KeyCode::Char('s'));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.sort_of(ListKind::Threads).0, Column::Tid, "as before");
}

#[test]
fn choices_from_the_command_line_are_not_saved() {
    let mut app = app(&[(1, 5), (2, 9)]);
    let begin = Begin { view: Some(View::Heatmap), sort: Some("tid".into()), filter: Some("task-2".into()) };
    let before = app.settings.clone();
    app.begin_with(begin);
    again(&mut app, &[(1, 5), (2, 9)]);
    assert_eq!(
        (app.view, tids(&app), app.sort_of(ListKind::Threads).0),
        (View::Heatmap, vec![2], Column::Tid)
    );
    app.begin_with(Begin { sort: Some("p98".into()), ..Begin::default() });
    again(&mut app, &[(1, 5)]);
    assert!(app.notice.as_deref().is_some_and(|notice| notice.contains("no column p98")));
    assert_eq!(app.settings, before);
}

#[test]
fn a_filter_works_while_it_is_typed_and_escape_clears_it() {
    let mut app = app(&[(1, 5), (12, 9), (3, 7)]);
    type_in(&mut app, "/task-1");
    assert_eq!(tids(&app), [12, 1]);
    press(&mut app, KeyCode::Enter);
    type_in(&mut app, "j");
    assert_eq!((selected_tid(&app), app.filter.as_str()), (1, "task-1"), "letters are commands again");
    press(&mut app, KeyCode::Esc);
    assert_eq!((tids(&app).len(), selected_tid(&app)), (3, 1), "the selected task stays selected");
    type_in(&mut app, "/12");
    assert_eq!(tids(&app), [12], "a complete id");
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.filter, "");
}

/// Returns a screen with a tree: two processes in the service, and two in the pod.
fn tree() -> App {
    let mut app =
        App::new(About::default(), Settings::default(), Theme::new(Colours::None), Duration::from_secs(1));
    app.on_resize(80, 24);
    again(&mut app, &[(10, 5), (20, 9), (40, 7), (50, 6)]);
    press(&mut app, KeyCode::Home);
    app
}

const POD: &str = "/kubepods/burstable/pod7f/main";

#[test]
fn branches_close_and_open_and_siblings_are_sorted() {
    let mut app = tree();
    assert_eq!(
        paths(&app),
        [
            "/",
            "/kubepods",
            "/kubepods/burstable",
            "/kubepods/burstable/pod7f",
            POD,
            "/system.slice",
            "/system.slice/web.service"
        ]
    );
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Left);
    assert_eq!(paths(&app), ["/", "/kubepods", "/system.slice", "/system.slice/web.service"]);
    again(&mut app, &[(10, 50), (20, 9)]);
    assert_eq!(paths(&app), ["/", "/system.slice", "/system.slice/web.service", "/kubepods"]);
    assert_eq!(app.selected, 3, "the branch stays selected");
    press(&mut app, KeyCode::Right);
    assert_eq!(app.rows.len(), 7);
    press(&mut app, KeyCode::End);
    press(&mut app, KeyCode::Left);
    assert_eq!(paths(&app)[app.selected], "/kubepods/burstable/pod7f", "from a leaf to its parent");
}

#[test]
fn enter_opens_a_row_and_escape_returns_to_it() {
    let mut app = tree();
    (0..4).for_each(|_| {
        press(&mut app, KeyCode::Down);
    });
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.kind(), &app.scope), (ListKind::Processes, &Key::Cgroup(POD.into())));
    assert_eq!(app.rows.len(), 2);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.kind(), tids(&app)), (ListKind::Threads, vec![20]));
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.view, View::Task);
    for scope in [Key::Process(20), Key::Cgroup(POD.into()), Key::All] {
        press(&mut app, KeyCode::Esc);
        assert_eq!((app.view, &app.scope), (View::Overview, &scope));
    }
    assert_eq!((app.kind(), app.selected), (ListKind::Cgroups, 4));
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::None, "it does not quit");
}

#[test]
fn views_keep_the_selected_row() {
    let mut app = tree();
    (0..4).for_each(|_| {
        press(&mut app, KeyCode::Down);
    });
    // The What if view opens only for a cgroup with a quota.
    for view in View::ALL.iter().filter(|view| !matches!(view, View::Help | View::WhatIf)) {
        type_in(&mut app, view.command().default_keys()[0]);
        assert_eq!(app.view, *view);
    }
    type_in(&mut app, "1");
    assert_eq!(app.subject().unwrap().key(), Key::Cgroup(POD.into()));
    press(&mut app, KeyCode::Tab);
    assert_eq!(app.view, View::Histogram);
    press(&mut app, KeyCode::BackTab);
    press(&mut app, KeyCode::BackTab);
    assert_eq!(app.view, View::Chains, "the first view comes before the last one");
}

#[test]
fn the_worst_finding_is_selected_until_the_user_selects_a_row() {
    let busy = |ms: u64| vec![task(2, &[ms * 1_000_000; 8]), task(1, &[1_000])];
    let mut app =
        App::new(About::default(), Settings::default(), Theme::new(Colours::None), Duration::from_secs(1));
    app.on_resize(80, 24);
    app.on_interval(interval(busy(50)));
    assert_eq!(app.data.as_ref().unwrap().findings[0].cgroup.as_deref(), Some(POD));
    assert_eq!(app.subject().unwrap().key(), Key::Cgroup(POD.into()));
    press(&mut app, KeyCode::Home);
    app.on_interval(interval(busy(50)));
    assert_eq!(app.subject().unwrap().key(), Key::Cgroup("/".into()));
}

#[test]
fn an_opened_subject_may_exit() {
    let mut app = tree();
    press(&mut app, KeyCode::End);
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Enter);
    again(&mut app, &[(20, 9)]);
    assert!(app.rows.is_empty());
    app.view = View::Task;
    again(&mut app, &[]);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.scope, Key::All);
}

#[test]
fn a_single_cgroup_is_not_shown_as_a_tree() {
    let mut app =
        App::new(About::default(), Settings::default(), Theme::new(Colours::None), Duration::from_secs(1));
    again(&mut app, &[(1, 5), (4, 7)]);
    assert_eq!(app.kind(), ListKind::Processes);
    assert!(app.settings.tree, "the saved choice of the user stays");
}

fn mouse(app: &mut App, kind: MouseEventKind, column: u16, row: u16) -> Effect {
    app.on_event(&crossterm::event::Event::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    }))
}

#[test]
fn the_mouse_selects_opens_sorts_and_scrolls() {
    let mut app = tree();
    let click = MouseEventKind::Down(MouseButton::Left);
    let table = layout::regions(&app).unwrap().table;
    assert_eq!(mouse(&mut app, click, 3, table.y + 2), Effect::Draw);
    assert_eq!(app.selected, 1);
    let tabs = layout::regions(&app).unwrap().tabs;
    mouse(&mut app, click, 14, tabs.y);
    assert_eq!(app.view, View::Histogram);
    mouse(&mut app, click, 0, tabs.y);
    assert_eq!(app.view, View::Overview);
    mouse(&mut app, click, 22, table.y);
    assert_eq!(
        app.sort_of(ListKind::Cgroups),
        (Column::WaitTime, true),
        "a click on the heading reverses the order"
    );
    assert_eq!(app.selected, 0, "the row that is now first");
    mouse(&mut app, MouseEventKind::ScrollDown, 3, table.y + 2);
    assert_eq!(app.selected, 3);
    mouse(&mut app, click, 3, table.y + 1);
    mouse(&mut app, click, 3, table.y + 1);
    assert_ne!(app.scope, Key::All, "a click on the selected row opens it");
    assert_eq!(mouse(&mut app, click, 79, 23), Effect::None);
}

#[test]
fn the_selected_row_is_always_visible() {
    let mut app = app(&(1..=50).map(|tid| (tid, 5)).collect::<Vec<_>>());
    let rows = layout::rows(&app);
    press(&mut app, KeyCode::End);
    assert_eq!(app.first_row, 50 - rows);
    press(&mut app, KeyCode::PageUp);
    assert!((app.first_row..app.first_row + rows).contains(&app.selected));
    app.on_resize(60, 12);
    assert!((app.first_row..app.first_row + layout::rows(&app)).contains(&app.selected));
    app.on_resize(10, 3);
    app.on_resize(200, 60);
    assert_eq!(app.first_row, 50usize.saturating_sub(layout::rows(&app)), "no empty lines below");
}

#[test]
fn keys_change_the_interval_length_within_bounds() {
    let mut app = app(&[(1, 5)]);
    assert_eq!(press(&mut app, KeyCode::Char('+')), Effect::Interval(Duration::from_secs(2)));
    (0..20).for_each(|_| {
        press(&mut app, KeyCode::Char('-'));
    });
    assert_eq!(app.delay, Duration::from_millis(100));
    assert_eq!(press(&mut app, KeyCode::Char('-')), Effect::None);
}

#[test]
fn command_lines_are_requested_if_shown_and_found_by_the_filter() {
    let mut app = app(&[(1, 5), (20, 9)]);
    assert!(app.wanted_command_lines().is_empty());
    type_in(&mut app, "c");
    assert_eq!(app.wanted_command_lines(), [0, 20]);
    app.on_command_lines([(20, Some("nginx: worker".into())), (0, None)]);
    assert!(app.wanted_command_lines().is_empty());
    type_in(&mut app, "/nginx: w");
    assert_eq!(tids(&app), [20]);
    again(&mut app, &[(1, 5)]);
    assert_eq!(
        app.command_lines.keys().copied().collect::<Vec<_>>(),
        [0],
        "command lines of exited processes are dropped"
    );
}

#[test]
fn exited_tasks_still_count_since_the_start() {
    let mut app = tree();
    let all = app.span(Span::Start).0.count;
    again(&mut app, &[(10, 5)]);
    assert_eq!(app.span(Span::Start).0.count, all + 1);
    let cgroup = Key::Cgroup("/kubepods".into());
    let data = app.data.as_ref().unwrap();
    assert_eq!(app.history.since_start(&cgroup, data).0.count, 2, "two exited tasks of the cgroup");
}

#[test]
fn keys_without_a_command_draw_nothing() {
    let mut app = app(&[(1, 5)]);
    assert_eq!(press(&mut app, KeyCode::Char('z')), Effect::None);
    assert_eq!(press(&mut app, KeyCode::Char('w')), Effect::Snapshot);
    let (text, _) = crate::snapshot::text(&app).unwrap();
    assert!(text.contains("cgscope top") && text.contains("task-1") && !text.contains('\u{1b}'));
}

#[test]
fn a_new_list_shows_the_tasks_that_wait_most() {
    let mut app = app(&(1..=50).map(|tid| (tid, u64::from(100 - tid))).collect::<Vec<_>>());
    again(&mut app, &(1..=50).map(|tid| (tid, u64::from(tid))).collect::<Vec<_>>());
    assert_eq!((app.first_row, selected_tid(&app)), (0, 50));
    press(&mut app, KeyCode::End);
    type_in(&mut app, "r");
    assert_eq!((app.first_row, app.selected), (0, 0), "sorting shows the first row");
}

#[test]
fn a_view_of_one_subject_stays_with_it_and_reports_its_exit() {
    let mut app = app(&[(1, 5), (2, 9), (3, 7)]);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.view, selected_tid(&app)), (View::Task, 2));
    again(&mut app, &[(1, 50), (2, 9)]);
    assert_eq!(selected_tid(&app), 2, "although another row is now first");
    again(&mut app, &[(1, 50)]);
    assert_eq!(app.exited_title(), Some("task-2 [thread 2]"));
    let screen = crate::snapshot::plain(&crate::snapshot::buffer(&app));
    assert!(screen.contains("task-2 [thread 2] has ended"), "{screen}");
    press(&mut app, KeyCode::Esc);
    assert_eq!((app.exited_title(), selected_tid(&app)), (None, 1));
    type_in(&mut app, "2");
    press(&mut app, KeyCode::Down);
    assert_eq!(app.view, View::Histogram);
}

#[test]
fn a_paused_screen_also_keeps_its_history() {
    let mut app = app(&[(1, 5), (2, 9)]);
    type_in(&mut app, " ");
    (0..3).for_each(|_| again(&mut app, &[(1, 5), (2, 9)]));
    press(&mut app, KeyCode::Down);
    assert_eq!((app.history().frames.len(), app.focus.past.len()), (1, 1));
    assert_eq!(app.span(Span::Start).0.count, 1);
    type_in(&mut app, " ");
    assert_eq!((app.history().frames.len(), app.focus.past.len()), (4, 4));
}

#[test]
fn going_back_restores_the_filter_and_the_tree() {
    let mut app = tree();
    type_in(&mut app, "/web");
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.filter.as_str(), app.kind()), ("", ListKind::Processes));
    press(&mut app, KeyCode::Esc);
    assert_eq!((app.filter.as_str(), app.kind()), ("web", ListKind::Cgroups));
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.filter, "");
    type_in(&mut app, "7");
    press(&mut app, KeyCode::Enter);
    assert!(!app.filter.is_empty() && app.kind() != ListKind::Cgroups);
    press(&mut app, KeyCode::Esc);
    assert_eq!((app.view, app.filter.as_str()), (View::States, ""));
    type_in(&mut app, "1");
    assert_eq!(app.kind(), ListKind::Cgroups);
}

#[test]
fn help_and_findings_cover_the_current_view() {
    let mut app = tree();
    type_in(&mut app, "5?f");
    assert_eq!(app.view, View::Findings);
    type_in(&mut app, "f");
    assert_eq!(app.view, View::Culprits);
    type_in(&mut app, "?");
    press(&mut app, KeyCode::PageDown);
    assert!(app.scrolled > 10, "a page: {}", app.scrolled);
    press(&mut app, KeyCode::Tab);
    assert_eq!((app.view, app.settings.view), (View::Numa, View::Numa), "starting from the view below help");
    type_in(&mut app, "8?");
    assert_eq!(app.settings.view, View::Numa, "the view of a task is not saved as the first view");
}

/// If a paste opened no prompt, its letters would be commands: `w` writes a file, `q` quits.
#[test]
fn pasted_text_is_text_for_a_filter_and_nothing_else() {
    let paste = |text: &str| crossterm::event::Event::Paste(text.into());
    let mut app = app(&[(1, 5), (2, 9)]);
    assert_eq!(app.on_event(&paste("wq\u{1b}[2J")), Effect::None);
    assert!(app.prompt.is_none() && app.filter.is_empty());
    press(&mut app, KeyCode::Char('/'));
    app.on_event(&paste("we\u{1b}[b\n"));
    assert_eq!(app.filter, "we[b");
    app.on_event(&paste(&"x".repeat(1_000_000)));
    assert!(app.filter.len() <= 128 && app.prompt.is_some());
}

#[test]
fn a_click_closes_a_prompt() {
    let mut app = tree();
    press(&mut app, KeyCode::Char('s'));
    press(&mut app, KeyCode::End);
    let tabs = layout::regions(&app).unwrap().tabs;
    let click = MouseEventKind::Down(MouseButton::Left);
    mouse(&mut app, click, 44, tabs.y);
    assert_eq!((app.view, app.prompt.is_none()), (View::Overview, true));
    mouse(&mut app, click, 44, tabs.y);
    assert_eq!((app.view, app.settings.sort.len()), (View::Culprits, 0));
}

#[test]
fn another_program_in_a_process_has_another_command_line() {
    let mut app = app(&[(20, 9)]);
    type_in(&mut app, "c");
    app.on_command_lines([(20, Some("sh -c nginx".into()))]);
    assert!(app.wanted_command_lines().is_empty());
    let mut after = task(20, &[9_000_000]);
    after.comm = "nginx".into();
    app.on_interval(interval(vec![after]));
    assert_eq!(app.wanted_command_lines(), [20]);
}

#[test]
fn lists_of_cgroups_stay_within_the_opened_cgroup_and_find_tasks() {
    let mut app = tree();
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.scope, Key::Cgroup("/kubepods".into()));
    type_in(&mut app, "4");
    assert_eq!(paths(&app), ["/kubepods", "/kubepods/burstable", "/kubepods/burstable/pod7f", POD]);
    press(&mut app, KeyCode::Esc);
    type_in(&mut app, "1/task-40");
    assert_eq!(paths(&app), ["/system.slice/web.service"], "the cgroup that the task is in");
}

#[test]
fn tasks_in_cgroups_without_a_name_have_no_sum_since_the_start() {
    let mut nameless = task(10, &[5_000_000]);
    nameless.cgroup_id = 99;
    let mut app = tree();
    app.on_interval(interval(vec![nameless, task(20, &[9_000_000]), task(40, &[7_000_000])]));
    press(&mut app, KeyCode::End);
    assert_eq!(app.subject().unwrap().key(), Key::Unknown);
    assert_eq!(app.span(Span::Start).0.count, 1);
}
