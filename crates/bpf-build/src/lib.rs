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

use std::{io, path::PathBuf};

pub use build_script::for_build_script;
pub use compiler::{Compiler, without_cargo};
pub use toolchain::Toolchain;

/// The BPF target. We support only little-endian hosts, because we cannot test others.
pub const TARGET: &str = "bpfel-unknown-none";

/// A program that this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error(
        "this machine has neither rustup's nightly with rust-src nor a rustc with `core` for bpfel-unknown-none, \
         so the kernel side cannot be compiled; `cargo xtask setup` installs one"
    )]
    Compiler,
    #[error(
        "this machine has no working bpf-linker {} for LLVM {llvm}, so the kernel side cannot be linked; \
         `cargo xtask setup` builds it",
        linker::VERSION
    )]
    Linker { llvm: u32 },
}

/// The reason why the objects could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error(
        "{program} did not start ({why}), so the kernel side cannot be compiled; check that it is on PATH"
    )]
    Start { program: String, why: io::Error },
    /// The compiler has already printed the reason on standard error.
    #[error(
        "the kernel side (ebpf/) did not compile with {toolchain}, so there is nothing to load; \
         the compiler's errors are shown with this one"
    )]
    Refused { toolchain: String },
    #[error(
        "cannot access {} ({why}), so the compiled kernel side cannot be copied; \
         check that it exists and belongs to you",
        path.display()
    )]
    File { path: PathBuf, why: io::Error },
    #[error(
        "{variable} is not set, so the directory for the objects is unknown; call this from a build script"
    )]
    NoBuildScript { variable: &'static str },
}

#[cfg(test)]
mod tests {
    use super::{Error, Missing};

    #[test]
    fn an_error_about_a_missing_program_is_one_line_and_ends_with_the_remedy() {
        for missing in [Missing::Compiler, Missing::Linker { llvm: 22 }] {
            let words = Error::from(missing).to_string();
            assert!(words.contains("so the kernel side cannot be"), "{words}");
            assert!(words.contains("; `cargo xtask setup` "), "{words}");
            assert!(!words.contains('\n'), "cargo takes one line per message: {words}");
        }
    }
}
