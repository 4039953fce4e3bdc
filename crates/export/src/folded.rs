//! Folded stacks for flame graphs. Each line is a stack with one cause and the ns of the waits: `frame;frame;cause NS`.

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
            // A semicolon would end the frame, and anybody can put a semicolon into a thread name.
            let stack =
                frames.iter().map(|frame| frame.replace([';', '\n'], "_")).collect::<Vec<_>>().join(";");
            for (cause, _, ns) in waits.by_cause().filter(|(_, _, ns)| *ns != 0) {
                writeln!(self.out, "{stack};{} {ns}", cause.name())?;
            }
        }
        Ok(self.out.flush()?)
    }
}
