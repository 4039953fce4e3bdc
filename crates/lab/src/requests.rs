//! Loads with a known demand for CPU time. Each request costs the same CPU time. Requests arrive regularly, at random, or after
//! the previous answer.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

/// How requests arrive at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Requests arrive at multiples of the gap.
    Regular,
    /// The time between two requests alternates between one and a half gaps and half a gap.
    Uneven,
    /// Requests arrive at random: the time between two requests is exponentially distributed, with `gap` as the mean.
    Random,
    /// A request arrives one gap after the answer to the previous request.
    Closed,
}

impl Arrivals {
    /// Parses the name of a variant, in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "regular" => Some(Self::Regular),
            "uneven" => Some(Self::Uneven),
            "random" => Some(Self::Random),
            "closed" => Some(Self::Closed),
            _ => None,
        }
    }
}

/// Serves requests one after the other until `end`. Each request uses `cost` of CPU time. Returns the number of requests.
///
/// # Errors
/// Fails if the host refuses a socket or a thread.
pub fn requests(arrivals: Arrivals, cost: Duration, gap: Duration, end: Instant) -> io::Result<u64> {
    if arrivals == Arrivals::Closed {
        return answers(cost, gap, end);
    }
    let (mut due, mut count, mut random) = (Instant::now(), 0u64, 1);
    while due < end {
        // If requests are overdue, the server serves them without a pause.
        thread::sleep(due.saturating_duration_since(Instant::now()));
        compute(cost);
        count += 1;
        due += match arrivals {
            Arrivals::Random => gap.mul_f64(exponential(&mut random)),
            Arrivals::Uneven => gap.mul_f64(if count % 2 == 0 { 0.5 } else { 1.5 }),
            _ => gap,
        };
        if Instant::now() > end {
            break;
        }
    }
    Ok(count)
}

/// Serves a client that repeatedly sends a request, waits for the answer, and pauses for `gap`. Returns the number of requests.
fn answers(cost: Duration, gap: Duration, end: Instant) -> io::Result<u64> {
    let (mut client, mut server) = UnixStream::pair()?;
    thread::Builder::new().name("client".into()).spawn(move || {
        let mut byte = [0];
        while client.write_all(&byte).and_then(|()| client.read_exact(&mut byte)).is_ok()
            && Instant::now() < end
        {
            thread::sleep(gap);
        }
    })?;
    let (mut byte, mut count) = ([0], 0);
    while server.read_exact(&mut byte).is_ok() {
        compute(cost);
        count += 1;
        server.write_all(&byte)?;
    }
    Ok(count)
}

/// Computes until this thread has used `cost` of CPU time. Time off the CPU does not count.
pub(crate) fn compute(cost: Duration) {
    let end = cpu_time() + cost;
    while cpu_time() < end {
        for _ in 0..200 {
            std::hint::spin_loop();
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` writes all of `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns a random number from the exponential distribution with mean 1.
fn exponential(random: &mut u64) -> f64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let uniform = ((*random >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_gaps_have_the_mean_that_was_asked_for() {
        let mut random = 1;
        let sum: f64 = (0..10_000).map(|_| exponential(&mut random)).sum();
        assert!((sum / 10_000.0 - 1.0).abs() < 0.03, "{sum}");
    }
}
