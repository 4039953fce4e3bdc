//! `cgscope sample`: counts what all threads do, grouped as in psn.

use std::{sync::mpsc, time::Duration};

use cgscope_model::{Mode, Names};
use cgscope_psn::{
    GroupBy, RoundEnd, Rounds, Sampling, Schedule, Tally, ThreadFilter, ThreadReader, WantedFields,
};
use tokio::sync::oneshot;

use crate::{
    child::{Held, Output, Running},
    cli::{Sample, Target},
    containers,
    exit::{Error, Exit, Result, spawn},
    mode, output,
    session::{self, End},
    signals::Signals,
};

/// Maximum time for the last round. On a host with a million threads, a round takes about a second.
const LONGEST_ROUND: Duration = Duration::from_secs(5);

pub async fn run(options: &Sample) -> Result {
    if options.select.memory {
        return Err(Error::could_not_run(
            "--memory is not available in `sample`, which reads only threads: use `cgscope top --memory`",
        ));
    }
    if options.select.measure.connect.is_some() {
        return Err(Error::could_not_run(
            "--connect is not available in `sample`, which reads the threads by itself: run it with privileges (sudo)",
        ));
    }
    let target = Target::new(&options.select)?;
    let tally = Tally::new(&options.columns());
    let mut selection = target.options.selection.clone();
    let held = Held::start(&target.command, target.user.as_deref(), Output::ToStandardError)?;
    let mut signals = Signals::listen_beside(held.as_ref())?;
    selection.pids.extend(held.as_ref().map(|held| held.pid));
    let by_cgroup = options.columns().contains(&GroupBy::Cgroup);
    let (cgroups, mut names) = match by_cgroup || selection.pod.is_some() || selection.container.is_some() {
        true => containers::on_host(containers::runtimes(&target.measure.runtime)?),
        false => Default::default(),
    };
    containers::check(&names, &selection, &cgroups)?;
    let filter = ThreadFilter::new(&selection, names.clone()).map_err(Error::could_not_run)?;
    let wanted = WantedFields::new(&tally, &filter, options.all_states);
    let start = |mode| ThreadReader::start(&selection, wanted, mode);
    let (reader, coarse) = mode::choose(target.measure.mode, || start(Mode::Bpf), || start(Mode::Coarse))?;
    if let Some(coarse) = &coarse {
        coarse.say(
            "the kernel's state letters from /proc, which do not distinguish threads that run, wait for a CPU or are \
             throttled (R), or that wait for a device (D)",
        );
    }
    reader.refused.iter().for_each(|refused| say!("cgscope: {refused}"));
    if target.measure.verbose {
        say!("cgscope: sampling the threads of the {}", target.words());
    }
    let mut child = held.map(|held| held.release().0);
    let schedule = Schedule::new(options.hz, options.duration, child.is_some());
    let sampling = Sampling::new(reader, tally, filter);
    let (rounds, end) = take(sampling, schedule, &mut child, &mut signals).await?;
    if let (Some(child), End::Finished) = (&child, &end) {
        child.terminate();
        say!("cgscope: the command still ran at the end and was sent SIGTERM");
    }
    names.only_paths = target.measure.paths;
    finish(&rounds, &names, &end, options, &target)
}

/// Samples all threads on a separate thread, until the rounds end, the command ends or a signal arrives.
async fn take(
    sampling: Sampling,
    schedule: Schedule,
    child: &mut Option<Running>,
    signals: &mut Signals,
) -> Result<(Rounds, End)> {
    let (stop, stopped) = mpsc::channel();
    let (done, mut is_done) = oneshot::channel();
    spawn(move || done.send(sampling.run(schedule, &stopped)).is_ok())?;
    let (taken, ended) = tokio::select! {
        biased;
        taken = &mut is_done => (taken, End::Finished),
        end = ended(child, signals) => {
            let end = end?;
            // Ignore an error: the rounds may just have ended.
            let _ = stop.send(());
            // Reading the command line of a process can take for ever, if that process makes the kernel wait.
            let taken = tokio::time::timeout(LONGEST_ROUND, &mut is_done).await.map_err(|_| Error::incomplete(
                "the kernel does not answer about one of the threads, so there is no result (without the column `cmdline`, \
                 no process can hold it up)",
            ))?;
            (taken, end)
        }
    };
    let taken = taken.map_err(|_| Error::incomplete("the sampling thread has ended"))?;
    let rounds = taken.map_err(Error::incomplete)?;
    rounds.skipped_words().iter().for_each(|words| say!("cgscope: {words}"));
    let end = match rounds.end {
        RoundEnd::Finished => End::Finished,
        RoundEnd::TargetExited => End::TargetExited,
        RoundEnd::Stopped => ended,
    };
    Ok((rounds, end))
}

async fn ended(child: &mut Option<Running>, signals: &mut Signals) -> Result<End> {
    let status = tokio::select! {
        biased;
        _ = signals.any() => return Ok(End::Interrupted),
        Some(status) = async { Some(child.as_mut()?.wait().await) } => status,
    };
    *child = None;
    let ended = status.map_err(|error| Error::not_executed(&error, false))?;
    Ok(End::CommandEnded(ended.status))
}

fn finish(rounds: &Rounds, names: &Names, end: &End, options: &Sample, target: &Target) -> Result {
    output::write(|out| if options.json { rounds.write_json(out) } else { rounds.write_text(names, out) })?;
    let mut exit = session::exit(end);
    if *end == End::TargetExited {
        say!("cgscope: {}: {}; the samples end at that moment", target.words(), session::words(end));
    }
    // Without -a, or with other selectors, the target may have been asleep or elsewhere.
    let is_missing =
        options.all_states && rounds.tally.threads.is_empty() && target.options.selection.is_by_id_alone();
    let hidden = is_missing.then(|| session::hidden(&target.options.selection)).flatten();
    let nameless = rounds.nameless.as_ref().map(ToString::to_string);
    for sentence in [hidden, rounds.nameless_words(), nameless].into_iter().flatten() {
        say!("cgscope: {sentence}");
        exit = exit.max(Exit::Incomplete);
    }
    Ok(exit.max(Exit::of_losses(&rounds.losses)))
}
