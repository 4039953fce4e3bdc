//! `cgscope stat -- CMD`: runs a command like `time`, and prints where its time was spent.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    io::{self, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::ExitStatus,
    rc::Rc,
    time::Duration,
};

use cgscope_collect::{
    Accounting, KernelSymbols,
    own_cgroup::{OwnCgroup, name_of_living},
    quotas::{QuotaFiles, QuotaReading},
};
use cgscope_model::{
    BlockedKind, BlockedOn, BlockedTime, CgroupReading, Interval, Mode, QuotaUse, Sample, Tree,
    class::{Classes, Classified},
    command_run::{CommandRun, CpuUse, Ending, HeldBy, NamedProcess, places, quotas_of},
    json::StatObject,
    table::interval::Appended,
};
use cgscope_record::Place;
use cgscope_view::stat_command::{BEGINNING, summary};

use crate::{
    child::Ended,
    cli::{Stat, Target},
    exit::{Error, Exit, Result},
    feed::ns,
    output,
    session::{Pace, Ready, Session},
    stat::{offcpu::Offcpu, stack_every},
};

pub async fn run(options: &Stat) -> Result {
    let target = target(options)?;
    let symbols = KernelSymbols::default();
    let offcpu = Offcpu::new(options, target.words(), &symbols)?;
    // Checks the output first, so that no command runs whose summary could not be written.
    let output = options.output.as_deref().map(place).transpose()?;
    let mut remarks = Vec::new();
    let own = OwnCgroup::make(Path::new("/")).map_err(|failure| remarks.push(failure.to_string())).ok();
    let pace = Pace { interval: EVERY, duration: None, count: None };
    let mut ready = Ready::new(&target, pace)?;
    let own = own.and_then(|own| {
        // Moves the forked process into its own cgroup, before it executes the command.
        let entered = own.add(ready.held.as_ref()?.pid);
        entered.map_err(|failure| remarks.push(failure.to_string())).ok().map(|()| own)
    });
    let quotas = QuotaFiles::of_this_host();
    let mut watch = Watch { own, quotas, before: Reading::default(), after: Reading::default() };
    // Finds all existing quotas. This takes a while, so it precedes the command.
    watch.quotas.find();
    // Takes the first sample before the release. Otherwise the start of the command would not be counted.
    ready.sample()?;
    watch.before = watch.read();
    let watch = Rc::new(RefCell::new(watch));
    let mut session = ready.go();
    let at_end = Rc::clone(&watch);
    session.at_end = Some(Box::new(move || at_end.borrow_mut().end()));
    let named = |error| Error { sentence: format!("{}: {error}", options.select.command[0]), ..error };
    let measured = measure(&mut session, &mut remarks).await.map_err(named)?;
    let run = finish(options, session, &mut watch.borrow_mut(), measured, remarks, &symbols);
    let code = run.ending.code();
    let stacks = offcpu.map(|offcpu| offcpu.finish(&run.interval)).transpose();
    let stacks = stacks.inspect_err(|error| say!("cgscope: {error}")).ok().flatten().flatten();
    write(output.as_ref(), &run, &stacks.unwrap_or_default(), options.json);
    // Returns the exit code of the command, even if something could not be written.
    Ok(Exit::AsCommand(code))
}

fn finish(
    options: &Stat,
    session: Session,
    watch: &mut Watch,
    measured: Measured,
    mut remarks: Vec<String>,
    symbols: &KernelSymbols,
) -> CommandRun {
    let Measured { interval, ended, peak_threads, peak_processes, every_ns } = measured;
    let host = session.host;
    let followed = session.latest().map(processes).unwrap_or_default();
    // Detaches the collector before the cgroup is removed. Its data about the cgroup is no longer needed.
    drop(session);
    // A listed process may have ended, because `/proc` lists it until it is reaped.
    let followed = followed.into_iter().filter(|one| name_of_living(one.pid).is_some());
    let outlived = outlived(&watch.after.left, followed);
    let quotas = watch.held_by(&interval, &outlived);
    let cpu = cpu(watch.before.own.as_ref(), watch.after.own.as_ref());
    let own_cgroup = watch.own.as_ref().map(|own| own.path.clone());
    remarks.extend(watch.own.take().and_then(|own| own.remove().err()).map(|failure| failure.to_string()));
    if let Some(Err(failure)) = (!interval.stacks.is_empty()).then(|| symbols.load()) {
        remarks.push(failure.to_string());
    }
    let (blocked_on, class) = judged(&interval, symbols);
    CommandRun {
        blocked_on,
        class: Some(class),
        command: options.select.command.clone(),
        ending: ending(ended.status),
        wall_ns: ns(ended.lived),
        usage: ended.usage,
        cpu,
        own_is_distinct: own_cgroup.is_some() && watch.quotas.mounts.cpu_is_v2(),
        own_cgroup,
        quotas,
        peak_threads,
        peak_processes,
        every_ns,
        outlived,
        interval,
        host,
        remarks,
    }
}

/// Returns what the threads were blocked on, if known, and what kept the command from being faster.
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

fn write(output: Option<&Place>, run: &CommandRun, stacks: &str, json: bool) {
    if !json {
        return write_summary(output, &(summary(run) + stacks));
    }
    if !stacks.is_empty() {
        // The JSON object must be alone in its output.
        say!("{}", stacks.trim_end());
    }
    match serde_json::to_string(&StatObject(run)) {
        Ok(object) => write_summary(output, &format!("{object}\n")),
        Err(error) => say!("cgscope: the summary could not be converted to JSON ({error})"),
    }
}

/// The first bytes of a JSON summary.
const OBJECT: &str = r#"{"schema":"cgscope.stat/1""#;

/// Checks the output file before the command runs. Refuses an existing file that is not a summary.
fn place(path: &Path) -> Result<Place> {
    let is_ours = |place: &Place| output::begins_with(place, &[BEGINNING, OBJECT]);
    let so = "the command is not run: name another file with -o";
    output::place(path, "a summary", is_ours, so)
}

/// Writes the complete summary or nothing. Without a file, or if that fails, prints it on standard error: standard output belongs
/// to the command, and the user cannot repeat the run.
fn write_summary(output: Option<&Place>, summary: &str) {
    if let Some(place) = output {
        let Err(error) = output::replace(place, summary) else { return };
        let path = place.path.display();
        say!("cgscope: the summary could not be written to {path} ({error}), so here it is:");
    }
    // Ignore errors: if standard error is closed, nobody can be notified.
    let _ = io::stderr().lock().write_all(summary.as_bytes());
}

fn target(options: &Stat) -> Result<Target> {
    if let Some(option) = meaningless(options) {
        return Err(Error::could_not_run(format!(
            "{option} applies only to tables, but a command has one summary, printed when the command ends: omit {option}, or \
             start the command separately and use `cgscope stat 1 --pid PID`"
        )));
    }
    let mut target = Target::new(&options.select)?;
    (target.stands_aside, target.options.demand) = (true, false);
    target.options.accounts = Some(Accounting { stack_every: Some(stack_every(options)) });
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

/// Interval between two counts of the threads.
const EVERY: Duration = Duration::from_millis(100);
/// Minimum interval for each thread of the command. Reading a thread takes microseconds, so readings take less than 1 % of a CPU.
const EVERY_OF_A_THREAD: Duration = Duration::from_micros(500);

struct Measured {
    interval: Interval,
    ended: Ended,
    peak_threads: u64,
    peak_processes: u64,
    /// The longest requested interval between two samples, ns.
    every_ns: u64,
}

/// Measures until the command has ended, even if measuring fails (then adds a remark). Fails if the command could not be executed.
async fn measure(session: &mut Session, remarks: &mut Vec<String>) -> Result<Measured> {
    let (mut whole, mut peak_threads, mut peak_processes) = (Appended::default(), 0, 0);
    let mut every = EVERY;
    loop {
        let step = match session.next_step().await {
            Ok(step) => step,
            // The command could not be executed.
            Err(error) if session.child.is_none() && session.ended.is_none() => return Err(error),
            Err(error) => {
                remarks.push(format!("{error}: nothing after that is counted"));
                break;
            }
        };
        let Some(sample) = session.latest() else { continue };
        peak_threads = peak_threads.max(sample.tasks.len() as u64);
        peak_processes = peak_processes.max(processes(sample).len() as u64);
        step.interval.into_iter().for_each(|interval| whole.push(interval));
        let wanted = EVERY.max(EVERY_OF_A_THREAD * u32::try_from(sample.tasks.len()).unwrap_or(u32::MAX));
        if wanted > every {
            session.set_interval(wanted);
            every = wanted;
        }
        if step.end.is_some() {
            break;
        }
    }
    session.outlast().await?;
    let ended = session.ended.ok_or_else(|| Error::incomplete("the exit of the command was not noticed"))?;
    let interval = whole.into_interval();
    Ok(Measured { interval, ended, peak_threads, peak_processes, every_ns: ns(every) })
}

fn processes(sample: &Sample) -> Vec<NamedProcess> {
    let mut seen = BTreeSet::new();
    let mains = sample.tasks.iter().filter(|task| seen.insert(task.tgid));
    mains.map(|task| NamedProcess { pid: task.tgid, comm: task.comm.to_string() }).collect()
}

fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code as u8),
        (None, Some(signal)) => Ending::Killed { signal, dumped: status.core_dumped() },
        (None, None) => Ending::Exited(u8::MAX),
    }
}

/// Maximum number of quotas to report.
const QUOTAS: usize = 3;

#[derive(Debug, Default)]
struct Reading {
    own: Option<CgroupReading>,
    quotas: Vec<QuotaReading>,
    /// The processes in the command's own cgroup.
    left: Vec<NamedProcess>,
}

struct Watch {
    own: Option<OwnCgroup>,
    quotas: QuotaFiles,
    /// The state just before the release of the command.
    before: Reading,
    /// The state just after the end of the command.
    after: Reading,
}

impl Watch {
    fn end(&mut self) {
        self.after = self.read();
        self.after.quotas.extend(self.quotas.find());
    }

    fn read(&mut self) -> Reading {
        // The first figures are those that our own reading changes.
        Reading {
            own: self.own.as_ref().map(OwnCgroup::stat),
            quotas: self.quotas.read(),
            left: self.own.as_ref().map(OwnCgroup::processes).unwrap_or_default(),
        }
    }

    /// Returns the quotas that throttled the command. `ours` are the processes of the command that still exist.
    fn held_by(&self, interval: &Interval, ours: &[NamedProcess]) -> Vec<HeldBy> {
        let before = &self.before.quotas;
        let earlier = |id| before.iter().find(|(_, reading)| reading.id == id).map(|(_, reading)| reading);
        let all = self.after.quotas.iter();
        let all = all.map(|(path, now)| QuotaUse::new(path.clone(), earlier(now.id), now.clone()));
        let held = quotas_of(&places(interval), all).into_iter().take(QUOTAS);
        let others = |path: &str| {
            let there = self.quotas.processes(path);
            there.into_iter().filter(|there| !ours.iter().any(|ours| ours.pid == there.pid)).collect()
        };
        held.map(|quota| HeldBy { others: others(&quota.path), quota }).collect()
    }
}

/// Returns the processes in the cgroup and the processes that we followed from fork to fork, each once.
fn outlived(
    in_cgroup: &[NamedProcess],
    followed: impl IntoIterator<Item = NamedProcess>,
) -> Vec<NamedProcess> {
    let mut all: Vec<NamedProcess> = in_cgroup.iter().cloned().chain(followed).collect();
    all.sort_by_key(|process| process.pid);
    all.dedup_by_key(|process| process.pid);
    all
}

fn cpu(before: Option<&CgroupReading>, after: Option<&CgroupReading>) -> Option<CpuUse> {
    let CgroupReading { usage_ns, user_ns, system_ns, .. } = after?.since(before);
    Some(CpuUse { usage_ns: usage_ns?, user_ns: user_ns?, system_ns: system_ns? })
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
            write_summary(Some(&place(&path).unwrap()), "cgscope stat: new");
            assert_eq!(fs::read_to_string(&path).unwrap(), "cgscope stat: new");
        }
        fs::write(&path, "a letter").unwrap();
        let error = place(&path).unwrap_err().to_string();
        assert!(
            error.contains("holds something other") && error.contains("the command is not run"),
            "{error}"
        );
        assert!(place(&dir.join("no/where")).is_err());
        assert!(place(&dir.join("b")).is_ok());
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
        assert!(target.stands_aside && target.options.accounts.is_some());
        assert_eq!(target.output, crate::child::Output::AsOurs);
    }

    #[test]
    fn an_exit_status_is_a_code_or_a_signal() {
        let of = |raw| ending(ExitStatus::from_raw(raw));
        assert_eq!(of(3 << 8), Ending::Exited(3));
        assert_eq!(of(15), Ending::Killed { signal: 15, dumped: false });
        assert_eq!(of(6 | 0x80), Ending::Killed { signal: 6, dumped: true });
    }

    #[test]
    fn a_process_that_outlived_the_command_is_listed_once() {
        let in_cgroup = [NamedProcess { pid: 7, comm: "a".into() }];
        let followed = [7, 5].map(|pid| NamedProcess { pid, comm: "b".into() });
        let all = outlived(&in_cgroup, followed);
        assert_eq!(
            all.iter().map(|one| (one.pid, one.comm.as_str())).collect::<Vec<_>>(),
            [(5, "b"), (7, "a")]
        );
    }

    #[test]
    fn cpu_time_is_the_difference_between_two_readings() {
        let stat = |ns| CgroupReading {
            usage_ns: Some(3 * ns),
            user_ns: Some(2 * ns),
            system_ns: Some(ns),
            ..CgroupReading::default()
        };
        let cpu = cpu(Some(&stat(10)), Some(&stat(50)));
        assert_eq!(cpu, Some(CpuUse { usage_ns: 120, user_ns: 80, system_ns: 40 }));
        assert_eq!(super::cpu(None, None), None);
        assert_eq!(super::cpu(Some(&stat(1)), Some(&CgroupReading::default())), None, "it could not be read");
    }
}
