//! `cgscope stat`: prints the counters of pidstat with waits split by cause, or a summary of a command like that of `time`.

mod command;
mod offcpu;

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    fs,
    io::{self, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use cgscope_collect::{Accounting, KernelSymbols, clock::Ticks, shared_parts::text};
use cgscope_model::{
    BlockedOn, Interval, TaskReading, Tree, class::Classes, findings::Host, json::IntervalObject,
    table::interval::Appended,
};
use cgscope_view::{
    data::Data,
    stat::{self, Asked, Rows},
};

use crate::{
    cli::{Stat, StatBy, Target},
    exit::Result,
    output::{self, Stdout, json_line},
    record::Tee,
    run::{for_each_interval, pace},
    session::Ready,
};
use offcpu::Offcpu;

/// Blocked time of a thread between two stack walks: enough to show where most time was spent. A walk takes some microseconds.
const STACK_EVERY: Duration = Duration::from_millis(10);
/// The same for a command. It is shorter, because a command may be short and all its blocked time matters.
const STACK_EVERY_OF_COMMAND: Duration = Duration::from_millis(1);

pub async fn run(options: &Stat) -> Result {
    if options.select.command.is_empty() { tables(options).await } else { command::run(options).await }
}

fn stack_every(options: &Stat) -> Duration {
    match (&options.offcpu, options.select.command.is_empty()) {
        (Some(_), _) => offcpu::STACK_EVERY,
        (None, true) => STACK_EVERY,
        (None, false) => STACK_EVERY_OF_COMMAND,
    }
}

/// In an endless run, exited tasks lose their lines when the average has more tasks than twice the live ones plus this number.
const ENDED_KEPT: usize = 4_096;

async fn tables(options: &Stat) -> Result {
    let mut target = Target::new(&options.select)?;
    target.options.accounts = Some(Accounting { stack_every: Some(stack_every(options)) });
    target.options.demand = false;
    let symbols = KernelSymbols::default();
    let offcpu = Offcpu::new(options, target.words(), &symbols)?;
    let (pace, merge) = (pace(&options.rhythm), options.rhythm.interval.is_none());
    if merge && pace.duration.is_none() && !options.json {
        say!("cgscope: measuring the {}; Ctrl-C ends and prints", target.words());
    }
    let has_average = options.rhythm.interval.is_some() && !options.json;
    let whole = (has_average || offcpu.is_some()).then(Appended::default);
    let (uids, host, symbols) = (RefCell::default(), Host::default(), &symbols);
    let mut printer = Printer { options, uids, host, has_average, whole, printed: 0, symbols, offcpu };
    let session = Ready::new(&target, pace)?.go();
    let print = |out: &mut _, interval: &_, host: &_| printer.interval(out, interval, host);
    let ended = for_each_interval(session, merge, Tee::default(), print).await?;
    printer.end()?;
    Ok(ended)
}

fn rows(options: &Stat) -> Rows {
    match (options.threads, options.by) {
        (true, _) => Rows::ThreadsOfProcesses,
        (false, Some(StatBy::Thread)) => Rows::Threads,
        (false, Some(StatBy::Cgroup)) => Rows::Cgroups,
        (false, Some(StatBy::Process) | None) => Rows::Processes,
    }
}

struct Printer<'a> {
    options: &'a Stat,
    uids: RefCell<Uids>,
    host: Host,
    /// Whether to print the average. There is none of a single interval, and none in JSON.
    has_average: bool,
    /// The whole run, for the average and for `offcpu`; `None` if there is neither.
    whole: Option<Appended>,
    printed: u64,
    symbols: &'a KernelSymbols,
    offcpu: Option<Offcpu<'a>>,
}

impl Printer<'_> {
    fn interval(&mut self, out: &mut Stdout, interval: &Interval, host: &Host) -> io::Result<()> {
        // Idle tasks also count in the classes, although it is unknown what they were blocked on.
        let interval = &*interval.with_idle();
        if self.options.json {
            self.keep(|| interval.clone());
            let tree = Tree::new(interval);
            let blocked = BlockedOn::new(interval, |addr| self.symbols.caller(addr));
            let classes = Classes::new(interval, &tree, &blocked);
            let (all, classes) = (self.options.all, Some(classes));
            let object = IntervalObject { all, classes, ..IntervalObject::new(interval, host) };
            return json_line(out, &object);
        }
        self.host = *host;
        let data = Data::new(Arc::new(interval.clone()), host);
        if self.printed == 0 {
            let uname = rustix::system::uname();
            let architecture = uname.machine().to_string_lossy();
            let cpus = host.cpus.unwrap_or(interval.cpus.len() as u32);
            let about = crate::session::about();
            let banner = stat::banner(&about, &architecture, cpus, interval.start_unix_ns);
            out.write_all(banner.as_bytes())?;
        }
        self.printed += 1;
        let mut text = self.text(|asked| stat::interval(&data, asked));
        if self.has_average {
            text.extend(stat::losses(&data));
        } else {
            text += &self.last_words(&data);
        }
        self.keep(|| Arc::unwrap_or_clone(data.interval));
        out.write_all(text.as_bytes())
    }

    /// Adds an interval to the whole run. If too many tasks have ended in an endless run, only existing tasks keep their lines.
    fn keep(&mut self, interval: impl FnOnce() -> Interval) {
        let Some(whole) = &mut self.whole else { return };
        let interval = interval();
        let room = 2 * interval.tasks.len() + ENDED_KEPT;
        let is_endless = self.options.rhythm.count.is_none() && self.options.rhythm.duration.is_none();
        if is_endless && whole.held() > room {
            let there: HashSet<u64> = interval.tasks.iter().map(|task| task.reading.serial).collect();
            whole.merge_exited(|task| there.contains(&task.serial));
            self.uids.borrow_mut().0.retain(|serial, _| there.contains(serial));
        }
        whole.push(interval);
    }

    fn end(mut self) -> Result<()> {
        let Some(whole) = self.whole.take() else { return Ok(()) };
        let data = Data::new(Arc::new(whole.into_interval()), &self.host);
        if self.has_average && self.printed != 0 {
            output::print(&(self.text(|asked| stat::average(&data, asked)) + &self.last_words(&data)))?;
        }
        match self.offcpu.as_ref().map(|offcpu| offcpu.finish(&data.interval)).transpose()?.flatten() {
            // Standard output only contains JSON objects.
            Some(text) if self.options.json => {
                say!("{}", text.trim_end());
                Ok(())
            }
            Some(text) => output::print(&text),
            None => Ok(()),
        }
    }

    /// Returns the last lines: what keeps each target from being faster, and further remarks.
    fn last_words(&self, data: &Data) -> String {
        let blocked = BlockedOn::new(&data.interval, |addr| self.symbols.caller(addr));
        let classes = Classes::new(&data.interval, &data.tree, &blocked);
        let mut lines = stat::lines(data, &self.asked(&|_| None), &classes);
        if let Some(Err(failure)) = (!data.interval.stacks.is_empty()).then(|| self.symbols.load()) {
            lines.push(failure.to_string());
        }
        stat::end(data, lines)
    }

    fn text(&self, print: impl FnOnce(&Asked<'_>) -> String) -> String {
        print(&self.asked(&|task| self.uids.borrow_mut().of(task, Instant::now(), read_uid)))
    }

    fn asked<'b>(&self, uid: &'b dyn Fn(&TaskReading) -> Option<u32>) -> Asked<'b> {
        let Stat { all, with_cgroup, .. } = *self.options;
        Asked { rows: rows(self.options), all, with_cgroup, uid }
    }
}

/// How long a user id stays valid after it is read. Tasks rarely change their user.
const UID_STANDS: Duration = Duration::from_secs(10);

/// The real user id of each task, and when it was read, by serial. The ids of exited tasks are kept for the average.
#[derive(Debug, Default)]
struct Uids(HashMap<u64, (Option<u32>, Instant)>);

impl Uids {
    fn of(&mut self, task: &TaskReading, now: Instant, read: fn(&TaskReading) -> Option<u32>) -> Option<u32> {
        let before = self.0.get(&task.serial);
        if let Some((uid, _)) = before.filter(|(_, read)| now.duration_since(*read) < UID_STANDS) {
            return *uid;
        }
        let uid = read(task).or(before.and_then(|(uid, _)| *uid));
        self.0.insert(task.serial, (uid, now));
        uid
    }
}

/// Reads the real user id. Returns `None` if the task has exited; its thread id may then belong to another task.
fn read_uid(task: &TaskReading) -> Option<u32> {
    let read = |file| fs::read(format!("/proc/{}/task/{}/{file}", task.tgid, task.tid)).ok();
    let status = read("status")?;
    // Reads the start time last. If it matches, the status belongs to the same task.
    let start_ticks = text::stat(&read("stat")?)?.start_ticks;
    if Ticks::of_this_host().is_later(start_ticks, task.start_ns) { None } else { text::real_uid(&status) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn the_user_of_a_task_is_read_once_and_again_after_a_while() {
        let sample = cgscope_made_up::host(2, 1, 3);
        let first = &sample.tasks[0];
        let second = TaskReading { tid: first.tid, ..(*sample.tasks[1]).clone() };
        let (mut uids, start) = (Uids::default(), Instant::now());
        let never = |_: &TaskReading| -> Option<u32> { panic!("read again") };
        assert_eq!(uids.of(first, start, |_| Some(7)), Some(7));
        assert_eq!(uids.of(first, start + UID_STANDS / 2, never), Some(7));
        assert_eq!(uids.of(&second, start, |_| Some(8)), Some(8), "another task has the id now");
        assert_eq!(uids.of(first, start + UID_STANDS, |_| Some(9)), Some(9), "the user may have changed");
        assert_eq!(uids.of(first, start + 2 * UID_STANDS, |_| None), Some(9), "the task exited");
    }

    #[test]
    fn a_task_that_reuses_a_thread_id_is_distinguished() {
        let ticks = Ticks { length_ns: 10_000_000, ahead_ns: 5_000_000_000 };
        let later = |began| ticks.is_later(began, 2_003_000_000);
        assert_eq!([700, 701, 702, 650].map(later), [false, false, true, false]);
        let mut me = (*cgscope_made_up::host(1, 1, 3).tasks[0]).clone();
        (me.tgid, me.tid, me.start_ns) = (std::process::id(), std::process::id(), u64::MAX / 2);
        // SAFETY: getuid has no preconditions.
        assert_eq!(read_uid(&me), Some(unsafe { libc::getuid() }));
        me.start_ns = 0;
        assert_eq!(read_uid(&me), None);
    }

    fn words(text: &str) -> Vec<Vec<&str>> {
        text.lines().filter(|line| !line.is_empty()).map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn objects_have_the_same_figures_as_lines() {
        let sample = |round| cgscope_made_up::with_accounts(cgscope_made_up::host(40, 8, round));
        let interval = Interval::between(&sample(3), &sample(5));
        let host = Host::default();
        let object = serde_json::to_value(IntervalObject::new(&interval, &host)).unwrap();
        let data = Data::new(Arc::new(interval), &host);
        let asked = Asked { rows: Rows::Threads, all: true, with_cgroup: false, uid: &|_| None };
        let text = stat::interval(&data, &asked);
        let words = words(&text);
        let (heading, lines) = words.split_first().unwrap();
        let at = |title: &str| heading.iter().position(|word| *word == title).unwrap();
        let duration = object["duration_ns"].as_f64().unwrap();
        let tasks = object["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 40);
        for task in tasks {
            let tid = task["tid"].to_string();
            let line = lines.iter().find(|line| line[at("TID")] == tid).unwrap();
            let by_cause = &task["wait"]["by_cause"];
            for (title, value) in [
                ("%usr", &task["user_ns"]),
                ("%system", &task["system_ns"]),
                ("%guest", &task["guest_ns"]),
                ("%CPU", &task["on_cpu_ns"]),
                ("%wait", &task["wait"]["total_ns"]),
                ("%throt", &by_cause["throttled_ns"]),
                ("%wake", &by_cause["wakeup_ns"]),
            ] {
                let printed: f64 = line[at(title)].parse().unwrap();
                let exact = 100.0 * value.as_f64().unwrap() / duration;
                assert!((printed - exact).abs() <= 0.01, "{title} of {tid}: {printed}, {exact}");
            }
            let p99 = task["wait"]["p99_ns"].as_u64().map_or("-".into(), cgscope_model::units::duration);
            assert_eq!(line[at("p99")], p99);
            assert_eq!(line[at("node")], task["node"].to_string());
            let rate = task["voluntary"].as_f64().unwrap() * 1e9 / duration;
            assert_eq!(line[at("cswch/s")], format!("{rate:.2}"));
        }
        let nodes: HashSet<_> = tasks.iter().map(|task| task["node"].as_u64()).collect();
        assert_eq!(nodes, HashSet::from([Some(0), Some(1)]), "each node has some tasks");
    }

    #[test]
    fn the_arguments_select_what_a_line_stands_for() {
        let rows_of = |words: &str| {
            let words = format!("cgscope stat {words}");
            let parsed = Cli::try_parse_from(words.split_whitespace()).ok()?;
            match parsed.command {
                Command::Stat(options) => Some(rows(&options)),
                _ => None,
            }
        };
        assert_eq!(rows_of("1 2"), Some(Rows::Processes));
        assert_eq!(rows_of("-t -p 1 1"), Some(Rows::ThreadsOfProcesses), "as pidstat's -t");
        assert_eq!(rows_of("--by thread --tid 7"), Some(Rows::Threads));
        assert_eq!(rows_of("--by cgroup --duration 5s"), Some(Rows::Cgroups));
        for words in ["-t --by cgroup", "1 0", "0 1", "1 5 --duration 5s", "-o file 1", "--by node"] {
            assert_eq!(rows_of(words), None, "{words}");
        }
    }
}
