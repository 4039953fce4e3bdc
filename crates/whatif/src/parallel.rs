//! Work on several CPUs.

use std::{
    sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed},
    thread,
};

/// Maximum number of threads: simulations take a few seconds at most, and others use the host, too.
const MOST_THREADS: usize = 4;

/// Number of threads that work, with the one that calls. Those that wait for others do not count.
static BUSY: AtomicIsize = AtomicIsize::new(1);

/// Runs all jobs, on as many threads as there are CPUs, but at most four: those of all calls together, because jobs may call this, too. The
/// results are in the order of the jobs.
pub(crate) fn parallel<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let at = || Some(next.fetch_add(1, Relaxed)).filter(|at| *at < jobs.len());
        std::iter::from_fn(|| at().map(|at| (at, run(&jobs[at])))).collect::<Vec<_>>()
    };
    let mut done = thread::scope(|scope| {
        let work = &work;
        let more = std::iter::from_fn(Busy::more).take(jobs.len().saturating_sub(1));
        // If there can be no more threads, this one does it all.
        let others = more.map_while(|busy| {
            let other = move || {
                let done = work();
                drop(busy);
                done
            };
            thread::Builder::new().spawn_scoped(scope, other).ok()
        });
        let others: Vec<_> = others.collect();
        let mut done = work();
        // Until the others are done, their jobs may start a thread instead of this one.
        BUSY.fetch_sub(1, Relaxed);
        let ended: Vec<_> = others.into_iter().map(|other| other.join()).collect();
        BUSY.fetch_add(1, Relaxed);
        for one in ended {
            done.extend(one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// One of the threads in [`BUSY`].
struct Busy;

impl Busy {
    /// One more; `None`: there are as many as there may be.
    fn more() -> Option<Self> {
        let most = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS) as isize;
        let one_more = |count| (count < most).then_some(count + 1);
        BUSY.fetch_update(Relaxed, Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        for jobs in [0, 1, 1_000u64] {
            let jobs: Vec<u64> = (0..jobs).collect();
            let squares: Vec<u64> = jobs.iter().map(|job| job * job).collect();
            assert_eq!(parallel(&jobs, |job| job * job), squares);
        }
    }

    #[test]
    fn jobs_of_jobs_start_no_more_threads() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        parallel(&[0; 20], |_| {
            parallel(&[0; 20], |_| {
                most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                thread::yield_now();
                running.fetch_sub(1, Relaxed);
            })
        });
        // One that waited goes on beside the one that was started instead.
        assert!(most.into_inner() <= 2 * MOST_THREADS);
    }
}
