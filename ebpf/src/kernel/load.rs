//! Loads of kernel fields. Each load is one instruction: see [`cgscope_ledger::fields`].

use core::{ffi::c_void, ptr::NonNull};

/// The address of a structure of the kernel, which is not null. There is no other way to load a field, so a load through a null pointer
/// does not compile. On x86_64 and since Linux 6.9, such a load returns 0. On arm64 before, the fault handler sleeps, although the hook
/// runs under the run queue lock, and the machine stops.
#[derive(Clone, Copy)]
pub struct Base(NonNull<c_void>);

impl Base {
    /// Returns `None` for a null pointer.
    #[inline(always)]
    pub fn new(pointer: *const c_void) -> Option<Self> {
        NonNull::new(pointer.cast_mut()).map(Self)
    }

    /// # Safety
    /// `pointer` must not be null, as the arguments of a program and the results of helpers that promise it.
    #[inline(always)]
    pub const unsafe fn known(pointer: *const c_void) -> Self {
        // SAFETY: the caller guarantees that the pointer is not null.
        Self(unsafe { NonNull::new_unchecked(pointer.cast_mut()) })
    }

    #[inline(always)]
    pub fn pointer(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

/// A type that a kernel field can have.
pub trait FieldType: Copy {
    /// Loads a field of the structure at `base`. `PLACE` is the result of [`cgscope_ledger::fields::field`].
    fn load<const PLACE: i32>(base: Base) -> Self;
}

#[cfg(target_arch = "bpf")]
macro_rules! field_type {
    ($($type:ty, $width:literal, $from:expr;)*) => {
        $(impl FieldType for $type {
            #[inline(always)]
            fn load<const PLACE: i32>(base: Base) -> Self {
                let value: u64;
                // SAFETY: the verifier accepts this load only at an offset where BTF has this type, and the kernel returns 0
                // after a fault.
                unsafe {
                    core::arch::asm!(
                        concat!("{value} = *(", $width, " *)({base} + {place})"),
                        value = lateout(reg) value,
                        base = in(reg) base.pointer(),
                        place = const PLACE as i64 as u64,
                        options(readonly, nostack),
                    );
                }
                ($from)(value)
            }
        })*
    };
}

#[cfg(not(target_arch = "bpf"))]
macro_rules! field_type {
    ($($type:ty, $width:literal, $from:expr;)*) => {
        $(impl FieldType for $type {
            fn load<const PLACE: i32>(_: Base) -> Self {
                unreachable!("only lints compile this for another machine")
            }
        })*
    };
}

field_type! {
    u8, "u8", |value| value as u8;
    u32, "u32", |value| value as u32;
    i32, "u32", |value| value as i32;
    u64, "u64", |value| value;
    Option<Base>, "u64", |value| Base::new(value as *const c_void);
}

#[inline(always)]
pub fn load<T: FieldType, const PLACE: i32>(base: Base) -> T {
    T::load::<PLACE>(base)
}

/// Returns a constant that user space patches into this instruction.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn patched<const PLACE: i32>() -> u64 {
    let value: u64;
    // SAFETY: the instruction only sets a register.
    unsafe {
        core::arch::asm!("{value} = {place}", value = out(reg) value, place = const PLACE, options(pure, nomem, nostack));
    }
    value
}

#[cfg(not(target_arch = "bpf"))]
pub fn patched<const PLACE: i32>() -> u64 {
    unreachable!("only lints compile this for another machine")
}
