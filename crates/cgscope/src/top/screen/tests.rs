mod panics;

use cgscope_view::app::View;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

fn app() -> App {
    App::new(About::default(), Settings::default(), Theme::default(), Duration::from_secs(1))
}

fn on_events(app: &mut App, events: &[Event]) -> Next {
    super::on_events(app, events, Instant::now(), drop)
}

fn key(code: char, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(KeyCode::Char(code), modifiers))
}

#[test]
fn changes_are_drawn_together_and_keys_at_once() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut frames = Frames::new(start);
    assert!(frames.is_due(start), "the first one");
    frames.drawn(at(1));
    assert!(!frames.is_due(at(1_000)), "nothing has changed");
    for ms in 2..10 {
        frames.ask(FRAME, at(ms));
    }
    assert!(!frames.is_due(at(16)));
    assert!(frames.is_due(at(17)), "one frame after the last draw");
    frames.ask(Duration::ZERO, at(11));
    frames.ask(FRAME, at(12));
    assert!(frames.is_due(at(12)), "a key is drawn at once");
    frames.drawn(at(12));
    frames.ask(FRAME, at(500));
    assert!(frames.is_due(at(500)), "a single change is drawn at once");
    frames.drawn(at(500));
    assert!(!frames.is_due(at(9_000)));
}

#[test]
fn all_received_events_are_handled_before_one_draw() {
    let mut app = app();
    let none = KeyModifiers::NONE;
    let next = on_events(&mut app, &[key('?', none), Event::FocusGained, key('?', none), key('u', none)]);
    assert_eq!(next, Next::Go(Some(Duration::ZERO)));
    assert!(app.view == View::Overview && app.settings.unit == cgscope_view::text::Unit::Milli);
    assert_eq!(on_events(&mut app, &[Event::FocusLost]), Next::Go(None));
    // Resize events share a frame. If a key is pressed between them, the screen is drawn at once.
    let resizes = [Event::Resize(80, 24), Event::Resize(81, 24), key('?', none)];
    assert_eq!(on_events(&mut app, &resizes[..2]), Next::Go(Some(FRAME)));
    assert_eq!(on_events(&mut app, &resizes), Next::Go(Some(Duration::ZERO)));
}

#[test]
fn a_terminal_that_closes_during_a_drawing_is_no_failure() {
    let is_closed = |code| is_terminal_closed(&std::io::Error::from_raw_os_error(code));
    assert!([libc::EIO, libc::ENXIO, libc::EPIPE].into_iter().all(is_closed));
    assert!(!is_closed(libc::EACCES));
}

#[test]
fn a_closed_terminal_quitting_and_stopping_are_distinguished() {
    let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
    assert_eq!(on_events(&mut app(), &[]), Next::End);
    assert_eq!(on_events(&mut app(), &[key('u', none), key('q', none)]), Next::End);
    assert_eq!(on_events(&mut app(), &[key('z', control)]), Next::Stop);
    assert_eq!(on_events(&mut app(), &[key('z', none)]), Next::Go(None));
}
