//! Finds the compiler and the linker for the BPF programs and runs them. Build scripts and xtask use this crate:
//!
//! 1. [`compiler`]: finds the compilers on this machine that support `bpfel-unknown-none`;
//! 2. [`linker`]: finds the bpf-linker that can read the output of a compiler;
//! 3. [`Toolchain`]: combines a compiler with its linker, and builds `ebpf/`;
//! 4. [`build_script`]: builds `ebpf/` in a build script, and removes debug information from the objects.
#![expect(missing_docs, reason = "only build scripts and xtask use it")]

pub mod build_script;
pub mod compiler;
pub mod linker;

use std::path::{Path, PathBuf};
use std::process::Stdio;

pub use build_script::for_build_script;
pub use compiler::{Compiler, without_cargo};

/// The BPF target. We support only little-endian hosts, because we cannot test others.
pub const TARGET: &str = "bpfel-unknown-none";

/// The compiler and linker that build `ebpf/`.
#[derive(Debug)]
pub struct Toolchain {
    pub compiler: Compiler,
    pub linker: PathBuf,
}

impl Toolchain {
    /// Returns the first compiler in order of preference that has a linker. The error says what is missing.
    pub fn find() -> Result<Self, String> {
        choose(Compiler::all(), linker::find)
    }

    /// Compiles `ebpf_dir` into `target_dir`. Returns the directory of the objects. `target_dir` must not be the outer cargo's
    /// target directory, because the outer cargo locks that directory while it waits for us. Errors and warnings go to standard
    /// error.
    pub fn compile(&self, ebpf_dir: &Path, target_dir: &Path) -> Result<PathBuf, String> {
        let mut cargo = self.compiler.cargo_build();
        cargo
            .current_dir(ebpf_dir)
            .args(["--release", "--target", TARGET, "--target-dir"])
            .arg(target_dir)
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker)
            // The linker must generate BTF from debug information, because the kernel needs BTF for our maps.
            .env("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=2\x1f-Clink-arg=--btf")
            // If this cargo wrote to standard output, the outer cargo would read the text as commands of the build script.
            .stdout(Stdio::null());
        let status = cargo.status().map_err(|why| {
            let program = cargo.get_program().display();
            format!(
                "{program} did not start ({why}), so the kernel side cannot be compiled; check that it is on PATH"
            )
        })?;
        // The compiler has already printed the reason on standard error.
        if !status.success() {
            let (compiler, linker) = (&self.compiler, self.linker.display());
            let rustc = compiler.rustc.as_ref().map(|rustc| rustc.display().to_string());
            return Err(format!(
                "the kernel side (ebpf/) did not compile with {} (LLVM {}) and {linker}, so there is nothing to load; the \
                 compiler's errors are shown with this one",
                rustc.as_deref().unwrap_or("rustup's nightly"),
                compiler.llvm
            ));
        }
        Ok(target_dir.join(TARGET).join("release"))
    }
}

fn choose(
    compilers: impl Iterator<Item = Compiler>,
    linker: impl Fn(u32) -> Option<PathBuf>,
) -> Result<Toolchain, String> {
    let mut first = None;
    for compiler in compilers {
        if let Some(linker) = linker(compiler.llvm) {
            return Ok(Toolchain { compiler, linker });
        }
        first.get_or_insert(compiler.llvm);
    }
    Err(match first {
        None => format!(
            "this machine has neither rustup's nightly with rust-src nor a rustc with `core` for {TARGET}, so the kernel side \
             cannot be compiled; `cargo xtask setup` installs one"
        ),
        Some(llvm) => format!(
            "this machine has no working bpf-linker {} for LLVM {llvm}, so the kernel side cannot be linked; \
             `cargo xtask setup` builds it",
            linker::VERSION
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::choose;
    use crate::Compiler;

    /// cargo takes one line for each error of a build script.
    fn is_one_line_with_a_remedy(error: &str) -> bool {
        !error.contains('\n')
            && error.contains("so the kernel side cannot be")
            && error.contains("; `cargo xtask setup` ")
    }

    #[test]
    fn without_a_compiler_the_error_names_the_compiler() {
        let error = choose(std::iter::empty(), |_| None).expect_err("there is no compiler");
        assert!(error.contains("nor a rustc with") && is_one_line_with_a_remedy(&error), "{error}");
    }

    #[test]
    fn without_any_linker_the_error_names_the_linker_of_the_preferred_compiler() {
        let with_core = Compiler { rustc: Some("/usr/bin/rustc".into()), llvm: 22 };
        let compilers = [Compiler { rustc: None, llvm: 23 }, with_core];
        let error = choose(compilers.into_iter(), |_| None).expect_err("there is no linker");
        assert!(error.contains("for LLVM 23,") && is_one_line_with_a_remedy(&error), "{error}");
    }
}
