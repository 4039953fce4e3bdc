//! A compiler with its linker, and what the two make of `ebpf/`.
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::{Compiler, Error, Missing, TARGET, linker};

/// A compiler and the linker that reads what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Who compiles.
    pub compiler: Compiler,
    /// Who links.
    pub linker: PathBuf,
}

/// The compiled BPF side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    /// cgscope's own programs.
    pub cgscope: PathBuf,
    /// The same hook with nothing in it, to measure against.
    pub empty_hook: PathBuf,
    /// The task iterator of `cgscope sample`.
    pub sample: PathBuf,
}

impl Toolchain {
    /// The preferred compiler among those that have a linker; it starts a few programs, and changes nothing.
    ///
    /// # Errors
    /// What is missing, where no pair is complete.
    pub fn find() -> Result<Self, Missing> {
        choose(Compiler::all(), linker::find)
    }

    /// Compiles `ebpf_dir` into `target_dir`, which must be no other cargo's: that one holds the lock while it
    /// waits for us. Errors and warnings of the compiler go to standard error.
    ///
    /// # Errors
    /// Cargo did not start, or the compiler refused.
    pub fn compile(&self, ebpf_dir: &Path, target_dir: &Path) -> Result<Objects, Error> {
        let mut cargo = self.compiler.cargo_build();
        cargo
            .current_dir(ebpf_dir)
            .args(["--release", "--target", TARGET, "--target-dir"])
            .arg(target_dir)
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker)
            // The linker makes BTF, without which the kernel knows no map of ours, from the debug information.
            .env("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=2\x1f-Clink-arg=--btf")
            // Standard output of a build script is read by cargo as commands.
            .stdout(Stdio::null());
        let status = cargo.status().map_err(|why| Error::Start { program: program_of(&cargo), why })?;
        if !status.success() {
            return Err(Error::Refused { toolchain: self.to_string() });
        }
        let release = target_dir.join(TARGET).join("release");
        Ok(Objects {
            cgscope: release.join("cgscope-bpf"),
            empty_hook: release.join("empty-hook-bpf"),
            sample: release.join("sample-bpf"),
        })
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.compiler, self.linker.display())
    }
}

fn program_of(command: &std::process::Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn choose(
    compilers: impl Iterator<Item = Compiler>,
    linker: impl Fn(u32) -> Option<PathBuf>,
) -> Result<Toolchain, Missing> {
    let mut missing = Missing::Compiler;
    for compiler in compilers {
        if let Some(linker) = linker(compiler.llvm()) {
            return Ok(Toolchain { compiler, linker });
        }
        if missing == Missing::Compiler {
            missing = Missing::Linker { llvm: compiler.llvm() };
        }
    }
    Err(missing)
}

#[cfg(test)]
mod tests {
    use super::choose;
    use crate::{Compiler, Missing};

    #[test]
    fn without_a_compiler_the_compiler_is_what_is_missing() {
        assert_eq!(choose(std::iter::empty(), |_| None), Err(Missing::Compiler));
    }

    #[test]
    fn without_any_linker_the_one_for_the_preferred_compiler_is_missing() {
        let compilers =
            [Compiler::Nightly { llvm: 23 }, Compiler::WithCore { rustc: "/usr/bin/rustc".into(), llvm: 22 }];
        assert_eq!(choose(compilers.into_iter(), |_| None), Err(Missing::Linker { llvm: 23 }));
    }
}
