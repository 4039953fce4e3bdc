//! Folded stacks for flame graphs: a line for each stack of waiting, `frame;frame;cause NS`.

use std::io::Write;

use cgscope_model::Interval;

use crate::{Out, Result, Sink, stacks::Stacks};

/// Sums, and writes at the end.
pub(crate) struct Folded {
    out: Out,
    stacks: Stacks,
}

impl Folded {
    pub(crate) fn new(out: Out) -> Self {
        Self { out, stacks: Stacks::default() }
    }
}

impl Sink for Folded {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.stacks.add(interval);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        for (_, frames, waits) in self.stacks.iter() {
            // A semicolon ends a frame, and anybody can name a thread.
            let stack =
                frames.iter().map(|frame| frame.replace([';', '\n'], "_")).collect::<Vec<_>>().join(";");
            for (cause, _, ns) in waits.by_cause().filter(|(_, _, ns)| *ns != 0) {
                writeln!(self.out, "{stack};{} {ns}", cause.name())?;
            }
        }
        Ok(self.out.flush()?)
    }
}
