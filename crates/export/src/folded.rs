//! Writes folded stacks for flame graphs. Each line has the frames of a stack, a cause, and the waiting time with this cause, ns:
//! `frame;frame;cause NS`.

use std::io::Write;

use cgscope_model::Interval;

use crate::{Out, Result, Sink, stacks::Stacks};

pub(crate) struct Folded {
    pub(crate) out: Out,
    pub(crate) stacks: Stacks,
}

impl Sink for Folded {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.stacks.add(interval);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        for (_, frames, waits) in self.stacks.iter() {
            let stack = stack(&frames);
            for (cause, _, ns) in waits.by_cause().filter(|(_, _, ns)| *ns != 0) {
                writeln!(self.out, "{stack};{} {ns}", cause.name())?;
            }
        }
        Ok(self.out.flush()?)
    }
}

/// Joins the frames of a stack. Replaces semicolons, because a semicolon ends a frame and anybody can put semicolons into a thread
/// name.
pub(crate) fn stack(frames: &[String]) -> String {
    frames.iter().map(|frame| frame.replace([';', '\n'], "_")).collect::<Vec<_>>().join(";")
}
