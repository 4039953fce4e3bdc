//! Types as which the kernel's bytes can be read.

use aya::Pod;
use cgscope_layout::{
    Offsets, Stack,
    culprits::Pairs,
    demand::Slots,
    pressure::Pressures,
    threads::ThreadsConfig,
    wire::{
        AccountsRecord, Config, CpuCounters, Exited, ExitedRecord, Histogram, ListRecord, Marks, Placement,
        Reported, SameRecord, StackCount, StackKey, TaskRecord,
    },
};

/// A type that consists of integers.
///
/// # Safety
///
/// Any bits must be a valid value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: made of integers and arrays of integers.
        unsafe impl Plain for $type {}
    )*};
}

plain!(
    Exited,
    ExitedRecord,
    SameRecord,
    ListRecord,
    TaskRecord,
    Reported,
    Placement,
    AccountsRecord,
    Stack,
    Histogram,
    StackKey,
    StackCount,
    Pairs,
    Pressures,
    Slots,
    CpuCounters,
    Marks,
    Offsets,
    Config,
    ThreadsConfig
);

/// Wraps a plain type for aya, whose trait cannot be implemented for types of another crate.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Raw<T>(pub T);

// SAFETY: the same as for the wrapped type.
unsafe impl<T: Plain + 'static> Pod for Raw<T> {}

impl<T: Plain> Raw<T> {
    /// Returns the bytes of the value.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a type of integers without padding.
        unsafe { std::slice::from_raw_parts((&raw const self.0).cast(), size_of::<T>()) }
    }
}
