//! `cgscope sample`: what all threads do, grouped as psn does.

mod filter;
mod output;
mod rounds;
#[cfg(test)]
mod tests;

use std::io;

use cgscope_collect::snapshot::{Snapshots, Wanted};
use cgscope_model::{
    Selection,
    sampling::{Column, Tally},
};

use crate::{
    child::{Held, Output},
    cli::Sample,
    exit::{Error, Exit, Result},
    mode,
    request::Target,
    session::{self, End},
    signals::Signals,
};
use filter::Filter;
use output::Report;
use rounds::{Pace, Rounds};

/// What is told without BPF.
const COARSE: &str = "the kernel's letters from /proc, which do not tell a thread on a CPU from one that waits for it or is out of \
                      quota, nor who waits for a device";

/// Runs the command.
pub async fn run(options: &Sample) -> Result {
    if options.select.memory {
        return Err(Error::could_not_run("--memory is not for `sample`, which reads of threads alone"));
    }
    if options.select.connect.is_some() {
        return Err(Error::could_not_run(
            "--connect is not for `sample`, which looks at threads between the daemon's Samples: run it with privileges (sudo)",
        ));
    }
    let target = Target::new(&options.select)?;
    let tally = Tally::new(&options.columns());
    let mut selection = target.selection.clone();
    let held = match target.command.as_slice() {
        [] => None,
        command => Some(Held::start(command, target.user.as_deref(), Output::ToStandardError)?),
    };
    let mut signals = Signals::listen_beside(held.as_ref())?;
    selection.pids.extend(held.as_ref().map(|held| held.pid));
    let filter = Filter::new(&selection)?;
    let wanted = wanted(&tally, options.all_states, &filter);
    let (snapshots, coarse) = mode::choose(
        target.mode,
        || Snapshots::start(&selection, wanted),
        || Snapshots::start_coarse(&selection, wanted),
    )?;
    if let Some(coarse) = &coarse {
        coarse.say_with(COARSE);
    }
    snapshots.refused().iter().for_each(|refused| say!("cgscope: {refused}"));
    if target.verbose {
        say!("cgscope: looking at the threads of the {}", target.words());
    }
    let mut child = held.map(|held| held.release().0);
    let pace = Pace::new(options.hz, options.duration, child.is_some());
    let (rounds, snapshots) = Rounds::take(pace, snapshots, tally, filter, &mut child, &mut signals).await?;
    if let (Some(child), End::Finished) = (&child, &rounds.end) {
        child.terminate();
        say!("cgscope: the command still ran at the end and was sent SIGTERM");
    }
    finish(&snapshots, &rounds, options, &target)
}

fn finish(snapshots: &Snapshots, rounds: &Rounds, options: &Sample, target: &Target) -> Result {
    let report = Report::new(snapshots, rounds, options.all_states);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if options.json { report.write_json(&mut out) } else { report.write_text(&mut out) };
    written.map_err(|error| Error::output(&error))?;
    let mut exit = session::exit(&rounds.end);
    if rounds.end == End::TargetGone {
        say!("cgscope: {}: {}; samples are up to that moment", target.words(), session::words(&rounds.end));
    }
    let by_id_alone = Selection {
        pids: target.selection.pids.clone(),
        tids: target.selection.tids.clone(),
        ..Selection::default()
    };
    // Without -a, or chosen by more than that, it may have been asleep, or elsewhere.
    let is_missing = options.all_states && report.table.threads == 0 && target.selection == by_id_alone;
    if let Some(sentence) = is_missing.then(|| session::hidden(&by_id_alone)).flatten() {
        say!("cgscope: {sentence}");
        exit = exit.max(Exit::Incomplete);
    }
    if let Some(failure) = snapshots.nameless() {
        say!("cgscope: {failure}");
        exit = exit.max(Exit::Incomplete);
    }
    if snapshots.losses().nonzero().any(|(loss, _)| !loss.leaves_result_whole()) {
        exit = exit.max(Exit::Incomplete);
    }
    Ok(exit)
}

fn wanted(tally: &Tally, all_states: bool, filter: &Filter) -> Wanted {
    Wanted {
        all_states,
        syscall: tally.has(&[Column::Syscall]),
        wchan: tally.has(&[Column::Wchan]),
        kstack: tally.has(&[Column::Kstack]),
        cgroup: tally.has(&[Column::Cgroup]) || filter.needs_cgroups(),
        user: tally.has(&[Column::Username]),
        exe: tally.has(&[Column::Exe]),
        cmdline: tally.has(&[Column::Cmdline]),
    }
}
