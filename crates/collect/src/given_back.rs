//! Figures of exited tasks whose places in the kernel were given back although their cgroups are there.

use std::collections::{HashMap, hash_map::Entry};

use cgscope_model::ExitedReading;

/// The sums of places that were given back. The kernel counts from 0 where it makes such a place again.
#[derive(Debug, Default)]
pub(crate) struct GivenBack {
    sums: HashMap<u64, Sum>,
}

#[derive(Debug)]
struct Sum {
    reading: ExitedReading,
    /// It was added to a reading.
    is_read: bool,
}

impl GivenBack {
    /// Takes what a place held when it was given back.
    pub fn take(&mut self, last: ExitedReading) {
        match self.sums.entry(last.cgroup_id) {
            Entry::Occupied(mut sum) => {
                let sum = sum.get_mut();
                sum.reading.add(&last);
                sum.is_read = false;
            }
            Entry::Vacant(sum) => {
                sum.insert(Sum { reading: last, is_read: false });
            }
        }
    }

    /// Adds the sums to what was read, ascending by cgroup. A sum whose cgroup has no place is read once more, with what came to it
    /// since the reading before, and then dropped.
    pub fn add_to(&mut self, exited: &mut Vec<ExitedReading>) {
        let mut without_place = Vec::new();
        self.sums.retain(|id, sum| {
            let was_read = std::mem::replace(&mut sum.is_read, true);
            match exited.binary_search_by_key(id, |exited| exited.cgroup_id) {
                Ok(at) => exited[at].add(&sum.reading),
                Err(_) if was_read => return false,
                Err(_) => without_place.push(sum.reading.clone()),
            }
            true
        });
        exited.extend(without_place);
        exited.sort_unstable_by_key(|exited| exited.cgroup_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_model::{Interval, Sample, Totals};

    fn place(tasks: u64, ran_ns: u64) -> ExitedReading {
        let totals = Totals { on_cpu_ns: ran_ns, ..Totals::default() };
        ExitedReading { cgroup_id: 7, tasks, max_ns: 0, totals, accounts: None, hist: Default::default() }
    }

    /// What ran in each interval, after a first Sample with `read[0]`. Before each of the others the place is given back, if it says
    /// with what.
    fn ran(read: &[(Option<ExitedReading>, Option<ExitedReading>)]) -> Vec<(u64, u64)> {
        let mut given_back = GivenBack::default();
        let mut samples = read.iter().map(|(last, place)| {
            last.iter().for_each(|last| given_back.take(last.clone()));
            let mut exited: Vec<_> = place.iter().cloned().collect();
            given_back.add_to(&mut exited);
            Sample { exited, ..Sample::default() }
        });
        let mut before = samples.next().expect("one");
        let interval = |now: Sample| {
            let total = Interval::between(&before, &now).total();
            before = now;
            (total.exited, total.totals.on_cpu_ns)
        };
        samples.map(interval).collect()
    }

    #[test]
    fn what_exits_in_a_place_that_is_made_again_at_once_is_counted() {
        let read = [
            (None, Some(place(3, 500))),
            (Some(place(3, 500)), Some(place(1, 20))),
            (None, Some(place(2, 25))),
            (Some(place(2, 25)), Some(place(1, 4))),
            (None, Some(place(1, 4))),
        ];
        assert_eq!(ran(&read), [(1, 20), (1, 5), (1, 4), (0, 0)]);
    }

    #[test]
    fn what_came_between_the_reading_and_the_giving_back_is_counted_once_and_the_sum_is_dropped() {
        let read = [
            (None, Some(place(3, 500))),
            (Some(place(4, 507)), None),
            (None, None),
            (None, Some(place(1, 9))),
            (None, Some(place(1, 9))),
        ];
        assert_eq!(ran(&read), [(1, 7), (0, 0), (1, 9), (0, 0)]);
        let mut given_back = GivenBack::default();
        given_back.take(place(1, 1));
        (0..2).for_each(|_| given_back.add_to(&mut Vec::new()));
        assert!(given_back.sums.is_empty());
    }
}
