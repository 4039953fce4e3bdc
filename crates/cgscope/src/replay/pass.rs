//! The pass over the whole file that looks for findings, on a thread of its own, while the screen is in use.

use std::{
    collections::BTreeSet,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{
    Interval,
    findings::{Host, Rule, findings},
};
use tokio::sync::mpsc;

use crate::{
    exit::{Error, Result},
    recording::Recording,
    replay::player::Mark,
};

/// Between two pieces of news: the screen is drawn for each.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// What the pass has found.
pub enum News {
    /// So many intervals have been looked at, and there findings begin that were not told of yet.
    Marks(usize, Vec<Mark>),
    /// The end was reached: the recording knows how it ended, and what is missing.
    Over(Box<Recording>),
    /// The file could not be read on.
    Failed(Error),
}

/// Begins with the first interval of `recording`. Dropping the receiver ends it.
pub fn start(recording: Recording) -> mpsc::UnboundedReceiver<News> {
    let (send, news) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let last = match run(recording, &send) {
            Ok(Some(recording)) => News::Over(Box::new(recording)),
            Ok(None) => return,
            Err(error) => News::Failed(error),
        };
        // Nobody may be left to hear it.
        let _ = send.send(last);
    });
    news
}

/// The recording after its end; `None` where nobody listens any more.
fn run(mut recording: Recording, send: &mpsc::UnboundedSender<News>) -> Result<Option<Recording>> {
    let mut beginnings = Beginnings::default();
    let (mut intervals, mut marks) = (0, Vec::new());
    let mut told = Instant::now();
    loop {
        let next = recording.next_interval();
        if let Ok(Some(interval)) = &next {
            let begins = beginnings.of(interval, &recording.host);
            if !begins.is_empty() {
                marks.push(Mark { interval: intervals, begins });
            }
            intervals += 1;
        }
        let is_over = !matches!(next, Ok(Some(_)));
        if is_over || told.elapsed() >= NEWS_EVERY {
            told = Instant::now();
            if send.send(News::Marks(intervals, std::mem::take(&mut marks))).is_err() {
                return Ok(None);
            }
        }
        if next?.is_none() {
            return Ok(Some(recording));
        }
    }
}

/// What a finding is about: its figures change from interval to interval.
type Subject = (Rule, Option<Arc<str>>);

/// Tells findings that begin from those that go on.
#[derive(Default)]
struct Beginnings {
    before: BTreeSet<Subject>,
}

impl Beginnings {
    /// Those of the next interval that the one before it did not have, in the order of the findings.
    fn of(&mut self, interval: &Interval, host: &Host) -> Vec<Subject> {
        let subjects: Vec<Subject> =
            findings(interval, host).into_iter().map(|finding| (finding.rule, finding.cgroup)).collect();
        let begins = subjects.iter().filter(|subject| !self.before.contains(subject)).cloned().collect();
        self.before = subjects.into_iter().collect();
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::fixtures::{interval, task};

    /// Task 2 waits behind a neighbour for two thirds of what it is not throttled.
    fn noisy() -> Arc<Interval> {
        interval(vec![task(2, &[400_000_000])])
    }

    #[test]
    fn a_finding_begins_where_the_interval_before_did_not_have_it() {
        let host = Host::default();
        let quiet = interval(vec![task(3, &[])]);
        let mut beginnings = Beginnings::default();
        let first = beginnings.of(&noisy(), &host);
        assert!(!first.is_empty(), "the first interval begins whatever it has");
        assert_eq!(beginnings.of(&noisy(), &host), [], "it goes on");
        assert_eq!(beginnings.of(&quiet, &host), []);
        assert_eq!(beginnings.of(&noisy(), &host), first, "it begins again");
    }
}
