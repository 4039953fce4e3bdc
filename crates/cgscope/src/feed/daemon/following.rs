//! Decides how to react to each message of the daemon. Uses no sockets and never waits.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use cgscope_model::Sample;
use cgscope_record::Message;
use cgscope_serve::protocol::{Refusal, Word};

use crate::{
    exit::{Error, Result},
    feed::{End, Event},
};

/// A first interval shorter than this fraction of the requested one is dropped if the caller wants whole intervals.
const WHOLE: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Samples,
    Last,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Receive,
    Reconnect,
    Stop,
}

/// An event, if any, and the next step.
pub type Step = (Option<Result<Event>>, Then);

pub fn failed(sentence: impl Into<String>) -> Step {
    (Some(Err(Error::incomplete(sentence))), Then::Stop)
}

pub struct Following {
    socket: PathBuf,
    /// Show only these threads; empty: all.
    tids: HashSet<u32>,
    /// The shortest first interval to keep, in ns; 0 after the first interval.
    shortest_ns: u64,
    /// The latest sample, held until we know whether it is the last one, or too close to the next one.
    held: Option<Box<Sample>>,
    anew: bool,
}

impl Following {
    pub fn new(socket: &Path, tids: &[u32], first: Box<Sample>, whole_ns: Option<u64>) -> Self {
        Self {
            socket: socket.into(),
            tids: tids.iter().copied().collect(),
            shortest_ns: whole_ns.map_or(0, |ns| (ns as f64 * WHOLE) as u64),
            held: Some(first),
            anew: false,
        }
    }

    pub fn release(&mut self, wanted: Wanted) -> Option<Event> {
        let is_kept = wanted == Wanted::Last || self.shortest_ns > 0;
        if is_kept { None } else { self.give(None) }
    }

    /// Handles a message; `None` means that the daemon closed the connection.
    pub fn on(&mut self, message: Option<Message<Word>>, wanted: Wanted) -> Step {
        match message {
            Some(Message::Sample(sample)) => (self.on_sample(sample).map(Ok), Then::Receive),
            Some(Message::End(_)) => (self.give(Some(End::Finished)).map(Ok), Then::Stop),
            Some(Message::Word(word)) if word.refused.is_none() => (said(word).map(Ok), Then::Receive),
            Some(Message::Word(word)) if !passes(word.refused) => {
                failed(format!("the daemon sends no more samples: {}", word.sentence))
            }
            Some(Message::Word(word)) => self.on_loss(Some(word), wanted),
            None => self.on_loss(None, wanted),
        }
    }

    /// Starts again, because the figures of a restarted daemon are not comparable.
    pub fn on_reconnection(&mut self) -> Step {
        (self.held, self.shortest_ns, self.anew) = (None, 0, true);
        (Some(Ok(Event::Message("the daemon is back: all figures start from 0".into()))), Then::Receive)
    }

    fn on_sample(&mut self, sample: Box<Sample>) -> Option<Event> {
        let shortest_ns = std::mem::take(&mut self.shortest_ns);
        self.held.take_if(|held| sample.mono_ns.saturating_sub(held.mono_ns) < shortest_ns);
        let before = self.give(None);
        self.held = Some(sample);
        before
    }

    fn on_loss(&self, word: Option<Word>, wanted: Wanted) -> Step {
        match wanted {
            Wanted::Nothing => (None, Then::Stop),
            Wanted::Last => failed("the daemon ended before it sent the last sample"),
            Wanted::Samples => (Some(Ok(Event::Message(self.why_lost(word)))), Then::Reconnect),
        }
    }

    fn why_lost(&self, word: Option<Word>) -> String {
        let failure = word.filter(|word| word.refused == Some(Refusal::Failed));
        failure.map_or_else(
            || format!("the daemon at {} has ended; cgscope tries to reconnect", self.socket.display()),
            |word| word.sentence,
        )
    }

    /// Emits the held sample, with the chosen threads only. Drops exited tasks and culprits, which are not known per thread.
    fn give(&mut self, end: Option<End>) -> Option<Event> {
        let mut sample = self.held.take()?;
        if !self.tids.is_empty() {
            sample.tasks.retain(|task| self.tids.contains(&task.tid));
            (sample.exited, sample.pairs) = (Vec::new(), Vec::new());
        }
        Some(Event::Sample { sample, anew: std::mem::take(&mut self.anew), end })
    }
}

fn said(word: Word) -> Option<Event> {
    let is_for_people = word.shows_all.is_none() && !word.sentence.is_empty();
    is_for_people.then_some(Event::Message(word.sentence))
}

/// Whether a daemon that refused for this reason may serve again.
pub fn passes(refused: Option<Refusal>) -> bool {
    matches!(refused, Some(Refusal::Ending | Refusal::TooSlow | Refusal::Failed))
}

#[cfg(test)]
mod tests;
