use cgscope_model::{ExitedReading, TaskReading};
use cgscope_record::{End as EndFrame, Reason};

use super::super::*;

const SECOND: u64 = 1_000_000_000;

fn sample(at_ns: u64) -> Box<Sample> {
    Box::new(Sample { mono_ns: at_ns, ..Sample::default() })
}

/// Returns a client that received its first sample at second 1. [`Following::new`] explains `whole_ns`.
fn following(whole_ns: Option<u64>) -> Following {
    Following::new(Path::new("/run/it"), &[], sample(SECOND), whole_ns)
}

/// Passes a message to the client. Returns the events that are released before the message or because of it, and the next step.
fn after(following: &mut Following, message: Option<Message<Word>>, wanted: Wanted) -> (Vec<String>, Then) {
    let released = following.release(wanted).map(Ok);
    let (event, then) = following.on(message, wanted);
    (released.into_iter().chain(event).map(words).collect(), then)
}

fn words(event: Result<Event>) -> String {
    match event {
        Ok(Event::Sample { sample, anew, end }) => {
            let end = if end.is_some() { " last" } else { "" };
            format!("{} ms{}{end}", sample.mono_ns / 1_000_000, if anew { " anew" } else { "" })
        }
        Ok(Event::Message(sentence)) => format!("message: {sentence}"),
        Err(error) => format!("error: {error}"),
    }
}

fn at_ms(ms: u64) -> Option<Message<Word>> {
    Some(Message::Sample(sample(ms * 1_000_000)))
}

fn end() -> Option<Message<Word>> {
    let end = EndFrame { unix_ns: 0, reason: Reason::Finished, unwritten: 0 };
    Some(Message::End(end))
}

fn refused(refusal: Refusal) -> Option<Message<Word>> {
    Some(Message::Word(Word::refused(refusal, "it is broken")))
}

fn given(events: &[&str], then: Then) -> (Vec<String>, Then) {
    (events.iter().map(ToString::to_string).collect(), then)
}

#[test]
fn a_sample_is_emitted_before_waiting_for_the_next_one() {
    let mut following = following(None);
    assert_eq!(after(&mut following, at_ms(1_100), Wanted::Samples), given(&["1000 ms"], Then::Receive));
    assert_eq!(after(&mut following, at_ms(2_000), Wanted::Samples), given(&["1100 ms"], Then::Receive));
    assert_eq!(words(Ok(following.release(Wanted::Samples).unwrap())), "2000 ms");
    assert!(following.release(Wanted::Samples).is_none(), "a sample is emitted once");
}

#[test]
fn a_first_sample_too_close_to_the_next_is_dropped() {
    let mut near = following(Some(SECOND));
    assert_eq!(after(&mut near, at_ms(1_899), Wanted::Samples), given(&[], Then::Receive));
    assert_eq!(after(&mut near, at_ms(2_000), Wanted::Samples), given(&["1899 ms"], Then::Receive));
    let mut far = following(Some(SECOND));
    assert_eq!(after(&mut far, at_ms(1_900), Wanted::Samples), given(&["1000 ms"], Then::Receive));
    assert_eq!(after(&mut far, at_ms(1_950), Wanted::Samples), given(&["1900 ms"], Then::Receive));
}

#[test]
fn the_last_sample_is_marked() {
    let mut following = following(None);
    assert_eq!(after(&mut following, at_ms(1_300), Wanted::Last), given(&["1000 ms"], Then::Receive));
    assert_eq!(after(&mut following, end(), Wanted::Last), given(&["1300 ms last"], Then::Stop));
    let mut following = super::following::following(None);
    assert!(following.release(Wanted::Samples).is_some());
    assert_eq!(
        after(&mut following, end(), Wanted::Last),
        given(&[], Then::Stop),
        "there is no sample to mark"
    );
}

#[test]
fn only_messages_for_users_are_passed_on() {
    let mut following = following(Some(SECOND));
    let said = Some(Message::Word(Word::said("slower")));
    assert_eq!(after(&mut following, said, Wanted::Samples), given(&["message: slower"], Then::Receive));
    let answered = Word { shows_all: Some(true), ..Word::default() };
    for word in [answered, Word { skip: 3, ..Word::default() }, Word::said("")] {
        let message = Some(Message::Word(word));
        assert_eq!(after(&mut following, message, Wanted::Samples), given(&[], Then::Receive));
    }
}

#[test]
fn a_lost_daemon_is_reconnected_while_samples_are_wanted() {
    let exited = "message: the daemon at /run/it has ended; cgscope tries to reconnect";
    for (message, words) in [
        (None, exited),
        (refused(Refusal::Ending), exited),
        (refused(Refusal::Failed), "message: it is broken"),
    ] {
        let mut following = following(Some(SECOND));
        assert_eq!(after(&mut following, message, Wanted::Samples), given(&[words], Then::Reconnect));
    }
    let mut waits = following(Some(SECOND));
    let error = "error: the daemon ended before it sent the last sample";
    assert_eq!(after(&mut waits, None, Wanted::Last), given(&[error], Then::Stop));
    assert_eq!(after(&mut waits, None, Wanted::Nothing), given(&[], Then::Stop));
    for wanted in [Wanted::Samples, Wanted::Last, Wanted::Nothing] {
        let step = after(&mut waits, refused(Refusal::NoSuchProcess), wanted);
        assert_eq!(
            step,
            given(&["error: the daemon sends no more samples: it is broken"], Then::Stop),
            "for good"
        );
    }
}

#[test]
fn after_a_reconnection_figures_start_from_zero() {
    let mut following = following(Some(SECOND));
    assert_eq!(after(&mut following, at_ms(2_000), Wanted::Samples), given(&["1000 ms"], Then::Receive));
    let (events, then) = after(&mut following, None, Wanted::Samples);
    assert_eq!((events[0].as_str(), events.len(), then), ("2000 ms", 2, Then::Reconnect));
    let (event, then) = following.on_reconnection();
    assert_eq!(
        (words(event.unwrap()), then),
        ("message: the daemon is back: all figures start from 0".into(), Then::Receive)
    );
    assert_eq!(after(&mut following, at_ms(10), Wanted::Samples), given(&[], Then::Receive));
    assert_eq!(after(&mut following, at_ms(1_010), Wanted::Samples), given(&["10 ms anew"], Then::Receive));
    assert_eq!(after(&mut following, at_ms(2_010), Wanted::Samples), given(&["1010 ms"], Then::Receive));
}

#[test]
fn only_chosen_threads_are_emitted_without_figures_unknown_per_thread() {
    let task = |tid| std::sync::Arc::new(TaskReading { tid, ..TaskReading::default() });
    let first = Sample {
        tasks: vec![task(1), task(2)],
        exited: vec![ExitedReading {
            accounts: None,
            cgroup_id: 1,
            tasks: 1,
            max_ns: 0,
            totals: cgscope_model::Totals::default(),
            hist: std::sync::Arc::default(),
        }],
        ..Sample::default()
    };
    let release = |tids: &[u32]| {
        let mut following = Following::new(Path::new("/run/it"), tids, Box::new(first.clone()), None);
        let Some(Event::Sample { sample, .. }) = following.release(Wanted::Samples) else {
            panic!("no sample")
        };
        (sample.tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), sample.exited.len())
    };
    assert_eq!(release(&[2, 3]), (vec![2], 0));
    assert_eq!(release(&[]), (vec![1, 2], 1));
}
