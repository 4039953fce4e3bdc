//! What bytes of the kernel may be read as.

use cgscope_layout::{
    Stack,
    wire::{
        AccountsRecord, Exited, ExitedRecord, Histogram, Placement, StackCount, StackKey, TaskRecord, Told,
    },
};

/// Integers alone.
///
/// # Safety
/// Any bits are a value of the type.
pub(crate) unsafe trait Plain: Copy {}

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
    StackCount
);
