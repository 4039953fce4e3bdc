//! Selected processes, the processes that they start, and selected threads.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use cgscope_model::Selection;

use cgscope_collect::{
    clock::{Ticks, monotonic_ns},
    shared_parts::{Follow, ProcFiles, process_of, text},
};

/// How often new processes are searched, as psn does.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) struct ChosenProcesses {
    pub files: ProcFiles,
    pub follow: Follow,
    /// Processes with wanted threads.
    pub pids: Vec<u32>,
    /// Selected threads.
    pub tids: Vec<u32>,
    looked: Option<Instant>,
    /// No selected process or thread is left.
    pub is_gone: bool,
}

impl ChosenProcesses {
    pub fn new(selection: &Selection) -> io::Result<Self> {
        let mut files = ProcFiles::open(Path::new("/proc"))?;
        let since_ticks = Ticks::of_this_host().at(monotonic_ns());
        let follow = Follow::new(selection, since_ticks, &mut files, process_of);
        let tids = selection.tids.clone();
        Ok(Self { files, follow, pids: Vec::new(), tids, looked: None, is_gone: false })
    }

    /// Searches new processes if it is time; true if it did.
    pub fn update(&mut self) -> io::Result<bool> {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return Ok(false);
        }
        self.looked = Some(Instant::now());
        let forks = self.files.of_host("stat").and_then(text::forks);
        self.follow.processes(&mut self.files, forks, &mut self.pids)?;
        let is_there = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
        self.is_gone = !matches!(self.follow, Follow::All)
            && !self.follow.whole_processes().chain(self.tids.iter().copied()).any(|id| is_there(&id));
        Ok(true)
    }
}
