//! A lock convoy: for a part of their work, all threads need the same lock.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::requests::compute;

/// Runs threads until `end`. Each thread repeats two steps: it uses the CPU time `free` without the lock, and then the CPU time
/// `held` with the lock. If a quota runs out, the thread with the lock stops, and the other threads sleep until that thread
/// continues. Returns how often a thread took the lock.
pub fn convoy(threads: usize, free: Duration, held: Duration, end: Instant) -> u64 {
    let lock = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while Instant::now() < end {
                    compute(free);
                    let mut turns = lock.lock().unwrap_or_else(PoisonError::into_inner);
                    compute(held);
                    *turns += 1;
                }
            });
        }
    });
    lock.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thread_at_a_time_works_under_the_lock() {
        let (begun, held) = (Instant::now(), Duration::from_millis(2));
        let turns = convoy(3, Duration::ZERO, held, begun + Duration::from_millis(30));
        assert!(turns >= 1, "nobody had the lock");
        assert!(begun.elapsed() >= held * turns as u32, "{turns} turns within {:?}", begun.elapsed());
    }
}
