//! `--offcpu`: where time was spent off the CPU, over the whole run, by stack in the kernel: as folded stacks, as a flame graph, or
//! the largest as text.

mod folded;
mod output;
mod stacks;
#[cfg(test)]
mod tests;
mod text;

use std::{path::Path, rc::Rc, time::Duration};

use cgscope_collect::KernelSymbols;
use cgscope_model::{Interval, Mode, units};
use inferno::flamegraph;

use crate::{
    cli::Stat,
    exit::{Error, Result},
};
use output::{Format, Output};
use stacks::Stacks;

/// A stack is walked once a thread has been blocked for so long since the last time: as the help of --offcpu says.
pub const STACK_EVERY: Duration = Duration::from_micros(100);

/// Where time was spent off the CPU.
#[derive(Debug)]
pub struct Offcpu {
    /// Where to write; `None`: the largest stacks as text.
    output: Option<Output>,
    /// Whose time.
    target: String,
    symbols: Rc<KernelSymbols>,
    stacks: Stacks,
    duration_ns: u64,
    is_coarse: bool,
}

impl Offcpu {
    /// `None` where it was not asked for. `target` says whose time it is, in words.
    ///
    /// # Errors
    /// Before anything is measured: where the file holds something else, or the kernel's functions have no names.
    pub fn new(options: &Stat, target: impl Into<String>) -> Result<Option<Self>> {
        let Some(file) = &options.offcpu else { return Ok(None) };
        let output = file.as_deref().map(Output::new).transpose()?;
        let symbols = KernelSymbols::new();
        symbols.load().map_err(|failure| Error::could_not_run(failure.to_string()))?;
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

    /// Adds what came in an interval. They must follow one another.
    pub fn push(&mut self, interval: &Interval) {
        self.duration_ns += interval.duration_ns;
        self.is_coarse |= interval.mode == Mode::Coarse;
        self.stacks.push(interval);
    }

    /// Names of the kernel's functions.
    pub fn symbols(&self) -> Rc<KernelSymbols> {
        self.symbols.clone()
    }

    /// Writes the file, or gives the text that belongs with the result.
    ///
    /// # Errors
    /// Where nothing was measured, or the file cannot be written: then the text goes to standard error.
    pub fn finish(&self) -> Result<Option<String>> {
        if self.is_coarse {
            return Err(Error::incomplete(
                "the coarse mode does not see where tasks are blocked, so there is nothing for --offcpu: run without --mode coarse where \
                 `cgscope doctor` finds BPF",
            ));
        }
        let Some(output) = &self.output else { return Ok(Some(self.text())) };
        if self.stacks.total_ns() == 0 {
            return Err(Error::incomplete(format!(
                "nothing was blocked in {} ({}), so {} is not written: select other tasks, or measure for longer",
                units::duration(self.duration_ns),
                self.target,
                output.path().display(),
            )));
        }
        output.write(&self.rendered(output.format())?).inspect_err(|_| say!("{}", self.text().trim_end()))?;
        Ok(None)
    }

    /// The file, where there is one to be written.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_ref().map(Output::path)
    }

    fn rendered(&self, format: Format) -> Result<String> {
        let lines = folded::lines(&self.stacks, &self.symbols);
        match format {
            Format::Folded => Ok(lines.iter().map(|line| format!("{line}\n")).collect()),
            Format::Svg => self.flame_graph(&lines),
        }
    }

    fn flame_graph(&self, lines: &[String]) -> Result<String> {
        let mut options = flamegraph::Options::default();
        options.title = format!("Blocked: {}, {}", self.target, units::duration(self.duration_ns));
        options.subtitle = Some(self.measured());
        // Lines have ns.
        (options.factor, options.count_name) = (1e-6, "ms".into());
        options.name_type = "Function:".into();
        // The same picture of the same stacks.
        (options.hash, options.deterministic) = (true, true);
        let mut svg = Vec::new();
        let drawn = flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
        drawn.map_err(|error| Error::incomplete(format!("the flame graph could not be drawn ({error})")))?;
        Ok(output::marked(&String::from_utf8_lossy(&svg)))
    }

    /// What the figures are of.
    fn measured(&self) -> String {
        let total_ns = self.stacks.total_ns();
        let share = units::percent(self.stacks.with_stack_ns(), total_ns).unwrap_or(100.0);
        format!(
            "time off a CPU without waiting for one, by stack in the kernel: {} summed over {}; {share:.1}% of it with a stack, the rest is \
             [no stack]",
            units::duration(total_ns),
            units::count(self.stacks.threads(), "thread"),
        )
    }
}
