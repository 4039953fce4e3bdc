//! Types that the kernel's bytes may be read as.

use aya::Pod;
use cgscope_layout::{
    Offsets, Stack,
    ledger::Pairs,
    threads::ThreadsConfig,
    wire::{
        AccountsRecord, Config, CpuCounters, Exited, ExitedRecord, Histogram, Marks, Placement, StackCount,
        StackKey, TaskRecord, Told,
    },
};

/// A type that consists of integers.
///
/// # Safety
///
/// Any bits are a value of the type.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: made of integers and arrays of them.
        unsafe impl Plain for $type {}
    )*};
}

plain!(
    Exited,
    ExitedRecord,
    TaskRecord,
    Told,
    Placement,
    AccountsRecord,
    Stack,
    Histogram,
    StackKey,
    StackCount,
    Pairs,
    CpuCounters,
    Marks,
    Offsets,
    Config,
    ThreadsConfig
);

/// A plain type for aya, whose trait cannot be implemented for types of another crate.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Raw<T>(pub T);

// SAFETY: as the type in it.
unsafe impl<T: Plain + 'static> Pod for Raw<T> {}
