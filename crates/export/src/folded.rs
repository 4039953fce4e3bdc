//! Writes folded stacks for flame graphs: a line for each stack and cause, with the time, ns.

use std::{collections::BTreeMap, io::Write};

use cgscope_model::Interval;

use crate::{Error, Out, Result, Sink, stacks::Stacks};

/// Waiting: `frame;frame;cause NS`.
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
fn stack(frames: &[String]) -> String {
    frames.iter().map(|frame| frame.replace([';', '\n'], "_")).collect::<Vec<_>>().join(";")
}

/// For whom tasks slept: `sleeper;kind;waker;cause NS`, where the cause is what the waker did during the sleep. A waker that is no
/// task has no cause.
pub(crate) struct Chains {
    out: Out,
    /// Time by stack, ns. The memory grows with the number of sleepers and wakers, not with time.
    sums: BTreeMap<String, u64>,
    has_intervals: bool,
    is_counted: bool,
}

impl Chains {
    pub(crate) fn new(out: Out) -> Self {
        Self { out, sums: BTreeMap::new(), has_intervals: false, is_counted: false }
    }
}

impl Sink for Chains {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.has_intervals = true;
        self.is_counted |= interval.chains.is_some();
        for row in interval.chains.iter().flatten() {
            let [sleeper, waker] = [interval.sleeper_words(row), interval.waker_words(row)];
            let mut frames = vec![sleeper, row.kind.name().into(), waker];
            let mut add = |frames: &[String], ns| *self.sums.entry(stack(frames)).or_default() += ns;
            if row.doings().next().is_none() {
                add(&frames, row.slept_ns);
            }
            for (doing, ns) in row.doings() {
                frames.push(doing.name().into());
                add(&frames, ns);
                frames.pop();
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.has_intervals && !self.is_counted {
            return Err(Error::NoChains);
        }
        for (stack, ns) in self.sums.iter().filter(|(_, ns)| **ns != 0) {
            writeln!(self.out, "{stack} {ns}")?;
        }
        Ok(self.out.flush()?)
    }
}
