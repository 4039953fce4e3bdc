//! Finds the compiler and linker for the BPF side and runs them: used by build scripts and by xtask.
//!
//! 1. [`compiler`]: who can compile for `bpfel-unknown-none`;
//! 2. [`linker`]: the bpf-linker that reads what that compiler writes;
//! 3. [`toolchain`]: the pair of them, and what it makes of `ebpf/`;
//! 4. [`build_script`]: the same from within a build script;
//! 5. [`plan`]: what to install where something is missing, as a pure function of facts.
pub mod build_script;
pub mod compiler;
mod environment;
mod error;
pub mod linker;
pub mod plan;
pub mod toolchain;

pub use build_script::for_build_script;
pub use compiler::Compiler;
pub use environment::without_cargo;
pub use error::{Error, Missing};
pub use toolchain::{Objects, Toolchain};

/// What the BPF side is compiled for. Little-endian hosts only: the only ones we can test on.
pub const TARGET: &str = "bpfel-unknown-none";
