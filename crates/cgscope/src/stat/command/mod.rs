//! `cgscope stat -- CMD`: runs a command like `time` does, and prints at the end where its time went.

mod run;
mod watch;

use std::{
    io::{self, Read, Write},
    path::Path,
    rc::Rc,
};

use cgscope_collect::{Accounting, KernelSymbols, own_cgroup::OwnCgroup};
use cgscope_model::{
    BlockedKind, BlockedOn, BlockedTime, Interval, Mode, Tree,
    class::{Classes, Classified},
    command_run::CommandRun,
    json::StatObject,
};
use cgscope_record::Place;
use cgscope_view::stat_command::{BEGINNING, summary};

use crate::{
    cli::Stat,
    exit::{Error, Exit, Result},
    feed::ns,
    request::Target,
    session::{Pace, Ready, Session},
    stat::{
        command::{run::Measured, watch::Watch},
        offcpu::Offcpu,
        stack_every,
    },
};

pub async fn run(options: &Stat) -> Result {
    let target = target(options)?;
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

/// The beginning of a JSON summary.
const OBJECT: &str = r#"{"schema":"cgscope.stat/1""#;

#[derive(Debug)]
pub enum Output {
    /// As with `time`: standard output belongs to the command.
    StandardError,
    /// A new file, an earlier summary (replaced as a whole), a pipe or a device.
    Place(Place),
}

impl Output {
    /// Checks an existing file before the command runs. A file that is not our summary is refused.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::StandardError) };
        let place = Place::of(path).map_err(|error| cannot_write(path, &error.to_string()))?;
        let is_ours = place.holds_something().and_then(|holds| match holds {
            true => begins_as_ours(&place),
            false => can_be_made(&place),
        });
        if is_ours.map_err(|error| cannot_write(place.path(), &error.to_string()))? {
            Ok(Self::Place(place))
        } else {
            Err(cannot_write(place.path(), "it holds something other than a summary of cgscope"))
        }
    }

    /// Writes the summary. A file gets either all of it or nothing. If writing fails, prints the summary on standard error,
    /// because the user cannot repeat the run.
    pub fn write(&self, summary: &str) {
        if let Self::Place(place) = self {
            let Err(error) = replace(place, summary) else { return };
            say!(
                "cgscope: the summary could not be written to {} ({error}), so here it is:",
                place.path().display()
            );
        }
        // Ignore errors: if standard error is closed, nobody can be notified.
        let _ = io::stderr().lock().write_all(summary.as_bytes());
    }
}

fn begins_as_ours(place: &Place) -> io::Result<bool> {
    let mut beginning = Vec::new();
    let longest = BEGINNING.len().max(OBJECT.len()) as u64;
    place.open()?.take(longest).read_to_end(&mut beginning)?;
    Ok([BEGINNING, OBJECT].iter().any(|ours| beginning.starts_with(ours.as_bytes())))
}

/// Creates and removes a temporary file. Does not open a pipe: its reader would mistake our close for the end of the summary.
fn can_be_made(place: &Place) -> io::Result<bool> {
    if place.is_direct() { Ok(true) } else { place.create().map(|_| true) }
}

fn replace(place: &Place, summary: &str) -> io::Result<()> {
    let (mut file, beside) = place.create()?;
    file.write_all(summary.as_bytes())?;
    beside.keep()
}

fn cannot_write(path: &Path, why: &str) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({why}), so the command is not run: name another file with -o",
        path.display()
    ))
}

pub fn target(options: &Stat) -> Result<Target> {
    if let Some(option) = meaningless(options) {
        return Err(Error::could_not_run(format!(
            "{option} applies only to tables, but a command has one summary, printed when the command ends: omit {option}, or \
             start the command separately and use `cgscope stat 1 --pid PID`"
        )));
    }
    let mut target = Target::new(&options.select)?;
    (target.stands_aside, target.demand) = (true, false);
    target.accounts = Some(Accounting { stack_every: Some(stack_every(options)) });
    Ok(target)
}

fn meaningless(options: &Stat) -> Option<String> {
    let given = [
        (options.rhythm.interval.is_some(), "an interval"),
        (options.rhythm.duration.is_some(), "--duration"),
        (options.threads, "--threads"),
        (options.by.is_some(), "--by"),
        (options.all, "--all"),
    ];
    let given = given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| (*option).to_owned());
    given.or_else(|| options.select.selectors.0.first().map(|(selector, _)| format!("--{}", selector.name)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn an_earlier_summary_is_replaced_and_other_files_stay() {
        let dir = std::env::temp_dir().join(format!("cgscope-summary-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a");
        for content in ["", "cgscope stat: make", r#"{"schema":"cgscope.stat/1","command""#] {
            fs::write(&path, content).unwrap();
            Output::new(Some(&path)).unwrap().write("cgscope stat: new");
            assert_eq!(fs::read_to_string(&path).unwrap(), "cgscope stat: new");
        }
        fs::write(&path, "a letter").unwrap();
        let error = Output::new(Some(&path)).unwrap_err().to_string();
        assert!(
            error.contains("holds something other") && error.contains("the command is not run"),
            "{error}"
        );
        assert!(Output::new(Some(&dir.join("no/where"))).is_err());
        assert!(Output::new(Some(&dir.join("b"))).is_ok());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file remains");
        fs::remove_dir_all(&dir).unwrap();
    }

    fn parsed(words: &str) -> Result<Target> {
        match Cli::parse_from(words.split(' ')).command {
            Command::Stat(options) => target(&options),
            _ => unreachable!("it was typed"),
        }
    }

    #[test]
    fn options_for_tables_are_refused_with_a_command() {
        for option in [
            "1",
            "--duration 5",
            "-t",
            "--by cgroup",
            "-a",
            "--cgroup /a",
            "--unit a",
            "--comm a",
            "--cpu 0",
            "--node 0",
        ] {
            let error = parsed(&format!("cgscope stat {option} -- true")).unwrap_err().to_string();
            assert!(error.contains("applies only to tables"), "{option}: {error}");
        }
    }

    #[test]
    fn with_a_command_cgscope_behaves_like_time() {
        let target = parsed("cgscope stat --json -o x -- true").unwrap();
        assert!(target.stands_aside && target.accounts.is_some());
        assert_eq!(target.output, crate::child::Output::AsOurs);
    }
}
