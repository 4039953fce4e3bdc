//! Runs the command, and turns its samples into one interval.

use std::{collections::BTreeSet, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use cgscope_model::{
    Interval, Sample,
    command_run::{Ending, Outlived},
    interval::Appended,
};

use crate::{
    child::Ended,
    exit::{Error, Result},
    session::Session,
};

/// The interval between counts of threads.
pub const EVERY: Duration = Duration::from_millis(100);
/// The minimum interval per thread of the command. Reading a thread takes some microseconds, so readings take less than 1 % of a
/// CPU.
const EVERY_OF_A_THREAD: Duration = Duration::from_micros(500);

pub struct Measured {
    pub interval: Interval,
    pub ended: Ended,
    /// Processes of the command that existed at the last sample.
    pub left: Vec<Outlived>,
    pub peak_threads: u64,
    pub peak_processes: u64,
    /// The longest requested interval between two samples, ns.
    pub every_ns: u64,
    /// Why the figures are incomplete.
    pub remark: Option<String>,
}

#[derive(Default)]
struct SoFar {
    whole: Appended,
    peak_threads: u64,
    peak_processes: u64,
}

impl SoFar {
    fn take(&mut self, sample: &Sample, interval: Option<Interval>) {
        self.peak_threads = self.peak_threads.max(sample.tasks.len() as u64);
        self.peak_processes = self.peak_processes.max(processes(sample).len() as u64);
        if let Some(interval) = interval {
            self.whole.push(interval);
        }
    }
}

/// Measures until the command has ended, even if measuring fails. Fails only if the command could not be executed.
pub async fn measure(session: &mut Session) -> Result<Measured> {
    let mut so_far = SoFar::default();
    let mut every = EVERY;
    let remark = loop {
        let step = match session.next_step().await {
            Ok(step) => step,
            // The command could not be executed.
            Err(error) if !session.command_runs() && session.ended.is_none() => return Err(error),
            Err(error) => break Some(format!("{error}: nothing after that is counted")),
        };
        let Some(sample) = session.latest() else { continue };
        so_far.take(sample, step.interval);
        let wanted = EVERY.max(EVERY_OF_A_THREAD * u32::try_from(sample.tasks.len()).unwrap_or(u32::MAX));
        if wanted > every {
            session.set_interval(wanted);
            every = wanted;
        }
        if step.end.is_some() {
            break None;
        }
    };
    session.outlast().await?;
    let ended = session.ended.ok_or_else(|| Error::incomplete("the exit of the command was not noticed"))?;
    Ok(Measured {
        left: session.latest().map(|last| processes(last).into_iter().collect()).unwrap_or_default(),
        interval: so_far.whole.into_interval(),
        ended,
        peak_threads: so_far.peak_threads,
        peak_processes: so_far.peak_processes,
        every_ns: every.as_nanos() as u64,
        remark,
    })
}

fn processes(sample: &Sample) -> Vec<Outlived> {
    let mut seen = BTreeSet::new();
    let mains = sample.tasks.iter().filter(|task| seen.insert(task.tgid));
    mains.map(|task| Outlived { pid: task.tgid, comm: task.comm.to_string() }).collect()
}

pub fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code as u8),
        (None, Some(signal)) => Ending::Killed { signal, dumped: status.core_dumped() },
        (None, None) => Ending::Exited(u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_status_is_a_code_or_a_signal() {
        let of = |raw| ending(ExitStatus::from_raw(raw));
        assert_eq!(of(3 << 8), Ending::Exited(3));
        assert_eq!(of(15), Ending::Killed { signal: 15, dumped: false });
        assert_eq!(of(6 | 0x80), Ending::Killed { signal: 6, dumped: true });
    }
}
