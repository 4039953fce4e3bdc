//! Finds compilers for `bpfel-unknown-none`.
//!
//! rustup does not provide `core` for this target. `core` comes either from the rust-src of nightly, or from a distribution that
//! ships its own rustc.
use std::path::{Path, PathBuf};
use std::{env, ffi::OsString, process::Command};

use crate::TARGET;

/// The distribution's compiler. It is tried even if rustup's compiler comes first on PATH.
const DISTRIBUTIONS_RUSTC: &str = "/usr/bin/rustc";

/// A compiler that can build the BPF programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// The path of a rustc whose sysroot contains `core` for the target. `None` means rustup's nightly, which builds `core` from
    /// rust-src.
    pub rustc: Option<PathBuf>,
    /// The LLVM release that the compiler uses. A linker can read the compiler's output only if the linker uses the same LLVM
    /// release or a later one.
    pub llvm: u32,
}

impl Compiler {
    /// Returns all compilers on this machine. Nightly comes first, because users of aya have it and the authors of aya test with
    /// it.
    pub fn all() -> impl Iterator<Item = Self> {
        nightly().into_iter().chain(rustcs().into_iter().filter_map(|rustc| with_core(&rustc)))
    }

    pub(crate) fn cargo_build(&self) -> Command {
        let Some(rustc) = &self.rustc else {
            let mut cargo = in_nightly("cargo");
            cargo.args(["build", "-Z", "build-std=core"]);
            return cargo;
        };
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
        // RUSTC_BOOTSTRAP is needed, because this compiler is stable and aya-ebpf uses unstable features.
        without_cargo(&mut cargo).arg("build").env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
        cargo
    }
}

fn nightly() -> Option<Compiler> {
    // The list is read first, because `rustup run` may install a missing toolchain that nobody requested.
    let toolchains = output(without_cargo(&mut Command::new("rustup")).args(["toolchain", "list"]))?;
    if !toolchains.lines().any(is_nightly) {
        return None;
    }
    let sysroot = output(in_nightly("rustc").args(["--print", "sysroot"]))?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/Cargo.toml");
    if !core.is_file() {
        return None;
    }
    let llvm = llvm_of(&output(in_nightly("rustc").arg("-vV"))?)?;
    Some(Compiler { rustc: None, llvm })
}

/// Returns whether a line of `rustup toolchain list` is the current nightly. The nightly of a certain day does not count.
fn is_nightly(line: &str) -> bool {
    line.strip_prefix("nightly-").is_some_and(|host| !host.starts_with(|c: char| c.is_ascii_digit()))
}

fn in_nightly(program: &str) -> Command {
    let mut rustup = Command::new("rustup");
    without_cargo(&mut rustup).args(["run", "nightly", program]);
    rustup
}

fn rustcs() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from(DISTRIBUTIONS_RUSTC)];
    let path = env::var_os("PATH").unwrap_or_default();
    found.extend(env::split_paths(&path).map(|dir| dir.join("rustc")).filter(|rustc| rustc.is_file()));
    found
}

fn with_core(rustc: &Path) -> Option<Compiler> {
    let ask = |arguments: &[&str]| output(without_cargo(&mut Command::new(rustc)).args(arguments));
    let sysroot = ask(&["--print", "sysroot"])?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
    let mut files = libraries.read_dir().ok()?.flatten().map(|entry| entry.file_name());
    let has_core = files.any(|name| name.to_string_lossy().starts_with("libcore-"));
    if !has_core {
        return None;
    }
    let llvm = llvm_of(&ask(&["-vV"])?)?;
    Some(Compiler { rustc: Some(rustc.to_owned()), llvm })
}

/// Returns the standard output of a program; `None` if the program fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Parses the LLVM release in the output of `rustc -vV`.
fn llvm_of(version: &str) -> Option<u32> {
    let line = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    line.split('.').next()?.parse().ok()
}

/// Variables that an inner cargo keeps: for its sources and directories, its progress bar, and the job server. Without the job
/// server, the two cargos together would run twice as many compilers.
const KEPT: &str =
    "CARGO_HOME CARGO_HTTP_ CARGO_NET_ CARGO_REGISTR CARGO_SOURCE_ CARGO_TERM_ CARGO_MAKEFLAGS";

/// Further variables that cargo sets for a build script. They have no common prefix.
const BUILD_SCRIPTS: [&str; 7] = ["OUT_DIR", "TARGET", "HOST", "PROFILE", "OPT_LEVEL", "DEBUG", "NUM_JOBS"];

/// Removes the outer cargo's variables from the environment of a command. Otherwise an inner cargo would use the outer cargo's
/// compiler, flags, wrapper (clippy sets one) or toolchain. It would compile the BPF programs with the wrong compiler or for the
/// wrong machine.
pub fn without_cargo(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_from_cargo) {
            command.env_remove(name);
        }
    }
    command
}

fn is_from_cargo(name: &str) -> bool {
    if KEPT.split(' ').any(|kept| name.starts_with(kept)) {
        return false;
    }
    BUILD_SCRIPTS.contains(&name)
        || name == "RUSTUP_TOOLCHAIN"
        || ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::{is_from_cargo, is_nightly, llvm_of};

    #[test]
    fn a_dated_nightly_is_not_the_current_nightly() {
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
    fn a_compiler_without_an_llvm_version_is_not_used() {
        assert_eq!(llvm_of("rustc 1.96.0\nLLVM version: unknown\n"), None);
        assert_eq!(llvm_of(""), None);
    }

    #[test]
    fn compiler_settings_of_the_outer_cargo_are_removed() {
        for name in ["RUSTC", "RUSTC_WORKSPACE_WRAPPER", "CARGO", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"] {
            assert!(is_from_cargo(name), "{name}");
        }
        for name in ["RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "TARGET", "OUT_DIR"] {
            assert!(is_from_cargo(name), "{name}");
        }
    }

    #[test]
    fn network_settings_and_the_job_server_of_cargo_are_kept() {
        for name in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_REGISTRIES_MINE_TOKEN", "CARGO_MAKEFLAGS"] {
            assert!(!is_from_cargo(name), "{name}");
        }
        for name in ["PATH", "HOME", "RUSTUP_HOME", "TARGETS_OF_SOMEONE"] {
            assert!(!is_from_cargo(name), "{name}");
        }
    }
}
