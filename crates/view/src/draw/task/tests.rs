use std::sync::Arc;

use cgscope_made_up::small;
use cgscope_model::{ByCause, Cause, Pending, TaskReading};

use super::{Spent, kernel_words, most_waiting};

fn sum(tenths: &[usize]) -> usize {
    tenths.iter().sum()
}

#[test]
fn the_time_of_a_thread_is_the_interval_and_its_shares_are_100_percent() {
    let readings = vec![
        small::task(5, &[300_000_000, 7_000]),
        // A wait of two seconds ends in an interval of one second, so the wait began before the interval.
        small::task(6, &[2_000_000_000]),
        small::waiting(small::task(7, &[]), 40_000_000),
        small::task(8, &[]),
    ];
    let interval = small::interval(readings);
    for task in &interval.tasks {
        let tenths = Spent::of([task], interval.duration_ns).parts_of(1_000);
        assert_eq!(sum(&tenths), 1_000, "{task:?}");
    }
    assert_eq!(sum(&Spent::of(&interval.tasks, interval.duration_ns).parts_of(1_000)), 1_000);
    assert_eq!(
        sum(&Spent::of(&interval.tasks, 0).parts_of(1_000)),
        0,
        "an interval without length has no shares"
    );
}

#[test]
fn an_unfinished_wait_counts_with_its_part_in_the_interval() {
    let pending = Pending {
        ns: 60_000_000_000,
        booked_ns: 0,
        by_cause: ByCause::only(Cause::Throttled, 60_000_000_000),
    };
    let mut reading = TaskReading { pending: Some(pending.into()), ..small::task(7, &[]) };
    reading.totals.on_cpu_ns = 250_000_000;
    let interval = small::interval(vec![reading]);
    // The parts are: on CPU, throttled, ..., blocked.
    let tenths = Spent::of(&interval.tasks, 1_000_000_000).parts_of(1_000);
    assert_eq!((tenths[0], tenths[1], tenths[7]), (250, 750, 0));
}

#[test]
fn the_kernels_figure_is_the_same_or_the_difference_is_explained() {
    assert_eq!(kernel_words(2_000_000, 2_000_000, 0), "its own sum (run_delay) is 2.00ms: the same");
    assert!(kernel_words(2_000_000, 2_500_000, 500_000).contains("500us more: the part of unfinished waits"));
    assert!(kernel_words(2_000_000, 2_500_000, 0).contains("500us more: waits that were not seen"));
    assert!(kernel_words(2_000_000, 1_500_000, 0).contains("500us less: the rest was counted before"));
}

#[test]
fn tasks_that_waited_most_come_first_and_current_waits_count() {
    let mut readings: Vec<_> = (1..9).map(|tid| small::task(tid, &[u64::from(tid) * 1_000])).collect();
    readings.push(small::waiting(small::task(20, &[]), 90_000_000));
    readings.push(small::task(21, &[]));
    let interval = small::interval(readings);
    let named: Vec<u32> =
        most_waiting(interval.tasks.iter().collect()).iter().map(|task| task.reading.tid).collect();
    assert_eq!(named, [20, 8, 7, 6, 5]);
    assert!(
        most_waiting(Arc::new(interval).tasks.iter().filter(|task| task.reading.tid == 21).collect())
            .is_empty()
    );
}
