//! Which cgroup the screen asks about, and when it asks.

use std::{sync::Arc, time::Duration};

use cgscope_made_up::small::{interval, task};
use cgscope_model::{CgroupReading, Interval};
use crossterm::event::KeyCode;

use super::*;
use crate::{
    app::About,
    keys::KeyPress,
    replay::{player::Player, state::Replay},
    settings::Settings,
    theme::{Colours, Theme},
};

const WEB: &str = "/system.slice/web.service";
const POD: &str = "/kubepods/burstable/pod7f/main";

/// A tree of cgroups. The cgroups with these paths have a quota.
fn app(limited: &[&str]) -> App {
    let mut app =
        App::new(About::default(), Settings::default(), Theme::new(Colours::None), Duration::from_secs(1));
    app.on_resize(80, 24);
    app.on_interval(with_quotas(limited));
    app
}

fn with_quotas(limited: &[&str]) -> Arc<Interval> {
    let tasks = [1, 2, 4].map(|tid| task(tid, &[2_000_000])).to_vec();
    let mut interval = (*interval(tasks)).clone();
    for (id, path) in (100..).zip(limited) {
        let id = interval.cgroups.iter().find(|(_, other)| &**other == *path).map_or(id, |(id, _)| *id);
        if interval.cgroup_path(id).is_none() {
            interval.cgroups.push((id, (*path).into()));
        }
        let quota = CgroupReading {
            id,
            quota_us: Some(50_000),
            period_us: Some(100_000),
            ..CgroupReading::default()
        };
        interval.limits.push(quota);
    }
    Arc::new(interval)
}

fn press(app: &mut App, key: &str) -> Effect {
    app.on_key(key.parse::<KeyPress>().expect("a key").into())
}

/// Selects the first row whose path ends with this, and asks. Returns the path of the cgroup in question, or the notice.
fn asked(app: &mut App, end: &str) -> Result<String, String> {
    let is_it = |key: &crate::subject::Key| match key {
        crate::subject::Key::Cgroup(path) => path.ends_with(end),
        key => format!("{key:?}").ends_with(end),
    };
    let row = app.rows.iter().position(|row| is_it(&row.key)).expect("a row");
    press(app, "home");
    (0..row).for_each(|_| {
        press(app, "down");
    });
    press(app, "e");
    app.wanted_enough().map(ToString::to_string).ok_or_else(|| app.notice.clone().unwrap_or_default())
}

#[test]
fn the_question_is_about_the_selected_cgroup() {
    assert_eq!(asked(&mut app(&[WEB, POD]), "web.service").as_deref(), Ok(WEB));
    assert_eq!(asked(&mut app(&[WEB, POD]), "main").as_deref(), Ok(POD));
}

#[test]
fn a_cgroup_without_a_quota_asks_about_the_one_above_it() {
    let above = asked(&mut app(&["/system.slice"]), "web.service");
    assert_eq!(above.as_deref(), Ok("/system.slice"));
    let none = asked(&mut app(&[WEB]), "main");
    assert_eq!(none, Err(format!("{POD} has no quota, and no cgroup above it has one")));
}

#[test]
fn the_question_about_a_task_is_about_its_cgroup() {
    let mut app = app(&[WEB]);
    press(&mut app, "t");
    press(&mut app, "p");
    // Task 4 is in the cgroup of the service, and task 2 in the pod.
    assert_eq!(asked(&mut app, &format!("Task({})", 4u64 << 42)).as_deref(), Ok(WEB));
    press(&mut app, "esc");
    assert!(asked(&mut app, &format!("Task({})", 2u64 << 42)).is_err());
}

#[test]
fn closing_the_view_ends_the_question() {
    for key in ["e", "esc", "?", "4"] {
        let mut app = app(&[WEB]);
        assert!(asked(&mut app, "web.service").is_ok());
        press(&mut app, key);
        assert_eq!(app.wanted_enough(), None, "{key}");
    }
    let mut app = app(&[WEB]);
    press(&mut app, "4");
    assert!(asked(&mut app, "web.service").is_ok());
    press(&mut app, "esc");
    assert_eq!(app.view, View::Cgroups, "the view below returns");
    assert_eq!(app.settings.view, View::Cgroups, "the question is not saved");
}

#[test]
fn an_answer_is_shown_if_it_is_still_wanted_and_the_screen_is_not_paused() {
    let mut app = app(&[WEB, POD]);
    let shown = |app: &App| app.enough.as_ref().expect("a question").lines.clone();
    assert!(asked(&mut app, "web.service").is_ok());
    app.on_enough(POD, vec!["another".into()]);
    assert!(shown(&app).is_empty());
    app.on_enough(WEB, vec!["1 CPU".into()]);
    assert_eq!(shown(&app), ["1 CPU"]);
    app.on_key(KeyCode::Char(' ').into());
    app.on_enough(WEB, vec!["2 CPUs".into()]);
    assert_eq!(shown(&app), ["1 CPU"]);
}

#[test]
fn where_there_is_no_demand_a_sentence_names_the_command() {
    let mut coarse = app(&[WEB]);
    coarse.about.coarse = Some("BPF is off".into());
    let said = asked(&mut coarse, "web.service").expect_err("no question");
    assert!(said.contains("coarse") && said.contains("`cgscope whatif FILE`"), "{said}");
    let mut replay = app(&[WEB]);
    let now = std::time::Instant::now();
    replay.replay = Some(Replay::new(Player::new(Vec::new(), now), now));
    press(&mut replay, "e");
    let said = replay.notice.clone().unwrap_or_default();
    assert!(said.contains("replay") && said.contains("`cgscope whatif FILE`"), "{said}");
    assert!(replay.view != View::WhatIf && said.chars().count() < 80);
}
