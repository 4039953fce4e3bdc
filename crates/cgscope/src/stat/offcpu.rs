//! `--offcpu`: shows where time was spent off the CPU in the whole run, by kernel stack. The output is a file with folded stacks,
//! a flame graph, or text with the largest stacks.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
    time::Duration,
};

use cgscope_collect::KernelSymbols;
use cgscope_model::{
    BlockedKind, BlockedState, ByState, Interval, Mode, blocked_on::without_stack, sum, table::exited::ENDED,
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
pub struct Offcpu<'a> {
    /// The output file; `None`: the largest stacks are printed as text.
    output: Option<Output>,
    target: String,
    symbols: &'a KernelSymbols,
}

impl<'a> Offcpu<'a> {
    /// Returns `None` if `--offcpu` was not given. `target` describes the measured tasks.
    ///
    /// # Errors
    /// Fails before anything is measured if the file contains other data, or the names of kernel functions are not available.
    pub fn new(options: &Stat, target: String, symbols: &'a KernelSymbols) -> Result<Option<Self>> {
        let Some(file) = &options.offcpu else { return Ok(None) };
        let output = file.as_deref().map(Output::new).transpose()?;
        symbols.load().map_err(Error::could_not_run)?;
        Ok(Some(Self { output, target, symbols }))
    }

    /// Writes the file, or returns the text to print with the result. `whole` is the whole run, with idle tasks.
    ///
    /// # Errors
    /// Fails if nothing was measured. Also fails if the file cannot be written; then prints the text on standard error.
    pub fn finish(&self, whole: &Interval) -> Result<Option<String>> {
        if whole.mode == Mode::Coarse {
            return Err(Error::incomplete(
                "--offcpu needs the exact mode, because the coarse mode does not know where tasks are blocked: omit \
                 --mode coarse, or use a host where `cgscope doctor` finds BPF",
            ));
        }
        let stacks = Stacks::new(whole);
        let Some(output) = &self.output else { return Ok(Some(self.text(&stacks))) };
        let path = output.place.path.display();
        if stacks.total_ns == 0 {
            return Err(Error::incomplete(format!(
                "no task was blocked in {} ({}), so {path} is not written: select other tasks, or measure for longer",
                units::duration(stacks.duration_ns),
                self.target,
            )));
        }
        let written = output::replace(&output.place, &self.rendered(&stacks, output.is_svg)?);
        written.map_err(|error| {
            say!("{}", self.text(&stacks).trim_end());
            Error::incomplete(format!(
                "the stacks could not be written to {path} ({error}), so only the largest are printed: free some space, or \
                 name another file with --offcpu=FILE"
            ))
        })?;
        say!("cgscope: {path} written");
        Ok(None)
    }

    /// Returns a flame graph with `is_svg`, else folded stacks.
    fn rendered(&self, stacks: &Stacks, is_svg: bool) -> Result<String> {
        let lines = stacks.lines(self.symbols);
        if !is_svg {
            return Ok(lines.iter().map(|line| format!("{line}\n")).collect());
        }
        let mut options = flamegraph::Options::default();
        options.title = self.title(stacks);
        options.subtitle = Some(stacks.measured());
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

    fn title(&self, stacks: &Stacks) -> String {
        format!("Blocked: {}, {}", self.target, units::duration(stacks.duration_ns))
    }

    fn text(&self, stacks: &Stacks) -> String {
        let Stacks { places, total_ns, .. } = stacks;
        let mut text = format!("{}\n{}\n", self.title(stacks), stacks.measured());
        if places.is_empty() {
            return text;
        }
        text += "\n     time  share    count  stack, the innermost function first\n";
        for (place, time) in places.iter().take(MOST) {
            let share = units::percent(time.ns, *total_ns).unwrap_or_default();
            let count = if time.count == 0 { "-".into() } else { time.count.to_string() };
            let (kind, state) = (place.kind(self.symbols).name(), place.state.name());
            let stack = place.functions(self.symbols).join(" < ");
            let time = units::duration(time.ns);
            text += &format!("{time:>9} {share:>5.1}% {count:>8}  {}: {kind}, {state}\n", place.comm);
            text += &format!("{:27}{stack}\n", "");
        }
        if let Some(rest) = places.get(MOST..).filter(|rest| !rest.is_empty()) {
            let rest_ns = rest.iter().map(|(_, time)| time.ns).sum();
            let share = units::percent(rest_ns, *total_ns).unwrap_or_default();
            let rest_of = units::count(rest.len() as u64, "other stack");
            text += &format!("{:>9} {share:>5.1}% {:>8}  {rest_of}\n", units::duration(rest_ns), "");
        }
        text
    }
}

/// A place: the name of threads, the state in which they were blocked, and their stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct BlockedAt {
    comm: Arc<str>,
    state: BlockedState,
    /// Return addresses, the innermost first; empty if there is no stack.
    stack: Arc<[u64]>,
}

const NO_STACK: &str = "[no stack]";
const NO_NAME: &str = "[unknown]";

impl BlockedAt {
    /// Returns the names of the functions, the innermost first.
    fn functions<'a>(&self, symbols: &'a KernelSymbols) -> Vec<&'a str> {
        if self.stack.is_empty() {
            return vec![NO_STACK];
        }
        self.stack.iter().map(|addr| symbols.caller(*addr).unwrap_or(NO_NAME)).collect()
    }

    fn kind(&self, symbols: &KernelSymbols) -> BlockedKind {
        BlockedKind::of(self.state, self.stack.iter().map(|addr| symbols.caller(*addr)))
    }

    fn line(&self, symbols: &KernelSymbols) -> String {
        let mut names = self.functions(symbols);
        names.reverse();
        // A semicolon would end the name.
        let comm = self.comm.replace(';', ":");
        format!("{comm};{};{}", blocked(self.kind(symbols), self.state), names.join(";"))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Time {
    ns: u64,
    /// Number of stack walks that found this place; 0 without a stack.
    count: u64,
}

/// Where threads were blocked during an interval.
#[derive(Debug)]
struct Stacks {
    duration_ns: u64,
    /// All places, the longest time first, including places without a stack. The times add up to `total_ns`.
    places: Vec<(BlockedAt, Time)>,
    /// The blocked time of all threads, ns; at least the sum of the stacks, which may include time just before the run.
    total_ns: u64,
    with_stack_ns: u64,
    threads: u64,
}

impl Stacks {
    fn new(interval: &Interval) -> Self {
        let mut times: HashMap<BlockedAt, Time> = HashMap::new();
        let mut of_threads: BTreeMap<u64, ByState> = BTreeMap::new();
        for stack in &interval.stacks {
            of_threads.entry(stack.serial).or_default().0[stack.state as usize] += stack.ns;
            // An empty stack means that the stack could not be walked.
            let place =
                BlockedAt { comm: stack.comm.clone(), state: stack.state, stack: stack.stack.clone() };
            let time = times.entry(place).or_default();
            time.ns += stack.ns;
            time.count += stack.count;
        }
        let stacks_ns = times.values().map(|time| time.ns).sum();
        let with_stack = times.iter().filter(|(place, _)| !place.stack.is_empty());
        let with_stack_ns = with_stack.map(|(_, time)| time.ns).sum();
        // Time that exited tasks were blocked after their last reading.
        let (mut exited, mut exited_threads) = (ByState::default(), 0);
        for group in &interval.exited {
            exited.add(&group.accounts.and_then(|accounts| accounts.blocked).unwrap_or_default());
            exited_threads += group.tasks;
        }
        let mut blocked_ns = exited.total();
        let mut rests = Vec::new();
        for task in &interval.tasks {
            let blocked = task.accounts.as_deref().and_then(|accounts| accounts.blocked);
            let Some(blocked) = blocked else { continue };
            blocked_ns += blocked.total();
            let stacks = of_threads.entry(task.reading.serial).or_default();
            rests.push((task.reading.comm.clone(), without_stack(&blocked, stacks)));
        }
        rests.push((ENDED.into(), exited));
        // Without this limit, time of exited threads would count twice, in their stacks and in the sums of exited tasks.
        let mut rest_ns = blocked_ns.saturating_sub(stacks_ns);
        for (comm, by_state) in rests {
            for (state, ns) in by_state.iter().filter(|(_, ns)| *ns != 0) {
                let place = BlockedAt { comm: comm.clone(), state, stack: Arc::default() };
                let ns = ns.min(rest_ns);
                times.entry(place).or_default().ns += ns;
                rest_ns -= ns;
            }
        }
        let mut places: Vec<_> = times.into_iter().filter(|(_, time)| time.ns != 0).collect();
        places.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then_with(|| a.0.cmp(&b.0)));
        Self {
            duration_ns: interval.duration_ns,
            places,
            total_ns: blocked_ns.max(stacks_ns),
            with_stack_ns,
            // The two numbers overlap, because an exited thread may have been read before.
            threads: (of_threads.len() as u64).max(exited_threads),
        }
    }

    fn measured(&self) -> String {
        let share = units::percent(self.with_stack_ns, self.total_ns).unwrap_or(100.0);
        format!(
            "blocked time by kernel stack: {} summed over {}; {share:.1}% of this time has a stack, the rest is [no stack]",
            units::duration(self.total_ns),
            units::count(self.threads, "thread"),
        )
    }

    /// Returns a line for each stack, sorted. Stacks with the same names share a line.
    fn lines(&self, symbols: &KernelSymbols) -> Vec<String> {
        let lines = sum::tally(self.places.iter().map(|(place, time)| (place.line(symbols), time.ns)));
        lines.into_iter().map(|(stack, ns)| format!("{stack} {ns}")).collect()
    }
}

/// A new file, an earlier file of `--offcpu` (which is replaced), a pipe or a device.
#[derive(Debug)]
pub struct Output {
    place: Place,
    /// Whether the file name ends in .svg: then the file is a flame graph, else it holds folded stacks.
    is_svg: bool,
}

/// The beginning of our flame graphs, by which we recognize them. An XML comment must not contain two hyphens in a row.
const BEGINNING: &str = "<?xml version=\"1.0\" standalone=\"no\"?>\n<!-- cgscope offcpu -->\n";

/// Maximum length of a line to read, bytes.
const LINE_BYTES: u64 = 64 << 10;

impl Output {
    /// Checks the file before anything is measured. Refuses a file with other data.
    pub fn new(path: &Path) -> Result<Self> {
        let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
        let is_ours = |place: &Place| {
            if is_svg {
                return output::begins_with(place, &[BEGINNING]);
            }
            let mut line = Vec::new();
            BufReader::new(place.open()?.take(LINE_BYTES)).read_until(b'\n', &mut line)?;
            Ok(is_ours(String::from_utf8_lossy(&line).trim_end()))
        };
        let so = "the stacks cannot be saved: name another file with --offcpu=FILE";
        let place = output::place(path, "stacks", is_ours, so)?;
        Ok(Self { place, is_svg })
    }
}

/// Marks a flame graph, so that [`Output::new`] recognizes it later.
pub fn marked(svg: &str) -> String {
    let rest = svg.split_once("?>").map_or(svg, |(_, rest)| rest);
    format!("{BEGINNING}{}", rest.trim_start())
}

fn blocked(kind: BlockedKind, state: BlockedState) -> String {
    format!("[{}, {}]", kind.name(), state.name())
}

/// Returns whether [`Stacks::lines`] may have written this line.
fn is_ours(line: &str) -> bool {
    let all =
        || BlockedKind::ALL.into_iter().flat_map(|kind| BlockedState::ALL.map(|state| blocked(kind, state)));
    let has_ns = line.rsplit_once(' ').is_some_and(|(_, ns)| ns.parse::<u64>().is_ok());
    has_ns && line.split(';').nth(1).is_some_and(|frame| all().any(|ours| ours == frame))
}

/// Maximum number of stacks to print.
const MOST: usize = 10;

#[cfg(test)]
mod tests;
