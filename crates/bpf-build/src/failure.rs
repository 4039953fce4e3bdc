//! What can go wrong, as data; in words: what is missing, what that prevents, what to do.
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::linker;

/// What is not on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No compiler that has `core` for the BPF target.
    Compiler,
    /// A compiler, but no linker that reads what it writes.
    Linker {
        /// The LLVM release of the compiler, which the linker must share.
        llvm: u32,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiler => f.write_str(
                "neither rustup's nightly with rust-src nor a rustc with `core` for bpfel-unknown-none is here, \
                 so the kernel side cannot be compiled; `cargo xtask setup` installs one",
            ),
            Self::Linker { llvm } => write!(
                f,
                "no bpf-linker {} for LLVM {llvm} starts here, so the kernel side cannot be linked; \
                 `cargo xtask setup` builds it",
                linker::VERSION
            ),
        }
    }
}

/// Why there are no objects.
#[derive(Debug)]
pub enum Failure {
    /// There is nothing to compile with.
    Missing(Missing),
    /// A program did not start.
    Start {
        /// Which one.
        program: String,
        /// What the system said.
        why: io::Error,
    },
    /// The compiler ran and refused; it has said why on standard error.
    Refused {
        /// Who compiled and linked, in words.
        toolchain: String,
    },
    /// A file could not be found, read or written.
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// Cargo did not set a variable that it sets for every build script.
    NoBuildScript {
        /// The variable.
        variable: &'static str,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Start { program, why } => {
                write!(
                    f,
                    "{program} did not start ({why}), so the kernel side cannot be compiled; see that it is on PATH"
                )
            }
            Self::Refused { toolchain } => write!(
                f,
                "the kernel side (ebpf/) did not compile with {toolchain}, so there is nothing to load; \
                 what the compiler said is shown with this"
            ),
            Self::File { path, why } => write!(
                f,
                "{} cannot be used ({why}), so the compiled kernel side cannot be put in place; \
                 see that it exists and is yours",
                path.display()
            ),
            Self::NoBuildScript { variable } => write!(
                f,
                "{variable} is not set, so it is unknown where the objects belong; call this from a build script"
            ),
        }
    }
}

impl std::error::Error for Missing {}
impl std::error::Error for Failure {}

impl From<Missing> for Failure {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Missing};

    #[test]
    fn what_is_missing_is_one_line_that_ends_in_what_to_do() {
        for missing in [Missing::Compiler, Missing::Linker { llvm: 22 }] {
            let words = Failure::from(missing).to_string();
            assert!(words.contains("so the kernel side cannot be"), "{words}");
            assert!(words.contains("; `cargo xtask setup` "), "{words}");
            assert!(!words.contains('\n'), "cargo takes one line per message: {words}");
        }
    }
}
