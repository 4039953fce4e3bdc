//! The collector of the daemon.

use std::time::Duration;

use cgscope_collect::{Collector, Options};
use cgscope_model::follower::Follower;
use cgscope_runtimes::Runtimes;
use cgscope_serve::{collection::Collect, shown::Reading};

use crate::{cli::ModeChoice, containers, exit::Result, mode};

/// Maximum number of hook runs to measure. Measuring them needs a privilege.
const RUNS: u64 = 2_000;
/// The longest measurement, on a host with few context switches.
const LONGEST: Duration = Duration::from_millis(500);

pub struct Own(Collector);

impl Own {
    /// Loads and attaches the BPF programs, and measures the cost of the hook. `runtimes` name containers.
    pub fn start(runtimes: Runtimes) -> Result<Self> {
        let options = Options { shared: true, demand: true, ..Options::default() };
        let exact = || Collector::start(&options);
        // Exact mode only: coarse readings need no daemon.
        let (mut collector, _) = mode::choose(ModeChoice::Bpf, exact, || Collector::start_coarse(&options))?;
        collector.measure_hook(RUNS, LONGEST);
        collector.name_containers(containers::lookup(runtimes, |sentence| say!("cgscope: {sentence}")));
        Ok(Self(collector))
    }

    /// Optional parts that the kernel refused, one sentence each.
    pub fn refused(&self) -> &[String] {
        self.0.refused()
    }
}

impl Collect for Own {
    fn collect(&mut self) -> std::result::Result<Reading, String> {
        let sample = self.0.sample().map_err(|failure| failure.to_string())?;
        Ok(Reading { sample, followed: self.0.followed().to_vec() })
    }

    fn read_ahead(&mut self) {
        self.0.read_ahead();
    }

    fn follow(&mut self, follower: Follower, pids: &[u32]) {
        match pids {
            [] => self.0.follow_no_longer(follower),
            _ => self.0.follow(follower, pids),
        }
    }
}
