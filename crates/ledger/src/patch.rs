//! What user space patches into the instructions of the kernel side before it loads them.
//!
//! A constant in read-only data is known to the verifier, which drops dead branches, but each use is still a load at run time, and
//! an addition of what was loaded. The hook reads some 25 kernel fields at each switch. So each read of a field is one instruction,
//! whose place for the offset holds the number of the field until user space replaces it.

/// The offset in the instruction that loads field 0; field `n` has the one above it by `n`. A compiler never emits such an offset:
/// the stack has 512 bytes, and no structure is accessed that far before its beginning.
pub const FIRST_FIELD: i16 = i16::MIN;

/// The constant that stands for the first word of [`Config`](crate::wire::Config), and so on.
pub const FIRST_SETTING: i32 = 0x5c6f_0000;

/// The constant that stands for whether the kernel has field 0, and so on.
pub const FIRST_PRESENCE: i32 = 0x5c70_0000;

/// Returns the number of a field, from the offset of its member in [`Offsets`](crate::Offsets).
pub const fn field(member: usize) -> i32 {
    FIRST_FIELD as i32 + (member / size_of::<u32>()) as i32
}

/// Returns the constant for whether the kernel has a field, from the offset of its member in [`Offsets`](crate::Offsets).
pub const fn presence(member: usize) -> i32 {
    FIRST_PRESENCE + (member / size_of::<u32>()) as i32
}

/// Returns the constant for a setting, from the offset of its member in [`Config`](crate::wire::Config).
pub const fn setting(member: usize) -> i32 {
    FIRST_SETTING + (member / size_of::<u64>()) as i32
}
