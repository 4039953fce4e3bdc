//! Samples of our own collector, at a steady pace.

use std::{sync::mpsc, thread, time::Duration};

use cgscope_collect::Collector;
use cgscope_layout::Loss;
use cgscope_model::Sample;

use super::{Demand, End, Event, Events, Feed, schedule::Schedule};
use crate::exit::{Error, Result};

struct Local {
    collector: Collector,
    first: Option<Sample>,
    schedule: Schedule,
    /// Intervals to change to. Once the sender is gone, the next Sample is the last one.
    intervals: mpsc::Receiver<Duration>,
    late: u64,
    is_over: bool,
}

/// The first Sample comes at once, unless it was taken already, the others every `interval`, the last one after `duration` if there
/// is one.
pub fn start(
    collector: Collector,
    first: Option<Sample>,
    interval: Duration,
    duration: Option<Duration>,
) -> Events {
    let (send, intervals) = mpsc::channel();
    let mut send = Some(send);
    let demand = move |demand| match (demand, &send) {
        // A thread that has ended has sent its last Sample.
        (Demand::Interval(interval), Some(send)) => drop(send.send(interval)),
        (Demand::Interval(_), None) => {}
        (Demand::Last | Demand::Stop, _) => send = None,
    };
    let schedule = Schedule::new(interval, duration);
    let local = Local { collector, first, schedule, intervals, late: 0, is_over: false };
    Events::start(local, demand, None)
}

impl Feed for Local {
    fn next(&mut self) -> Option<Result<Event>> {
        if self.is_over {
            return None;
        }
        let sample = match self.first.take() {
            Some(first) => Ok(first),
            None => self.take(),
        };
        self.schedule.step();
        let sample = sample.inspect_err(|_| self.is_over = true);
        let end = self.is_over.then_some(End::Finished);
        Some(sample.map(|sample| Event::Sample { sample: Box::new(sample), anew: false, end }))
    }
}

impl Local {
    fn take(&mut self) -> Result<Sample> {
        let (is_last, late) = self.schedule.wait(&self.intervals);
        self.late += late;
        self.is_over = is_last;
        if is_last {
            settle();
        }
        let mut sample = self.collector.sample().map_err(|failure| Error::incomplete(failure.to_string()))?;
        sample.losses.add(Loss::IntervalLate, self.late);
        Ok(sample)
    }
}

/// Waits until tasks that have exited are counted as such: the kernel frees them after an RCU grace period.
fn settle() {
    for _ in 0..2 {
        // SAFETY: no pointers. MEMBARRIER_CMD_GLOBAL waits for a grace period; where it is refused the pause must do.
        unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
        // The callbacks that free tasks run some time after it.
        thread::sleep(Duration::from_millis(10));
    }
}
