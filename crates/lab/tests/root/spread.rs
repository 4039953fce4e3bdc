//! A load with tasks in many cgroups.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use crate::load::{Cgroup, Load};

/// Threads in many cgroups, which are children of one test cgroup. Drop ends the threads and removes the cgroups.
pub(crate) struct Spread {
    load: Load,
    pub(crate) cgroup: Cgroup,
    count: usize,
}

impl Spread {
    pub(crate) fn new(name: &str, cgroups: usize, threads: usize, seconds: u64) -> Self {
        Self::start(name, cgroups, threads, seconds, &[])
    }

    /// Starts one thread per cgroup. Each thread runs and yields its CPU all the time.
    pub(crate) fn yielding(name: &str, cgroups: usize, seconds: u64) -> Self {
        Self::start(name, cgroups, 1, seconds, &["yield"])
    }

    fn start(name: &str, cgroups: usize, threads: usize, seconds: u64, more: &[&str]) -> Self {
        let cgroup = Cgroup::new(name);
        let directory = cgroup.path.display().to_string();
        // Construct this value before the first cgroup, so that drop removes the cgroups if one of them cannot be created.
        let mut spread = Self { load: Load::start("true", &[], None), cgroup, count: cgroups };
        for i in 0..cgroups {
            fs::create_dir(format!("{directory}/{i}")).expect("a cgroup");
        }
        let words = [cgroups as u64, threads as u64, seconds].map(|number| number.to_string());
        let args = [["spread", &directory].as_slice(), &words.each_ref().map(String::as_str), more].concat();
        spread.load = Load::workload(&args, None).0;
        spread
    }
}

impl Drop for Spread {
    fn drop(&mut self) {
        self.load.kill();
        let end = Instant::now() + Duration::from_secs(60);
        for i in 0..self.count {
            // Retry, because killed processes need a moment to exit.
            while fs::remove_dir(self.cgroup.path.join(i.to_string()))
                .is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound)
                && Instant::now() < end
            {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}
