//! A pass over the whole file that searches for findings, on a separate thread.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_model::{
    Interval,
    findings::{Host, Rule, findings},
};
use tokio::sync::mpsc;

use cgscope_view::replay::{EndSummary, News, player::Mark};

use crate::{
    exit::{Result, spawn},
    recording::Recording,
};

/// The time between two messages, because each message redraws the screen.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// A message for the screen. The last message includes the recording, which knows what is missing.
pub type PassMessage = (News, Option<Box<Recording>>);

/// Starts the pass at the first interval of `recording`. Dropping the receiver ends the pass.
pub fn start(recording: Recording) -> Result<mpsc::UnboundedReceiver<PassMessage>> {
    let (send, news) = mpsc::unbounded_channel();
    spawn(move || {
        let last = match run(recording, &send) {
            Ok(Some(recording)) => (over(&recording), Some(Box::new(recording))),
            Ok(None) => return,
            Err(error) => (News::Failed(error.sentence), None),
        };
        // Ignore errors: the receiver may have been dropped.
        let _ = send.send(last);
    })?;
    Ok(news)
}

/// Returns the recording after reading all of it, or `None` if the receiver was dropped.
fn run(mut recording: Recording, send: &mpsc::UnboundedSender<PassMessage>) -> Result<Option<Recording>> {
    let mut beginnings = Beginnings::default();
    let (mut intervals, mut marks) = (0, Vec::new());
    let mut sent = Instant::now();
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
        if is_over || sent.elapsed() >= NEWS_EVERY {
            sent = Instant::now();
            let news = News::Marks(intervals, std::mem::take(&mut marks));
            if send.send((news, None)).is_err() {
                return Ok(None);
            }
        }
        if next?.is_none() {
            return Ok(Some(recording));
        }
    }
}

fn over(recording: &Recording) -> News {
    let mut words = recording.ending_words();
    if recording.skipped() != 0 {
        words += &format!("; {}", recording.skipped_words());
    }
    let samples = usize::try_from(recording.samples()).unwrap_or(usize::MAX);
    News::Over { samples, ending: EndSummary { words, is_whole: recording.is_whole() } }
}

/// What identifies a finding, without its figures, which change from interval to interval.
type Subject = (Rule, Option<Arc<str>>);

#[derive(Default)]
struct Beginnings {
    before: BTreeSet<Subject>,
}

impl Beginnings {
    /// The findings of the next interval that the previous interval did not have.
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
    use cgscope_made_up::small::{interval, task};

    /// Task 2 waits behind a neighbour for two thirds of the time in which it is not throttled.
    fn noisy() -> Arc<Interval> {
        interval(vec![task(2, &[400_000_000])])
    }

    #[test]
    fn a_finding_begins_if_the_previous_interval_did_not_have_it() {
        let host = Host::default();
        let quiet = interval(vec![task(3, &[])]);
        let mut beginnings = Beginnings::default();
        let first = beginnings.of(&noisy(), &host);
        assert!(!first.is_empty(), "every finding of the first interval begins there");
        assert_eq!(beginnings.of(&noisy(), &host), [], "the finding continues");
        assert_eq!(beginnings.of(&quiet, &host), []);
        assert_eq!(beginnings.of(&noisy(), &host), first, "the finding begins again");
    }
}
