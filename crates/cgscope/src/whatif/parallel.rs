//! Work on several CPUs.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

/// Maximum number of threads: simulations take a few seconds at most, and others use the host, too.
const MOST_THREADS: usize = 4;

/// Runs all jobs, on as many threads as there are CPUs, but at most four. The results are in the order of the jobs.
pub fn parallel<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len()).min(MOST_THREADS);
    let next = AtomicUsize::new(0);
    let work = || {
        let at = || Some(next.fetch_add(1, Relaxed)).filter(|at| *at < jobs.len());
        std::iter::from_fn(|| at().map(|at| (at, run(&jobs[at])))).collect::<Vec<_>>()
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
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
}
