//! Tests of whole replay screens and of the replay's keys.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_made_up::small::{interval, task};
use cgscope_model::findings::Rule;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::{
    app::{About, App, Effect, View},
    replay::{
        EndSummary, News, Replay,
        player::{Mark, Moment, Player},
    },
    settings::Settings,
    snapshot,
    theme::{Colours, Theme},
};

/// Returns a replay of one minute with a Sample each second. It is paused at the start and shows the first interval.
fn app() -> App {
    let now = Instant::now();
    let moment =
        |n: u64| Moment { mono_ns: 9_000 + n * 1_000_000_000, unix_ns: (1_700_000_000 + n) * 1_000_000_000 };
    let player = Player::new((0..=60).map(moment).collect(), now);
    let about = About { title: "a.rec: whole host".into(), hostname: "web1".into(), ..About::default() };
    let mut app = App::new(about, Settings::default(), Theme::new(Colours::None), Duration::from_secs(1));
    app.replay = Some(Replay::new(player, now));
    read(&mut app);
    app
}

/// Reads the interval at the player's position. Task 2 waits once in each interval.
fn read(app: &mut App) {
    let n = replay(app).player.position;
    let tasks = vec![task(1, &[7_000_000]), task(2, &vec![9_000_000; n + 1])];
    app.on_read(n, Some(interval(tasks)));
}

fn replay(app: &mut App) -> &mut Replay {
    app.replay.as_mut().unwrap()
}

fn press(app: &mut App, code: KeyCode) {
    press_with(app, code, KeyModifiers::NONE);
}

fn press_with(app: &mut App, code: KeyCode, modifiers: KeyModifiers) {
    assert_eq!(app.on_key(KeyEvent::new(code, modifiers)), Effect::Draw, "{code:?}");
    read(app);
}

fn type_in(app: &mut App, text: &str) {
    text.chars().for_each(|letter| press(app, KeyCode::Char(letter)));
}

fn found(app: &mut App) {
    let a: Arc<str> = "/system.slice/web.service".into();
    let marks = vec![
        Mark {
            interval: 20,
            begins: vec![(Rule::Throttled, Some(a.clone())), (Rule::CpuOversubscription, None)],
        },
        Mark { interval: 44, begins: vec![(Rule::Throttled, Some(a))] },
    ];
    replay(app).on_news(News::Marks(60, marks));
    let words = "the recording ended because the time asked for was over".into();
    replay(app).ending = Some(EndSummary { words, is_whole: true });
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    app.on_resize(width, height);
    snapshot::plain(&snapshot::buffer(app))
}

fn position(app: &mut App) -> usize {
    replay(app).player.position
}

#[test]
fn a_replay_is_usable_during_the_search_for_findings() {
    let mut app = app();
    let mark = Mark { interval: 3, begins: vec![(Rule::NoisyNeighbour, Some("/a".into()))] };
    replay(&mut app).on_news(News::Marks(24, vec![mark]));
    press(&mut app, KeyCode::Right);
    insta::assert_snapshot!(screen(&mut app, 120, 26));
}

#[test]
fn a_finding_is_named_at_the_interval_where_it_begins() {
    let mut app = app();
    found(&mut app);
    press(&mut app, KeyCode::Char('n'));
    insta::assert_snapshot!(screen(&mut app, 120, 26));
    assert!(screen(&mut app, 80, 14).contains("begins here: throttled /system.slice/web.service"));
}

#[test]
fn two_of_many_findings_that_begin_together_are_named() {
    let mut app = app();
    let begins = ["/a", "/b", "/c", "/d"].map(|path| (Rule::OwnContention, Some(path.into()))).into();
    replay(&mut app).on_news(News::Marks(60, vec![Mark { interval: 0, begins }]));
    let screen = screen(&mut app, 120, 26);
    assert!(
        screen.contains("begins here: own_contention /a, own_contention /b and 2 more  looking"),
        "{screen}"
    );
}

#[test]
fn the_last_interval_shows_how_the_recording_ended() {
    let mut app = app();
    press(&mut app, KeyCode::End);
    let early = screen(&mut app, 120, 26);
    assert!(early.contains("the last interval; looking for findings 0%"), "{early}");
    found(&mut app);
    insta::assert_snapshot!(screen(&mut app, 120, 26));
    let words = "the recording breaks off in its last frame".to_owned();
    replay(&mut app).ending = Some(EndSummary { words, is_whole: false });
    assert!(screen(&mut app, 60, 12).contains("the end: the recording breaks off in its last frame"));
    press(&mut app, KeyCode::Home);
    let start = screen(&mut app, 120, 26);
    assert!(start.contains("n and N go there; the recording breaks off in its last frame"), "{start}");
    assert!(start.contains(" 1/60  INCOMPLETE  █─"), "{start}");
}

#[test]
fn a_small_screen_has_the_position_and_the_keys() {
    let mut app = app();
    found(&mut app);
    insta::assert_snapshot!(screen(&mut app, 60, 12));
}

#[test]
fn the_help_begins_with_the_keys_of_a_replay() {
    let mut app = app();
    press(&mut app, KeyCode::Char('?'));
    insta::assert_snapshot!(screen(&mut app, 110, 24));
    press(&mut app, KeyCode::Char('?'));
    assert_eq!((app.view, position(&mut app)), (View::Overview, 0));
}

#[test]
fn keys_move_through_the_recording() {
    let mut app = app();
    found(&mut app);
    for (code, modifiers, expected) in [
        (KeyCode::Right, KeyModifiers::NONE, 1),
        (KeyCode::Right, KeyModifiers::SHIFT, 11),
        (KeyCode::Left, KeyModifiers::NONE, 10),
        (KeyCode::Left, KeyModifiers::SHIFT, 0),
        (KeyCode::Left, KeyModifiers::NONE, 0),
        (KeyCode::Char('n'), KeyModifiers::NONE, 20),
        (KeyCode::Char('n'), KeyModifiers::NONE, 44),
        (KeyCode::Char('N'), KeyModifiers::SHIFT, 20),
        (KeyCode::End, KeyModifiers::NONE, 59),
        (KeyCode::Home, KeyModifiers::NONE, 0),
    ] {
        press_with(&mut app, code, modifiers);
        assert_eq!(position(&mut app), expected, "{code:?} {modifiers:?}");
    }
}

#[test]
fn space_plays_and_pauses_and_a_step_pauses_too() {
    let mut app = app();
    press(&mut app, KeyCode::Char(' '));
    assert!(replay(&mut app).player.is_playing);
    press_with(&mut app, KeyCode::Right, KeyModifiers::SHIFT);
    assert!(replay(&mut app).player.is_playing, "a big step does not pause");
    press(&mut app, KeyCode::Right);
    assert!(!replay(&mut app).player.is_playing);
    assert!(screen(&mut app, 100, 24).contains("REPLAY PAUSED"));
    press(&mut app, KeyCode::Char(' '));
    press(&mut app, KeyCode::Char(' '));
    assert!(!replay(&mut app).player.is_playing);
}

#[test]
fn brackets_change_the_speed_within_its_bounds() {
    let mut app = app();
    (0..9).for_each(|_| press(&mut app, KeyCode::Char(']')));
    assert!(screen(&mut app, 100, 24).contains(" 64x "));
    (0..20).for_each(|_| press(&mut app, KeyCode::Char('[')));
    assert!(screen(&mut app, 100, 24).contains(" 0.25x "));
}

#[test]
fn a_typed_time_is_the_new_position_or_is_refused_with_a_reason() {
    let mut app = app();
    type_in(&mut app, ":22:13:40q");
    let typing = screen(&mut app, 120, 26);
    assert!(typing.contains("go to: 22:13:40q█"), "keys are text in the prompt: {typing}");
    press(&mut app, KeyCode::Backspace);
    press(&mut app, KeyCode::Enter);
    assert_eq!(position(&mut app), 20);
    type_in(&mut app, ":30s");
    press(&mut app, KeyCode::Esc);
    assert_eq!(position(&mut app), 20);
    type_in(&mut app, ":2h");
    press(&mut app, KeyCode::Enter);
    assert_eq!(position(&mut app), 20);
    let refused = screen(&mut app, 120, 26);
    assert!(
        refused.contains("\"2h\": this time is not in the recording, which covers 22:13:20 UTC to 22:14:20"),
        "{refused}"
    );
    press(&mut app, KeyCode::Left);
    assert!(
        !screen(&mut app, 120, 26).contains("this time is not"),
        "the notice is shown until the next key"
    );
}

#[test]
fn a_notice_says_that_there_is_no_other_finding() {
    let mut app = app();
    press(&mut app, KeyCode::Char('n'));
    assert!(screen(&mut app, 120, 26).contains("no finding begins after this interval yet"));
    found(&mut app);
    press(&mut app, KeyCode::Char('N'));
    assert!(screen(&mut app, 120, 26).contains("no finding begins before this interval"));
}

#[test]
fn an_interval_looks_the_same_after_steps_and_after_a_jump() {
    let mut app = app();
    found(&mut app);
    // The histogram covers only the current interval. Sparklines also cover the intervals that were shown before it.
    press(&mut app, KeyCode::Char('i'));
    press(&mut app, KeyCode::Char('i'));
    let below_header = |app: &mut App| screen(app, 120, 26).lines().skip(4).collect::<Vec<_>>().join("\n");
    press_with(&mut app, KeyCode::Right, KeyModifiers::SHIFT);
    let stepped = below_header(&mut app);
    assert!(stepped.contains("12 waits, this interval"), "{stepped}");
    press(&mut app, KeyCode::End);
    press(&mut app, KeyCode::Home);
    type_in(&mut app, ":10s");
    press(&mut app, KeyCode::Enter);
    assert_eq!(below_header(&mut app), stepped);
}

#[test]
fn slow_reading_is_shown_after_a_delay() {
    let mut app = app();
    let start = Instant::now();
    app.tick(start);
    app.on_key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    app.tick(start + Duration::from_millis(100));
    assert!(!screen(&mut app, 120, 26).contains("reading"));
    assert_eq!(
        replay(&mut app).due_in(),
        Some(Duration::from_millis(200)),
        "the screen is drawn again after this time"
    );
    app.tick(start + Duration::from_millis(300));
    assert!(screen(&mut app, 120, 26).contains("reading"));
    read(&mut app);
    app.tick(start + Duration::from_millis(400));
    assert!(!screen(&mut app, 120, 26).contains("reading"));
    assert_eq!(replay(&mut app).due_in(), None);
}

#[test]
fn the_recording_ends_where_it_is_damaged() {
    let mut app = app();
    press(&mut app, KeyCode::End);
    app.on_read(30, None);
    assert_eq!((position(&mut app), replay(&mut app).player.intervals()), (29, 30));
}

#[test]
fn no_screen_size_and_no_recording_length_panics() {
    let mut app = app();
    found(&mut app);
    for intervals in [60, 45, 21, 2, 1] {
        replay(&mut app).player.shorten(intervals);
        for width in (1..=220).step_by(31) {
            for height in (1..=40).step_by(3) {
                screen(&mut app, width, height);
            }
        }
        press(&mut app, KeyCode::End);
    }
}

#[test]
fn a_recording_without_chains_is_named_as_the_reason_for_an_empty_view() {
    let mut app = app();
    press(&mut app, KeyCode::Char('9'));
    let shown = screen(&mut app, 80, 24);
    assert!(shown.contains("the recording was made without --chains"), "{shown}");
}
