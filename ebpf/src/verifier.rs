//! What only the verifier needs.

use core::arch::asm;

/// The same number, of which the compiler knows nothing. Else it leaves out a check that cannot fail, or checks another number
/// that this one was made of, and the verifier does not see that this one is within its bounds.
#[inline(always)]
pub fn opaque(mut number: usize) -> usize {
    // SAFETY: it is only copied to where it is. (Without any instruction two lines of code begin at one, which the kernel refuses.)
    unsafe { asm!("{0} = {0}", inout(reg) number) };
    number
}
