//! What only the kernel's verifier of BPF programs needs.

use core::ptr::{from_mut, read_volatile, write_volatile};

/// Reads as volatile.
#[inline(always)]
pub fn get<T>(word: &mut T) -> T {
    // SAFETY: a reference.
    unsafe { read_volatile(from_mut(word)) }
}

/// Writes as volatile.
#[inline(always)]
pub fn set<T>(word: &mut T, value: T) {
    // SAFETY: a reference.
    unsafe { write_volatile(from_mut(word), value) };
}

/// The same number, of which the compiler knows nothing. Else it leaves out a check that cannot fail, or checks another number
/// that this one was made of, and the verifier does not see that this one is within its bounds.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn opaque(mut number: usize) -> usize {
    // SAFETY: it is only copied to where it is. (Without any instruction two lines of code begin at one, which the kernel refuses.)
    unsafe { core::arch::asm!("{0} = {0}", inout(reg) number) };
    number
}

/// The same number.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn opaque(number: usize) -> usize {
    number
}
