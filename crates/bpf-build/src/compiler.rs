//! Who can compile for `bpfel-unknown-none`.
//!
//! The target is not one that rustup hands out, so `core` comes from elsewhere: compiled on the spot from
//! nightly's rust-src, or shipped by a distribution beside its own rustc.
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{TARGET, without_cargo};

/// Where a distribution puts its compiler, also where rustup's comes first on PATH.
const OF_THE_DISTRIBUTION: &str = "/usr/bin/rustc";

/// A compiler that can make the BPF side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiler {
    /// rustup's nightly, which has rust-src and builds `core` itself.
    Nightly {
        /// The release of LLVM in it.
        llvm: u32,
    },
    /// A rustc that has `core` for the target in its sysroot.
    WithCore {
        /// Its path.
        rustc: PathBuf,
        /// The release of LLVM in it.
        llvm: u32,
    },
}

impl Compiler {
    /// All that are here, the preferred first.
    pub fn all() -> impl Iterator<Item = Self> {
        // Nightly is what aya's users have, and what its authors test with.
        nightly().into_iter().chain(rustcs().into_iter().filter_map(|rustc| with_core(&rustc)))
    }

    /// The release of LLVM in it: the linker must have the same or a later one to read what it writes.
    pub fn llvm(&self) -> u32 {
        match self {
            Self::Nightly { llvm } | Self::WithCore { llvm, .. } => *llvm,
        }
    }

    /// The `cargo build` that uses it, without what is the same for all.
    pub(crate) fn cargo_build(&self) -> Command {
        match self {
            Self::Nightly { .. } => {
                let mut cargo = in_nightly("cargo");
                cargo.args(["build", "-Z", "build-std=core"]);
                cargo
            }
            Self::WithCore { rustc, .. } => {
                let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
                // RUSTC_BOOTSTRAP: aya-ebpf needs unstable features, and this compiler is a stable one.
                without_cargo(&mut cargo).arg("build").env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                cargo
            }
        }
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nightly { llvm } => write!(f, "rustup's nightly (LLVM {llvm})"),
            Self::WithCore { rustc, llvm } => write!(f, "{} (LLVM {llvm})", rustc.display()),
        }
    }
}

fn nightly() -> Option<Compiler> {
    // Asked for first: `rustup run` may install a toolchain that is not there, and nobody asked for that.
    let toolchains = said(without_cargo(&mut Command::new("rustup")).args(["toolchain", "list"]))?;
    if !toolchains.lines().any(is_nightly) {
        return None;
    }
    let sysroot = said(in_nightly("rustc").args(["--print", "sysroot"]))?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/Cargo.toml");
    if !core.is_file() {
        return None;
    }
    let llvm = llvm_of(&said(in_nightly("rustc").arg("-vV"))?)?;
    Some(Compiler::Nightly { llvm })
}

/// Whether a line of `rustup toolchain list` is the nightly itself, not one of a certain day.
fn is_nightly(line: &str) -> bool {
    line.strip_prefix("nightly-").is_some_and(|host| !host.starts_with(|c: char| c.is_ascii_digit()))
}

fn in_nightly(program: &str) -> Command {
    let mut rustup = Command::new("rustup");
    without_cargo(&mut rustup).args(["run", "nightly", program]);
    rustup
}

/// Every rustc that may be one of a distribution, each once.
fn rustcs() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from(OF_THE_DISTRIBUTION)];
    let path = env::var_os("PATH").unwrap_or_default();
    for rustc in env::split_paths(&path).map(|dir| dir.join("rustc")) {
        if rustc.is_file() && !found.contains(&rustc) {
            found.push(rustc);
        }
    }
    found
}

fn with_core(rustc: &Path) -> Option<Compiler> {
    let ask = |arguments: &[&str]| said(without_cargo(&mut Command::new(rustc)).args(arguments));
    let sysroot = ask(&["--print", "sysroot"])?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
    let has_core = libraries
        .read_dir()
        .ok()?
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"));
    if !has_core {
        return None;
    }
    let llvm = llvm_of(&ask(&["-vV"])?)?;
    Some(Compiler::WithCore { rustc: rustc.to_owned(), llvm })
}

/// What a program writes on standard output; `None` if it is not there or not content.
pub(crate) fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The release of LLVM in what `rustc -vV` writes.
fn llvm_of(version: &str) -> Option<u32> {
    let line = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{is_nightly, llvm_of};

    #[test]
    fn a_nightly_of_a_certain_day_is_not_the_nightly() {
        assert!(is_nightly("nightly-x86_64-unknown-linux-gnu (active)"));
        assert!(!is_nightly("nightly-2026-05-20-x86_64-unknown-linux-gnu"));
        assert!(!is_nightly("stable-x86_64-unknown-linux-gnu"));
    }

    #[test]
    fn the_release_of_llvm_is_read_from_the_version_of_the_compiler() {
        let version =
            "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(llvm_of(version), Some(22));
    }

    #[test]
    fn a_compiler_that_does_not_tell_its_llvm_has_none() {
        assert_eq!(llvm_of("rustc 1.96.0\nLLVM version: unknown\n"), None);
        assert_eq!(llvm_of(""), None);
    }
}
