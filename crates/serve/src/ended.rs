//! What Samples no longer have, in the order in which they were taken. Whoever skips Samples needs it of each.

use std::{
    iter,
    sync::{Arc, OnceLock},
};

use cgscope_layout::Loss;
use cgscope_model::{Sample, skipped};

use crate::shown::Reading;

/// What a Sample no longer has of the one before. It leads to that of the next Sample: whoever keeps one can reach all later ones.
#[derive(Debug, Default)]
pub struct Ended {
    /// The Sample: [`Taken::number`](crate::collection::Taken::number).
    pub number: u64,
    /// The rows of the Sample before, and the access to its tasks.
    pub reading: Reading,
    next: OnceLock<Arc<Self>>,
}

impl Ended {
    /// Adds that of the next Sample.
    pub fn then(&self, number: u64, before: &Reading, now: &Reading) -> Arc<Self> {
        let cut_short = |reading: &Reading| reading.sample.losses.get(Loss::ReadingCutShort);
        // Tasks that could not be read have not ended.
        let sample = match cut_short(now) == cut_short(before) {
            true => skipped::ended(&before.sample, &now.sample),
            false => Sample::default(),
        };
        let access = sample.tasks.iter().filter_map(|task| before.access_to(task.serial)).collect();
        let next = Arc::new(Self { number, reading: Reading { sample, access }, next: OnceLock::new() });
        self.next.get_or_init(|| next).clone()
    }

    /// Those after this one, up to the one with this number.
    pub fn until(&self, number: u64) -> impl Iterator<Item = &Self> {
        let first = self.next.get();
        let all = iter::successors(first, |ended| ended.next.get()).map(Arc::as_ref);
        all.take_while(move |ended| ended.number <= number)
    }
}

/// One after the other: nested, a long list would not fit on the stack.
impl Drop for Ended {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut ended) = next.and_then(Arc::into_inner) {
            next = ended.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_model::{Losses, TaskReading};

    fn reading(serials: &[u64], losses: &Losses) -> Reading {
        let task = |serial: &u64| TaskReading { serial: *serial, ..TaskReading::default() };
        let tasks = serials.iter().map(task).collect();
        Reading { sample: Sample { tasks, losses: losses.clone(), ..Sample::default() }, access: Vec::new() }
    }

    #[test]
    fn whoever_was_away_is_given_what_ended_in_each_sample() {
        let none = Losses::default();
        let readings = [&[1, 2, 3][..], &[2, 3], &[3, 4], &[4]].map(|serials| reading(serials, &none));
        let first = Arc::<Ended>::default();
        let mut last = first.clone();
        for (number, pair) in (1..).zip(readings.windows(2)) {
            last = last.then(number, &pair[0], &pair[1]);
        }
        let of =
            |ended: &Ended| ended.reading.sample.tasks.iter().map(|task| task.serial).collect::<Vec<_>>();
        assert_eq!(first.until(3).map(of).collect::<Vec<_>>(), [[1], [2], [3]]);
        assert_eq!(first.until(2).count(), 2);
        assert_eq!(last.until(9).count(), 0);
    }

    #[test]
    fn a_task_that_could_not_be_read_has_not_ended() {
        let mut lossy = Losses::default();
        lossy.add(Loss::ReadingCutShort, 1);
        let cut = Ended::default().then(1, &reading(&[1, 2], &Losses::default()), &reading(&[1], &lossy));
        assert!(cut.reading.sample.tasks.is_empty());
        let after = cut.then(2, &reading(&[1], &lossy), &reading(&[2], &lossy));
        assert_eq!(after.reading.sample.tasks[0].serial, 1);
    }

    #[test]
    fn a_list_of_a_million_that_nobody_read_can_be_dropped() {
        let (first, nothing) = (Arc::<Ended>::default(), Reading::default());
        let mut last = first.clone();
        for number in 1..1_000_000 {
            last = last.then(number, &nothing, &nothing);
        }
        drop(first);
    }
}
