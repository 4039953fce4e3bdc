//! Functions that are needed only because of the kernel's BPF verifier.

use core::ptr::{from_mut, read_volatile, write_volatile};

/// Reads a word as volatile.
#[inline(always)]
pub fn get<T>(word: &mut T) -> T {
    // SAFETY: a reference.
    unsafe { read_volatile(from_mut(word)) }
}

/// Writes a word as volatile.
#[inline(always)]
pub fn set<T>(word: &mut T, value: T) {
    // SAFETY: a reference.
    unsafe { write_volatile(from_mut(word), value) };
}

/// Returns the same number, but hides it from the compiler. Otherwise the compiler may remove a check that cannot fail, or check
/// another number from which this one is computed. The verifier would then not see that this one is within its bounds.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn opaque(mut number: usize) -> usize {
    // SAFETY: the register is only copied to itself. (Without any instruction, two source lines would start at the same
    // instruction, which the kernel rejects.)
    unsafe { core::arch::asm!("{0} = {0}", inout(reg) number) };
    number
}

/// Returns the same number.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn opaque(number: usize) -> usize {
    number
}
