mod panics;

use cgscope_view::app::{About, view::View};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

struct NoMouse;

impl Mouse for NoMouse {
    fn take_mouse(&mut self, _: bool) {}
    fn redraw(&mut self) {}
}

fn app() -> App {
    App::new(About::default(), Settings::default(), Theme::default(), Duration::from_secs(1))
}

fn on_events(app: &mut App, events: &[Event]) -> Next {
    super::on_events(&mut NoMouse, app, events, Instant::now())
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
        frames.ask(When::Soon, at(ms));
    }
    assert!(!frames.is_due(at(16)));
    assert!(frames.is_due(at(17)), "one frame after the last draw");
    frames.ask(When::Now, at(11));
    frames.ask(When::Soon, at(12));
    assert!(frames.is_due(at(12)), "a key is drawn at once");
    frames.drawn(at(12));
    frames.ask(When::Soon, at(500));
    assert!(frames.is_due(at(500)), "a single change is drawn at once");
    frames.drawn(at(500));
    frames.ask(When::Never, at(501));
    assert!(!frames.is_due(at(9_000)));
}

#[test]
fn all_received_events_are_handled_before_one_draw() {
    let mut app = app();
    let none = KeyModifiers::NONE;
    let next = on_events(&mut app, &[key('?', none), Event::FocusGained, key('?', none), key('u', none)]);
    assert!(matches!(next, Next::Go(When::Now)));
    assert!(app.view == View::Overview && app.settings.unit == cgscope_view::text::Unit::Milli);
    assert!(matches!(on_events(&mut app, &[Event::FocusLost]), Next::Go(When::Never)));
    // Resizes share a frame. A key among them is drawn at once.
    let resizes = [Event::Resize(80, 24), Event::Resize(81, 24), key('?', none)];
    assert!(matches!(on_events(&mut app, &resizes[..2]), Next::Go(When::Soon)));
    assert!(matches!(on_events(&mut app, &resizes), Next::Go(When::Now)));
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
    assert!(matches!(on_events(&mut app(), &[]), Next::End));
    assert!(matches!(on_events(&mut app(), &[key('u', none), key('q', none)]), Next::End));
    assert!(matches!(on_events(&mut app(), &[key('z', control)]), Next::Stop));
    assert!(matches!(on_events(&mut app(), &[key('z', none)]), Next::Go(When::Never)));
}
