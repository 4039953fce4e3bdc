//! What can go wrong: what is missing, what that prevents, what to do.
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::linker;

/// A program that is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Missing {
    /// No compiler that has `core` for the BPF target.
    #[error(
        "neither rustup's nightly with rust-src nor a rustc with `core` for bpfel-unknown-none is here, \
         so the kernel side cannot be compiled; `cargo xtask setup` installs one"
    )]
    Compiler,
    /// A compiler, but no linker that reads what it writes.
    #[error(
        "no bpf-linker {} for LLVM {llvm} starts here, so the kernel side cannot be linked; \
         `cargo xtask setup` builds it",
        linker::VERSION
    )]
    Linker {
        /// The LLVM release of the compiler, which the linker must share.
        llvm: u32,
    },
}

/// Why there are no objects.
#[derive(Debug, Error)]
pub enum Error {
    /// There is nothing to compile with.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program did not start.
    #[error("{program} did not start ({why}), so the kernel side cannot be compiled; see that it is on PATH")]
    Start {
        /// Which one.
        program: String,
        /// What the system said.
        why: io::Error,
    },
    /// The compiler ran and refused; it has said why on standard error.
    #[error(
        "the kernel side (ebpf/) did not compile with {toolchain}, so there is nothing to load; \
         what the compiler said is shown with this"
    )]
    Refused {
        /// Who compiled and linked, in words.
        toolchain: String,
    },
    /// A file could not be found, read or written.
    #[error(
        "{} cannot be used ({why}), so the compiled kernel side cannot be put in place; \
         see that it exists and is yours",
        path.display()
    )]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// Cargo did not set a variable that it sets for every build script.
    #[error(
        "{variable} is not set, so it is unknown where the objects belong; call this from a build script"
    )]
    NoBuildScript {
        /// The variable.
        variable: &'static str,
    },
}
#[cfg(test)]
mod tests {
    use super::{Error, Missing};

    #[test]
    fn what_is_missing_is_one_line_that_ends_in_what_to_do() {
        for missing in [Missing::Compiler, Missing::Linker { llvm: 22 }] {
            let words = Error::from(missing).to_string();
            assert!(words.contains("so the kernel side cannot be"), "{words}");
            assert!(words.contains("; `cargo xtask setup` "), "{words}");
            assert!(!words.contains('\n'), "cargo takes one line per message: {words}");
        }
    }
}
