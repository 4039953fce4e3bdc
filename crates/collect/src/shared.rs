//! If several viewers share the readings, keeps track of which viewers follow which tasks.

use std::collections::BTreeMap;

use cgscope_ledger::wire::FOLLOWED;
use cgscope_model::follower::Follower;

use crate::{Failure, kernel_side::KernelSide};

/// Returns the bits of the viewers that follow a task.
pub(crate) fn followers(flags: u64) -> u64 {
    flags & FOLLOWED
}

#[derive(Debug, Default)]
pub(crate) struct Changes {
    clear: u64,
    bits: BTreeMap<u32, u64>,
    /// Whether the BPF side has received these marks. If it has, we must clear them after the reading.
    is_reported: bool,
}

impl Changes {
    /// Follows all threads of these processes, and their descendants, from the next reading on.
    pub(crate) fn follow(&mut self, follower: Follower, pids: &[u32]) {
        for pid in pids {
            *self.bits.entry(*pid).or_default() |= follower.bit();
        }
    }

    /// Stops following all tasks for this viewer, from the next reading on.
    pub(crate) fn stop(&mut self, follower: Follower) {
        self.clear |= follower.bit();
        for bits in self.bits.values_mut() {
            *bits &= !follower.bit();
        }
    }

    /// Sets the marks on the BPF side before a reading. Returns whether there are marks. If there are, the reading must visit all
    /// tasks.
    pub(crate) fn report(&mut self, side: &mut KernelSide) -> Result<bool, Failure> {
        if self.clear == 0 && self.bits.is_empty() {
            return Ok(false);
        }
        self.is_reported = true;
        side.mark(self.clear, &self.bits)?;
        Ok(true)
    }

    /// Clears the marks on the BPF side. Call this after a reading.
    pub(crate) fn were_read(&mut self, side: &mut KernelSide) -> Result<(), Failure> {
        if !self.is_reported {
            return Ok(());
        }
        *self = Self::default();
        side.mark(0, &self.bits)
    }
}
