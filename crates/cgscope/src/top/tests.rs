//! What is drawn, as snapshots of whole screens.

use std::time::Duration;

use cgscope_layout::Loss;
use cgscope_model::{Interval, NodeReading, findings::Host, nodes::CpuInterval};
use cgscope_record::Reason;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Terminal, backend::TestBackend, layout::Rect};

use super::{
    batch_text,
    draw::{draw, table_height},
    fixtures::{after, before, interval, task, waiting},
    state::App,
    theme::Theme,
};
use crate::record::Recorded;

fn app() -> App {
    let mut app = App::new("whole host".into(), Duration::from_secs(1));
    let tasks = (1..=30).map(|tid| task(tid, &vec![u64::from(tid) * 40_000; 20 + tid as usize]));
    let mut tasks: Vec<_> = tasks.collect();
    tasks.push(task(101, &[50_000_000, 48_000_000, 51_000_000, 3_000, 3_000, 3_000]));
    tasks.push(waiting(task(102, &[]), 31_000_000));
    app.on_interval(interval(tasks));
    app
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let rows = table_height(Rect::new(0, 0, width, height), app);
    app.scroll_to_selected(rows);
    terminal.draw(|frame| draw(frame, app, Theme::new(false))).unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_wide_screen_has_the_histogram_beside_the_tasks() {
    insta::assert_snapshot!(screen(&mut app(), 200, 30));
}

#[test]
fn a_narrow_screen_has_it_below_and_fewer_columns() {
    insta::assert_snapshot!(screen(&mut app(), 80, 30));
}

#[test]
fn the_smallest_screen_still_says_who_waits() {
    insta::assert_snapshot!(screen(&mut app(), 60, 12));
}

#[test]
fn a_tall_screen_of_a_host_with_several_nodes_has_a_line_for_them() {
    let mut app = app();
    let mut interval = (**app.interval.as_ref().unwrap()).clone();
    interval.nodes = [0, 1].map(|node| NodeReading { node, ..NodeReading::default() }).into();
    interval.cpus = [0, 1]
        .map(|node| CpuInterval {
            cpu: 4 * node,
            node: Some(node),
            busy_ns: Some(u64::from(node) * 900_000_000),
            idle_ns: Some(1_000_000_000 - u64::from(node) * 900_000_000),
            ..CpuInterval::default()
        })
        .into();
    app.on_interval(interval.into());
    let screen = screen(&mut app, 100, 30);
    assert!(screen.contains("node 0: busy 0.0%, 0.6 runnable; node 1: busy 90.0%, 0.9 runnable"), "{screen}");
    assert!(!self::screen(&mut app, 100, 20).contains("node 0:"));
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    insta::assert_snapshot!(screen(&mut app(), 40, 8));
}

#[test]
fn losses_are_on_the_screen() {
    let mut app = app();
    let mut sample = after(vec![task(1, &[1_000])]);
    sample.losses.add(Loss::StampAfterClock, 7);
    sample.losses.add(Loss::SwitchOfHiddenTask, 2);
    app.on_interval(Interval::between(&before(), &sample).into());
    let screen = screen(&mut app, 100, 20);
    assert!(screen.contains("stamp_after_clock 7"), "{screen}");
    assert!(screen.contains("switch_of_hidden_task 2"), "{screen}");
}

#[test]
fn the_header_says_that_it_records_or_no_longer_does() {
    let mut app = App::new("a selection with a very long name ".repeat(3), Duration::from_secs(1));
    app.recorded = Some(Recorded::Recording(1 << 20));
    let at = |app: &mut App| screen(app, 60, 12).lines().next().unwrap_or_default().to_owned();
    assert!(at(&mut app).starts_with("\"cgscope top  recording 1.0MiB  a selection"), "{}", at(&mut app));
    app.recorded = Some(Recorded::Broken(Reason::DiskFull));
    assert!(at(&mut app).contains("  NO LONGER RECORDED: the disk was full  a sel"), "{}", at(&mut app));
}

#[test]
fn before_the_first_interval_and_without_tasks_it_says_so() {
    let mut app = App::new("process 1".into(), Duration::from_secs(1));
    assert!(screen(&mut app, 80, 24).contains("measuring the first interval"));
    app.on_interval(interval(Vec::new()));
    app.ended = Some("the target has exited".into());
    insta::assert_snapshot!(screen(&mut app, 80, 24));
}

#[test]
fn the_help_names_every_column() {
    let mut app = app();
    app.on_key(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
    insta::assert_snapshot!(screen(&mut app, 100, 24));
}

#[test]
fn all_tasks_together_in_milliseconds() {
    let mut app = app();
    app.on_key(KeyEvent::new(KeyCode::Char('a'), KeyModifiers::NONE));
    app.on_key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::NONE));
    insta::assert_snapshot!(screen(&mut app, 100, 30));
}

#[test]
fn no_size_makes_it_panic() {
    let mut app = app();
    for width in (1..=220).step_by(7) {
        for height in 1..=60 {
            screen(&mut app, width, height);
        }
    }
    app.all_tasks = true;
    for size in [(60, 12), (61, 13), (149, 12), (150, 12), (151, 60)] {
        screen(&mut app, size.0, size.1);
    }
}

#[test]
fn text_has_the_same_figures_and_no_control_codes() {
    let text = batch_text(app().interval.as_ref().unwrap(), &Host::default());
    assert!(!text.contains('\x1b'));
    insta::assert_snapshot!(text);
}
