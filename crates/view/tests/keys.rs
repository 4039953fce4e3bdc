//! Tests keys that users know from other programs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_made_up::host;
use cgscope_model::Interval;
use cgscope_view::{
    app::{About, App, Effect, View},
    keys::KeyPress,
    replay::{
        Replay,
        player::{Moment, Player},
    },
    settings::Settings,
    theme::Theme,
};

fn app() -> App {
    let mut app = App::new(About::default(), Settings::default(), Theme::default(), Duration::from_secs(1));
    app.on_resize(80, 24);
    app.on_interval(Arc::new(Interval::between(&host(200, 40, 0), &host(200, 40, 1))));
    press(&mut app, "home");
    app
}

fn press(app: &mut App, key: &str) -> Effect {
    app.on_key(key.parse::<KeyPress>().unwrap().into())
}

#[test]
fn ctrl_d_and_ctrl_u_move_half_a_page() {
    let mut app = app();
    assert_eq!(press(&mut app, "pagedown"), Effect::Draw);
    let page = app.selected;
    press(&mut app, "g");
    assert_eq!(press(&mut app, "ctrl-d"), Effect::Draw);
    assert_eq!(app.selected, page / 2);
    press(&mut app, "ctrl-u");
    assert_eq!(app.selected, 0);
    assert!(page >= 4, "{page}");
}

#[test]
fn ctrl_l_redraws_the_screen() {
    assert_eq!(press(&mut app(), "ctrl-l"), Effect::Redraw);
}

#[test]
fn keys_for_quit_and_help_in_other_programs_work_here() {
    for key in ["q", "f10", "ctrl-c"] {
        assert_eq!(press(&mut app(), key), Effect::Quit, "{key}");
    }
    for key in ["h", "?", "f1"] {
        let mut app = app();
        press(&mut app, key);
        assert_eq!(app.view, View::Help, "{key}");
        press(&mut app, key);
        assert_eq!(app.view, View::Overview, "{key}");
    }
}

#[test]
fn ctrl_c_closes_the_prompt_and_restores_the_filter() {
    let mut app = app();
    for key in ["/", "w", "e", "b", "enter", "/", "x"] {
        press(&mut app, key);
    }
    assert_eq!(app.filter, "webx");
    assert_eq!(press(&mut app, "ctrl-c"), Effect::Draw);
    assert_eq!((app.filter.as_str(), app.prompt.is_none()), ("web", true));
    assert_eq!(press(&mut app, "ctrl-c"), Effect::Quit);
}

#[test]
fn a_replay_does_not_use_keys_with_ctrl() {
    let mut app = app();
    let moments =
        (0..10).map(|second| Moment { mono_ns: second * 1_000_000_000, unix_ns: second * 1_000_000_000 });
    app.replay = Some(Replay::new(Player::new(moments.collect(), Instant::now()), Instant::now()));
    assert_eq!(press(&mut app, "ctrl-n"), Effect::Draw);
    assert_eq!(app.selected, 1);
    // Without Ctrl, the key is a command of the replay.
    press(&mut app, "n");
    let replay = app.replay.as_ref().unwrap();
    assert_eq!((app.selected, replay.notice.is_some()), (1, true));
    press(&mut app, ":");
    press(&mut app, "5");
    assert_eq!(press(&mut app, "ctrl-c"), Effect::Draw);
    assert_eq!(app.replay.as_ref().unwrap().prompt, None);
}
