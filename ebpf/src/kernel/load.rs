//! Loads of kernel fields. Each load is one instruction: see [`cgscope_ledger::fields`].

use core::ffi::c_void;

/// A type that a kernel field can have.
pub trait FieldType: Copy {
    /// Loads a field of the structure at `base`. `PLACE` is the result of [`cgscope_ledger::fields::field`].
    fn load<const PLACE: i32>(base: *const c_void) -> Self;
}

#[cfg(target_arch = "bpf")]
macro_rules! field_type {
    ($($type:ty, $width:literal;)*) => {
        $(impl FieldType for $type {
            #[inline(always)]
            fn load<const PLACE: i32>(base: *const c_void) -> Self {
                let value: u64;
                // SAFETY: the verifier accepts this load only at an offset where BTF has this type, and the kernel returns 0
                // after a fault.
                unsafe {
                    core::arch::asm!(
                        concat!("{value} = *(", $width, " *)({base} + {place})"),
                        value = lateout(reg) value,
                        base = in(reg) base,
                        place = const PLACE as i64 as u64,
                        options(readonly, nostack),
                    );
                }
                value as Self
            }
        })*
    };
}

#[cfg(not(target_arch = "bpf"))]
macro_rules! field_type {
    ($($type:ty, $width:literal;)*) => {
        $(impl FieldType for $type {
            fn load<const PLACE: i32>(_: *const c_void) -> Self {
                unreachable!("only lints compile this for another machine")
            }
        })*
    };
}

field_type! {
    u8, "u8";
    u32, "u32";
    i32, "u32";
    u64, "u64";
    *const c_void, "u64";
}

#[inline(always)]
pub fn load<T: FieldType, const PLACE: i32>(base: *const c_void) -> T {
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
