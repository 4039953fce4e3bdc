//! `--offcpu`: shows where time was spent off the CPU in the whole run, by kernel stack. The output is a file with folded stacks,
//! a flame graph, or text with the largest stacks.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use cgscope_collect::KernelSymbols;
use cgscope_model::{
    BlockedKind, BlockedState, ByState, Interval, Mode, blocked_on::without_stack, table::exited::ENDED,
    units,
};
use cgscope_record::Place;
use inferno::flamegraph;

use crate::{
    cli::Stat,
    exit::{Error, Result},
    output,
};

/// Blocked time of a thread between two stack walks, as the help of --offcpu states.
pub const STACK_EVERY: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub struct Offcpu {
    /// The output file; `None`: the largest stacks are printed as text.
    output: Option<Output>,
    target: String,
    symbols: Rc<KernelSymbols>,
    stacks: Stacks,
    duration_ns: u64,
    is_coarse: bool,
}

impl Offcpu {
    /// Returns `None` if `--offcpu` was not given. `target` describes the measured tasks.
    ///
    /// # Errors
    /// Fails before anything is measured if the file contains other data, or the names of kernel functions are not available.
    pub fn new(options: &Stat, target: impl Into<String>) -> Result<Option<Self>> {
        let Some(file) = &options.offcpu else { return Ok(None) };
        let output = file.as_deref().map(Output::new).transpose()?;
        let symbols = KernelSymbols::new();
        symbols.load().map_err(Error::could_not_run)?;
        Ok(Some(Self::with(output, target.into(), symbols)))
    }

    fn with(output: Option<Output>, target: String, symbols: KernelSymbols) -> Self {
        Self {
            output,
            target,
            symbols: Rc::new(symbols),
            stacks: Stacks::default(),
            duration_ns: 0,
            is_coarse: false,
        }
    }

    /// Adds an interval. The intervals must follow each other without gaps.
    pub fn push(&mut self, interval: &Interval) {
        self.duration_ns += interval.duration_ns;
        self.is_coarse |= interval.mode == Mode::Coarse;
        self.stacks.push(interval);
    }

    pub fn symbols(&self) -> Rc<KernelSymbols> {
        self.symbols.clone()
    }

    /// Writes the file, or returns the text to print with the result.
    ///
    /// # Errors
    /// Fails if nothing was measured. Also fails if the file cannot be written; then prints the text on standard error.
    pub fn finish(&self) -> Result<Option<String>> {
        if self.is_coarse {
            return Err(Error::incomplete(
                "--offcpu needs the exact mode, because the coarse mode does not know where tasks are blocked: omit \
                 --mode coarse, or use a host where `cgscope doctor` finds BPF",
            ));
        }
        let Some(output) = &self.output else { return Ok(Some(self.text())) };
        if self.stacks.total_ns() == 0 {
            return Err(Error::incomplete(format!(
                "no task was blocked in {} ({}), so {} is not written: select other tasks, or measure for longer",
                units::duration(self.duration_ns),
                self.target,
                output.place.path().display(),
            )));
        }
        output.write(&self.rendered(output.format)?).inspect_err(|_| say!("{}", self.text().trim_end()))?;
        say!("cgscope: {} written", output.place.path().display());
        Ok(None)
    }

    fn rendered(&self, format: Format) -> Result<String> {
        let lines = lines(&self.stacks, &self.symbols);
        match format {
            Format::Folded => Ok(lines.iter().map(|line| format!("{line}\n")).collect()),
            Format::Svg => self.flame_graph(&lines),
        }
    }

    fn flame_graph(&self, lines: &[String]) -> Result<String> {
        let mut options = flamegraph::Options::default();
        options.title = format!("Blocked: {}, {}", self.target, units::duration(self.duration_ns));
        options.subtitle = Some(self.measured());
        // The lines contain ns.
        (options.factor, options.count_name) = (1e-6, "ms".into());
        options.name_type = "Function:".into();
        // With these options, the picture depends only on the stacks.
        (options.hash, options.deterministic) = (true, true);
        let mut svg = Vec::new();
        let drawn = flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
        drawn.map_err(|error| Error::incomplete(format!("the flame graph could not be drawn ({error})")))?;
        Ok(marked(&String::from_utf8_lossy(&svg)))
    }

    fn measured(&self) -> String {
        let total_ns = self.stacks.total_ns();
        let share = units::percent(self.stacks.with_stack_ns(), total_ns).unwrap_or(100.0);
        format!(
            "blocked time by kernel stack: {} summed over {}; {share:.1}% of this time has a stack, the rest is [no stack]",
            units::duration(total_ns),
            units::count(self.stacks.threads(), "thread"),
        )
    }
}

/// A place: the name of threads, the state in which they were blocked, and their stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockedAt {
    pub comm: Arc<str>,
    pub state: BlockedState,
    /// Return addresses, the innermost first; empty if there is no stack.
    pub stack: Arc<[u64]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    pub ns: u64,
    /// Number of stack walks that found this place; 0 without a stack.
    pub count: u64,
}

#[derive(Debug, Default)]
pub struct Stacks {
    times: HashMap<BlockedAt, Time>,
    /// By the serial of the task.
    threads: BTreeMap<u64, Thread>,
    /// Time that exited tasks were blocked after their last reading.
    exited: ByState,
    exited_threads: u64,
}

/// The blocked time of a thread, and the part of it that has a stack.
#[derive(Debug)]
struct Thread {
    comm: Arc<str>,
    blocked: ByState,
    stacks: ByState,
}

impl Thread {
    fn new(comm: &Arc<str>) -> Self {
        Self { comm: comm.clone(), blocked: ByState::default(), stacks: ByState::default() }
    }
}

impl Stacks {
    pub fn push(&mut self, interval: &Interval) {
        for task in &interval.tasks {
            let Some(blocked) = task.accounts.as_deref().and_then(|accounts| accounts.blocked) else {
                continue;
            };
            let thread = self.threads.entry(task.reading.serial);
            thread.or_insert_with(|| Thread::new(&task.reading.comm)).blocked.add(&blocked);
        }
        for exited in &interval.exited {
            self.exited.add(&exited.accounts.and_then(|accounts| accounts.blocked).unwrap_or_default());
            self.exited_threads += exited.tasks;
        }
        for stack in &interval.stacks {
            let thread = self.threads.entry(stack.serial).or_insert_with(|| Thread::new(&stack.comm));
            thread.stacks.0[stack.state as usize] += stack.ns;
            // An empty stack means that the stack could not be walked.
            let place =
                BlockedAt { comm: stack.comm.clone(), state: stack.state, stack: stack.stack.clone() };
            let time = self.times.entry(place).or_default();
            time.ns += stack.ns;
            time.count += stack.count;
        }
    }

    /// Returns all places, the longest time first. Includes places without a stack. The times add up to [`Self::total_ns`].
    pub fn places(&self) -> Vec<(BlockedAt, Time)> {
        let mut times = self.times.clone();
        for (comm, rest) in self.without_stack() {
            for (state, ns) in rest.iter().filter(|(_, ns)| *ns != 0) {
                let place = BlockedAt { comm: comm.clone(), state, stack: Arc::default() };
                times.entry(place).or_default().ns += ns;
            }
        }
        let mut places: Vec<_> = times.into_iter().filter(|(_, time)| time.ns != 0).collect();
        places.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.cmp(&b.0)));
        places
    }

    /// Returns the blocked time of all threads, ns; at least the sum of the stacks, which may include time just before the run.
    pub fn total_ns(&self) -> u64 {
        self.blocked_ns().max(self.stacks_ns())
    }

    pub fn with_stack_ns(&self) -> u64 {
        self.times.iter().filter(|(place, _)| !place.stack.is_empty()).map(|(_, time)| time.ns).sum()
    }

    pub fn threads(&self) -> u64 {
        // The two numbers overlap, because an exited thread may have been read before.
        (self.threads.len() as u64).max(self.exited_threads)
    }

    fn blocked_ns(&self) -> u64 {
        self.threads.values().map(|thread| thread.blocked.total()).sum::<u64>() + self.exited.total()
    }

    fn stacks_ns(&self) -> u64 {
        self.times.values().map(|time| time.ns).sum()
    }

    /// Returns the blocked time without a stack, by thread, limited to the total without a stack. Without this limit, time of
    /// exited threads would count twice, in their stacks and in the sums of exited tasks.
    fn without_stack(&self) -> Vec<(Arc<str>, ByState)> {
        let mut rest_ns = self.blocked_ns().saturating_sub(self.stacks_ns());
        let ended = (Arc::from(ENDED), self.exited);
        let threads = self
            .threads
            .values()
            .map(|thread| (thread.comm.clone(), without_stack(&thread.blocked, &thread.stacks)));
        let mut all: Vec<_> = threads.chain([ended]).collect();
        for (_, by_state) in &mut all {
            for ns in &mut by_state.0 {
                *ns = (*ns).min(rest_ns);
                rest_ns -= *ns;
            }
        }
        all
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Svg,
    Folded,
}

impl Format {
    /// Returns whether a file of this format is ours.
    fn began(self, place: &Place) -> io::Result<bool> {
        if self == Self::Svg {
            return output::begins_with(place, &[BEGINNING]);
        }
        let mut line = Vec::new();
        BufReader::new(place.open()?.take(LINE_BYTES)).read_until(b'\n', &mut line)?;
        Ok(is_ours(String::from_utf8_lossy(&line).trim_end()))
    }
}

/// A new file, an earlier file of `--offcpu` (which is replaced), a pipe or a device.
#[derive(Debug)]
pub struct Output {
    place: Place,
    /// Derived from the extension of the file name.
    format: Format,
}

/// The beginning of our flame graphs, by which we recognize them. An XML comment must not contain two hyphens in a row.
const BEGINNING: &str = "<?xml version=\"1.0\" standalone=\"no\"?>\n<!-- cgscope offcpu -->\n";

/// Maximum length of a line to read, bytes.
const LINE_BYTES: u64 = 64 << 10;

impl Output {
    /// Checks the file before anything is measured. Refuses a file with other data.
    pub fn new(path: &Path) -> Result<Self> {
        let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
        let format = if is_svg { Format::Svg } else { Format::Folded };
        let place = output::tried_place(path, "stacks", |place| format.began(place), cannot_write)?;
        Ok(Self { place, format })
    }

    /// Writes either the complete text or nothing.
    pub fn write(&self, text: &str) -> Result<()> {
        output::replace(&self.place, text).map_err(|error| {
            Error::incomplete(format!(
                "the stacks could not be written to {} ({error}), so only the largest are printed: free some space, or \
                 name another file with --offcpu=FILE",
                self.place.path().display()
            ))
        })
    }
}

/// Marks a flame graph, so that `Format::began` recognizes it later.
pub fn marked(svg: &str) -> String {
    let rest = svg.split_once("?>").map_or(svg, |(_, rest)| rest);
    format!("{BEGINNING}{}", rest.trim_start())
}

fn cannot_write(path: &Path, why: &str) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({why}), so the stacks cannot be saved: name another file with --offcpu=FILE",
        path.display()
    ))
}

const NO_STACK: &str = "[no stack]";
const NO_NAME: &str = "[unknown]";

/// Returns a line for each stack, sorted. Stacks with the same names share a line.
pub fn lines(stacks: &Stacks, symbols: &KernelSymbols) -> Vec<String> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (place, time) in stacks.places() {
        *lines.entry(line(&place, symbols)).or_default() += time.ns;
    }
    lines.into_iter().map(|(stack, ns)| format!("{stack} {ns}")).collect()
}

fn line(place: &BlockedAt, symbols: &KernelSymbols) -> String {
    let mut names: Vec<&str> = functions(place, symbols).collect();
    names.reverse();
    if names.is_empty() {
        names.push(NO_STACK);
    }
    // A semicolon would end the name.
    let comm = place.comm.replace(';', ":");
    format!("{comm};{};{}", blocked(kind(place, symbols), place.state), names.join(";"))
}

/// Returns the function names of a stack, the innermost first.
pub fn functions<'a>(place: &'a BlockedAt, symbols: &'a KernelSymbols) -> impl Iterator<Item = &'a str> {
    place.stack.iter().map(|addr| symbols.caller(*addr).unwrap_or(NO_NAME))
}

/// Returns the kind of event for which the threads are blocked.
pub fn kind(place: &BlockedAt, symbols: &KernelSymbols) -> BlockedKind {
    BlockedKind::of(place.state, place.stack.iter().map(|addr| symbols.caller(*addr)))
}

fn blocked(kind: BlockedKind, state: BlockedState) -> String {
    format!("[{}, {}]", kind.name(), state.name())
}

/// Returns whether [`lines`] may have written this line.
pub fn is_ours(line: &str) -> bool {
    let all =
        || BlockedKind::ALL.into_iter().flat_map(|kind| BlockedState::ALL.map(|state| blocked(kind, state)));
    let has_ns = line.rsplit_once(' ').is_some_and(|(_, ns)| ns.parse::<u64>().is_ok());
    has_ns && line.split(';').nth(1).is_some_and(|frame| all().any(|ours| ours == frame))
}

/// Maximum number of stacks to print.
const MOST: usize = 10;

impl Offcpu {
    fn text(&self) -> String {
        let (places, total_ns) = (self.stacks.places(), self.stacks.total_ns());
        let mut text =
            format!("Blocked: {}, {}\n{}\n", self.target, units::duration(self.duration_ns), self.measured());
        if places.is_empty() {
            return text;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n{:>9} {:>6} {:>8}  stack, the innermost function first",
            "time", "share", "count"
        );
        for (place, time) in places.iter().take(MOST) {
            let share = units::percent(time.ns, total_ns).unwrap_or_default();
            let count = if time.count == 0 { "-".into() } else { time.count.to_string() };
            let (kind, state) = (kind(place, &self.symbols).name(), place.state.name());
            let functions: Vec<&str> = functions(place, &self.symbols).collect();
            let stack = if functions.is_empty() { "[no stack]".into() } else { functions.join(" < ") };
            let time = units::duration(time.ns);
            let _ = writeln!(text, "{time:>9} {share:>5.1}% {count:>8}  {}: {kind}, {state}", place.comm);
            let _ = writeln!(text, "{:27}{stack}", "");
        }
        if let Some(rest) = places.get(MOST..).filter(|rest| !rest.is_empty()) {
            let rest_ns = rest.iter().map(|(_, time)| time.ns).sum();
            let share = units::percent(rest_ns, total_ns).unwrap_or_default();
            let rest_of = units::count(rest.len() as u64, "other stack");
            let _ = writeln!(text, "{:>9} {share:>5.1}% {:>8}  {rest_of}", units::duration(rest_ns), "");
        }
        text
    }
}

#[cfg(test)]
mod tests;
