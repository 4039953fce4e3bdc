//! `--offcpu`: where time was spent off the CPU over the whole run, by kernel stack. The output is folded stacks, a flame graph,
//! or the largest stacks as text.

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

/// Blocked time of a thread between two stack walks, as the help of --offcpu states.
pub const STACK_EVERY: Duration = Duration::from_micros(100);

/// Collects where time was spent off the CPU.
#[derive(Debug)]
pub struct Offcpu {
    /// The output file; `None`: print the largest stacks as text.
    output: Option<Output>,
    /// The measured tasks, in words.
    target: String,
    symbols: Rc<KernelSymbols>,
    stacks: Stacks,
    duration_ns: u64,
    is_coarse: bool,
}

impl Offcpu {
    /// `None` if `--offcpu` was not given. `target` names the measured tasks in words.
    ///
    /// # Errors
    /// Fails before anything is measured if the file holds other data, or kernel functions have no names.
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

    /// Adds an interval. Intervals must follow each other without gaps.
    pub fn push(&mut self, interval: &Interval) {
        self.duration_ns += interval.duration_ns;
        self.is_coarse |= interval.mode == Mode::Coarse;
        self.stacks.push(interval);
    }

    /// Names of kernel functions.
    pub fn symbols(&self) -> Rc<KernelSymbols> {
        self.symbols.clone()
    }

    /// Writes the file, or returns the text to print with the result.
    ///
    /// # Errors
    /// Fails if nothing was measured. If the file cannot be written, prints the text on standard error and fails.
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
                output.path().display(),
            )));
        }
        output.write(&self.rendered(output.format())?).inspect_err(|_| say!("{}", self.text().trim_end()))?;
        Ok(None)
    }

    /// The output file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_ref().map(Output::path)
    }

    fn rendered(&self, format: Format) -> Result<String> {
        let lines = output::lines(&self.stacks, &self.symbols);
        match format {
            Format::Folded => Ok(lines.iter().map(|line| format!("{line}\n")).collect()),
            Format::Svg => self.flame_graph(&lines),
        }
    }

    fn flame_graph(&self, lines: &[String]) -> Result<String> {
        let mut options = flamegraph::Options::default();
        options.title = format!("Blocked: {}, {}", self.target, units::duration(self.duration_ns));
        options.subtitle = Some(self.measured());
        // Lines contain ns.
        (options.factor, options.count_name) = (1e-6, "ms".into());
        options.name_type = "Function:".into();
        // Make the picture depend only on the stacks.
        (options.hash, options.deterministic) = (true, true);
        let mut svg = Vec::new();
        let drawn = flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
        drawn.map_err(|error| Error::incomplete(format!("the flame graph could not be drawn ({error})")))?;
        Ok(output::marked(&String::from_utf8_lossy(&svg)))
    }

    /// Describes what the figures cover.
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
