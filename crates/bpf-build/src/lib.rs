//! Finds the compiler and the linker for the BPF programs and runs them. Build scripts and xtask use this crate:
//!
//! 1. [`compiler`]: finds the compilers on this machine that support `bpfel-unknown-none`;
//! 2. [`linker`]: finds the bpf-linker that can read the output of a compiler;
//! 3. [`toolchain`]: combines a compiler with its linker, and builds `ebpf/`;
//! 4. [`build_script`]: builds `ebpf/` in a build script, and removes debug information from the objects.
#![expect(missing_docs, reason = "only build scripts and xtask use it")]

pub mod build_script;
pub mod compiler;
pub mod linker;
pub mod toolchain;

pub use build_script::for_build_script;
pub use compiler::{Compiler, without_cargo};
pub use toolchain::Toolchain;

/// The BPF target. We support only little-endian hosts, because we cannot test others.
pub const TARGET: &str = "bpfel-unknown-none";
