//! A bounded number of connections, of which those that keep us waiting give way to new ones.

use std::sync::{Arc, Mutex};

use super::{HttpLimits, watch::Watch};
use crate::lock;

/// All places.
pub(super) struct Seats {
    limits: HttpLimits,
    taken: Mutex<Vec<Arc<Watch>>>,
}

/// A place that was taken, until it is dropped.
pub(super) struct Seat {
    pub(super) watch: Arc<Watch>,
    seats: Arc<Seats>,
}

impl Seats {
    pub(super) fn new(limits: HttpLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// A place: a free one, or that of the client that has kept us waiting longest. So whoever only holds connections cannot keep
    /// out those who ask something. None: all are being answered.
    pub(super) fn take(self: &Arc<Self>) -> Option<Seat> {
        let mut taken = lock(&self.taken);
        if taken.len() >= self.limits.connections {
            let waiting = taken.iter().enumerate();
            let longest = waiting.filter_map(|(at, watch)| Some((watch.waits_since()?, at))).min()?;
            taken.swap_remove(longest.1).displace();
        }
        let watch = Watch::new(self.limits);
        taken.push(watch.clone());
        Some(Seat { watch, seats: self.clone() })
    }

    /// Ends the client that has been taking its answer for longest, if its place may be given to another: it holds a page.
    pub(super) fn relieve(&self) {
        let taken = lock(&self.taken);
        let writing = taken.iter().filter(|watch| watch.is_writing());
        if let Some(longest) =
            writing.filter(|watch| watch.waits_since().is_some()).min_by_key(|watch| watch.waits_since())
        {
            longest.displace();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.seats.taken).retain(|watch| !Arc::ptr_eq(watch, &self.watch));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::http::{HttpRefusal, watch::Phase};

    #[tokio::test(start_paused = true)]
    async fn a_new_client_takes_the_place_of_the_one_that_waited_longest_for_nothing() {
        let seats = Seats::new(HttpLimits { connections: 3, ..HttpLimits::default() });
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(seats.take().unwrap());
            sleep(Duration::from_millis(1)).await;
        }
        taken[0].watch.enter(Phase::Answer);
        let fourth = seats.take().unwrap();
        let now = || std::future::ready(());
        assert_eq!(taken[1].watch.over(now()).await, Err(HttpRefusal::Displaced));
        assert_eq!(taken[0].watch.over(now()).await, Ok(()));
        assert_eq!(taken[2].watch.over(now()).await, Ok(()));
        for seat in [&taken[2], &fourth] {
            seat.watch.enter(Phase::Answer);
        }
        assert!(seats.take().is_none(), "clients that are being answered keep their places");
        drop(fourth);
        assert!(seats.take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_an_answer_slowly_gives_it_up_and_nobody_else_does() {
        let limits = HttpLimits::default();
        let seats = Seats::new(limits);
        let taken: Vec<_> = (0..4).map(|_| seats.take().unwrap()).collect();
        let phases =
            [Phase::Idle, Phase::Answer, Phase::Write { handed: false }, Phase::Write { handed: true }];
        for (seat, phase) in taken.iter().zip(phases) {
            seat.watch.enter(phase);
            sleep(Duration::from_millis(1)).await;
        }
        let now = || std::future::ready(());
        seats.relieve();
        assert_eq!(taken[2].watch.over(now()).await, Ok(()), "it may have been quick");
        sleep(limits.write_grace).await;
        seats.relieve();
        seats.relieve();
        assert_eq!(taken[2].watch.over(now()).await, Err(HttpRefusal::Displaced));
        for other in [0, 1, 3] {
            assert_eq!(taken[other].watch.over(now()).await, Ok(()), "{other}");
        }
    }
}
