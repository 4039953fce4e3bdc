//! Whom the BPF side follows for which viewer.

use std::collections::BTreeMap;

use aya::{
    Pod,
    maps::{Array, HashMap, MapData},
};
use cgscope_layout::wire::{Marks, SELECT_PROCESS, names};

use super::{AyaResult, KernelSide, failed};
use crate::Failure;

/// `Marks` as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct MarksPod(Marks);

// SAFETY: integers without padding.
unsafe impl Pod for MarksPod {}

impl KernelSide {
    /// At the next reading the bits of `clear` are taken from every task, and those given for processes are set in all their
    /// threads. To be called with nothing once that has been read: another process may get the id.
    pub(crate) fn mark(&mut self, clear: u64, bits: &BTreeMap<u32, u64>) -> Result<(), Failure> {
        let mut write = || -> AyaResult<()> {
            let mut selected: HashMap<&mut MapData, u64, u64> =
                HashMap::try_from(self.map_mut(names::SELECTED)?)?;
            let before: Vec<u64> = selected.keys().collect::<Result<_, _>>()?;
            for key in before {
                selected.remove(&key)?;
            }
            for (pid, bits) in bits {
                selected.insert(SELECT_PROCESS | u64::from(*pid), bits, 0)?;
            }
            let mut marks: Array<&mut MapData, MarksPod> = Array::try_from(self.map_mut(names::MARKS)?)?;
            let look = u64::from(!bits.is_empty());
            Ok(marks.set(0, MarksPod(Marks { clear, look }), 0)?)
        };
        write().map_err(failed("tell whom to follow"))
    }
}
