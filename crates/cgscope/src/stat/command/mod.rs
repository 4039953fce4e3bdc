//! `cgscope stat -- CMD`: runs a command like `time` does, and prints at the end where its time went.

mod output;
mod request;
mod run;
mod watch;

use std::rc::Rc;

use cgscope_collect::{KernelSymbols, own_cgroup::OwnCgroup};
use cgscope_model::{
    BlockedKind, BlockedOn, BlockedTime, Interval, Mode, Tree,
    class::{Classes, Classified},
    command_run::CommandRun,
    json::StatObject,
};
use cgscope_view::stat_command::summary;

use super::offcpu::Offcpu;
use crate::{
    cli::Stat,
    exit::{Error, Exit, Result},
    feed::ns,
    session::{Pace, Ready, Session},
};
use output::Output;
use run::Measured;
use watch::Watch;

pub async fn run(options: &Stat) -> Result {
    let target = request::target(options)?;
    let offcpu = Offcpu::new(options, target.words())?;
    let symbols = offcpu.as_ref().map_or_else(|| Rc::new(KernelSymbols::new()), Offcpu::symbols);
    // Check the output first: do not run a command whose summary could not be written.
    let output = Output::new(options.output.as_deref())?;
    let (own, mut remarks) = made();
    let pace = Pace { interval: run::EVERY, duration: None, count: None };
    let mut ready = Ready::new(&target, pace)?;
    let own = own.and_then(|own| entered(own, &ready, &mut remarks));
    let watch = Rc::new(Watch::new(own));
    watch.prepare();
    // Take the first sample before the release. Otherwise the start of the command would not be counted.
    ready.sample()?;
    let mut session = start(ready, &watch);
    let measured = run::measure(&mut session).await.map_err(|error| named(options, error))?;
    let run = finish(options, session, &watch, measured, remarks, &symbols);
    let code = run.ending.code();
    let stacks = offcpu.and_then(|offcpu| stacks(offcpu, &run));
    write(&output, &run, stacks.as_deref().unwrap_or_default(), options.json);
    // Return the command's exit code even if something could not be written.
    Ok(Exit::AsCommand(code))
}

fn named(options: &Stat, error: Error) -> Error {
    Error { sentence: format!("{}: {error}", options.select.command[0]), ..error }
}

fn made() -> (Option<OwnCgroup>, Vec<String>) {
    match OwnCgroup::make(std::path::Path::new("/")) {
        Ok(own) => (Some(own), Vec::new()),
        Err(failure) => (None, vec![failure.to_string()]),
    }
}

/// Moves the forked process into its own cgroup before it executes the command.
fn entered(own: OwnCgroup, ready: &Ready, remarks: &mut Vec<String>) -> Option<OwnCgroup> {
    match own.add(ready.command_pid()?) {
        Ok(()) => Some(own),
        Err(failure) => {
            remarks.push(failure.to_string());
            None
        }
    }
}

fn start(ready: Ready, watch: &Rc<Watch>) -> Session {
    watch.begin();
    let mut session = ready.go();
    let at_end = Rc::clone(watch);
    session.at_end(Box::new(move || at_end.end()));
    session
}

fn finish(
    options: &Stat,
    session: Session,
    watch: &Watch,
    measured: Measured,
    mut remarks: Vec<String>,
    symbols: &KernelSymbols,
) -> CommandRun {
    remarks.extend(measured.remark);
    let host = session.host;
    let ended = measured.ended;
    // Detach the collector before we remove the cgroup; its data about the cgroup is no longer needed.
    drop(session);
    let seen = watch.seen(&measured.interval, &measured.left);
    remarks.extend(watch.remove());
    if let Some(Err(failure)) = (!measured.interval.stacks.is_empty()).then(|| symbols.load()) {
        remarks.push(failure.to_string());
    }
    let (blocked_on, class) = judged(&measured.interval, symbols);
    CommandRun {
        blocked_on,
        class: Some(class),
        command: options.select.command.clone(),
        ending: run::ending(ended.status),
        wall_ns: ns(ended.lived),
        usage: ended.usage,
        cpu: seen.cpu,
        own_cgroup: seen.own_cgroup,
        own_is_distinct: seen.own_is_distinct,
        quotas: seen.quotas,
        peak_threads: measured.peak_threads,
        peak_processes: measured.peak_processes,
        every_ns: measured.every_ns,
        outlived: seen.outlived,
        interval: measured.interval,
        host,
        remarks,
    }
}

/// What the threads were blocked on, if known, and what kept the command from being faster.
fn judged(interval: &Interval, symbols: &KernelSymbols) -> (Option<BlockedTime>, Classified) {
    let tree = Tree::new(interval);
    let blocked = BlockedOn::new(interval, |addr| symbols.caller(addr));
    let class = Classes::new(interval, &tree, &blocked).total();
    let mut kinds = blocked.total();
    // Exited threads may have been blocked too briefly for a stack walk.
    let all_ns = interval.total().accounts.and_then(|accounts| accounts.blocked).map_or(0, |all| all.total());
    kinds.add_ns(BlockedKind::Unknown, all_ns.saturating_sub(kinds.total()));
    ((interval.mode == Mode::Bpf).then_some(kinds), class)
}

/// Where time was spent off the CPU, as text. With an output file, writes the file and returns `None`.
fn stacks(mut offcpu: Offcpu, run: &CommandRun) -> Option<String> {
    offcpu.push(&run.interval);
    match offcpu.finish() {
        Ok(text) => {
            if let Some(path) = offcpu.path() {
                say!("cgscope: {} written", path.display());
            }
            text
        }
        Err(error) => {
            say!("cgscope: {error}");
            None
        }
    }
}

fn write(output: &Output, run: &CommandRun, stacks: &str, json: bool) {
    if !json {
        return output.write(&(summary(run) + stacks));
    }
    if !stacks.is_empty() {
        // Print nothing else where the JSON object goes.
        say!("{}", stacks.trim_end());
    }
    match serde_json::to_string(&StatObject::new(run)) {
        Ok(object) => output.write(&(object + "\n")),
        Err(error) => say!("cgscope: the summary could not be converted to JSON ({error})"),
    }
}
