//! Functions that exist only because of the kernel's BPF verifier.

use core::ptr::{from_mut, read_volatile, write_volatile};

/// Reads a word as volatile.
#[inline(always)]
pub fn get<T>(word: &mut T) -> T {
    // SAFETY: the pointer comes from a reference.
    unsafe { read_volatile(from_mut(word)) }
}

/// Writes a word as volatile.
#[inline(always)]
pub fn set<T>(word: &mut T, value: T) {
    // SAFETY: the pointer comes from a reference.
    unsafe { write_volatile(from_mut(word), value) };
}

/// Returns `number` and hides its value from the compiler. Without this, the compiler may remove a bounds check that cannot fail,
/// or apply it to another number. Then the verifier would not see that `number` is within its bounds.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn opaque(mut number: usize) -> usize {
    // SAFETY: the register is only copied to itself. (Without any instruction, two source lines would start at the same
    // instruction, which the kernel rejects.)
    unsafe { core::arch::asm!("{0} = {0}", inout(reg) number) };
    number
}

/// Returns `number`.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn opaque(number: usize) -> usize {
    number
}

/// Returns the entry at `index` modulo the length of the array, a power of two. The mask shows the verifier that the index is in
/// bounds.
#[inline(always)]
pub fn wrapped<T, const N: usize>(array: &mut [T; N], index: u64) -> &mut T {
    const { assert!(N.is_power_of_two()) };
    // SAFETY: the mask keeps the index within the array.
    unsafe { &mut *array.as_mut_ptr().add(index as usize & (N - 1)) }
}

/// Adds to a word atomically. It is written in assembly, because core has no `fetch_add` for targets without compare-and-swap
/// (BPF before Linux 5.12).
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn add_atomic(sum: &mut u64, value: u64) {
    // SAFETY: the word is a `u64` reference, so it is valid and aligned.
    unsafe {
        core::arch::asm!("lock *(u64 *)({sum} + 0) += {value}", sum = in(reg) sum, value = in(reg) value);
    };
}

/// Adds to a word, without atomic instructions. Each test has only one thread.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn add_atomic(sum: &mut u64, value: u64) {
    *sum = sum.wrapping_add(value);
}

/// Adds to half a word atomically. The registers are named, because the class of 32-bit registers is not always available.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn add_atomic_half(sum: &mut u32, value: u32) {
    // SAFETY: the word is a `u32` reference, so it is valid and aligned.
    unsafe {
        core::arch::asm!("lock *(u32 *)(r2 + 0) += w1", in("r2") sum, in("r1") value);
    };
}

/// Adds to half a word, without atomic instructions. Each test has only one thread.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn add_atomic_half(sum: &mut u32, value: u32) {
    *sum = sum.wrapping_add(value);
}

/// Swaps a word atomically. It is written in assembly, because core has no atomics for targets without compare-and-swap (BPF
/// before Linux 5.12).
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn exchange(word: &mut u64, value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the word is a `u64` reference, so it is valid and aligned.
    unsafe {
        core::arch::asm!("{value} = xchg_64({word} + 0, {value})", word = in(reg) word, value = inout(reg) value);
    };
    value
}

/// Swaps a word, without atomic instructions. Each test has only one thread.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn exchange(word: &mut u64, value: u64) -> u64 {
    core::mem::replace(word, value)
}

/// Swaps half a word atomically, see [`add_atomic_half`].
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn exchange_half(word: &mut u32, value: u32) -> u32 {
    let mut value = value;
    // SAFETY: the word is a `u32` reference, so it is valid and aligned.
    unsafe {
        core::arch::asm!("w1 = xchg32_32(r2 + 0, w1)", in("r2") word, inout("r1") value);
    };
    value
}

/// Swaps half a word, without atomic instructions. Each test has only one thread.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn exchange_half(word: &mut u32, value: u32) -> u32 {
    core::mem::replace(word, value)
}

/// Replaces a word atomically if it has the value `expected`. Returns the earlier value.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub fn compare_exchange(word: &mut u64, expected: u64, value: u64) -> u64 {
    let mut before = expected;
    // SAFETY: the word is a `u64` reference, so it is valid and aligned.
    unsafe {
        core::arch::asm!(
            "r0 = cmpxchg_64({word} + 0, r0, {value})",
            word = in(reg) word, value = in(reg) value, inout("r0") before
        );
    };
    before
}

/// Replaces a word if it has the value `expected`, without atomic instructions. Each test has only one thread.
#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
pub fn compare_exchange(word: &mut u64, expected: u64, value: u64) -> u64 {
    let before = *word;
    if before == expected {
        *word = value;
    }
    before
}
