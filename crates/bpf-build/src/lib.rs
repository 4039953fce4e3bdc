//! Finds the compiler and linker for the kernel side and runs them, for build scripts and xtask:
//!
//! 1. [`compiler`]: which compilers on this machine support `bpfel-unknown-none`;
//! 2. [`linker`]: the bpf-linker that can read a compiler's output;
//! 3. [`toolchain`]: a compiler with its linker, which builds `ebpf/`;
//! 4. [`build_script`]: the build of `ebpf/` in a build script, with objects without debug information.
#![expect(missing_docs, reason = "only build scripts and xtask use it")]

pub mod build_script;
pub mod compiler;
pub mod linker;
pub mod toolchain;

use std::{io, path::PathBuf};

pub use build_script::for_build_script;
pub use compiler::{Compiler, without_cargo};
pub use toolchain::Toolchain;

/// The BPF target. It supports only little-endian hosts, because we cannot test others.
pub const TARGET: &str = "bpfel-unknown-none";

/// A program that is not on this machine.
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
    /// The compiler has printed the reason on standard error.
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
