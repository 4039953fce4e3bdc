//! The compiler and linker that build `ebpf/`.
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::{Compiler, Error, Missing, TARGET, linker};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    pub compiler: Compiler,
    pub linker: PathBuf,
}

impl Toolchain {
    /// Returns the first compiler in order of preference that has a linker. The error says what is missing.
    pub fn find() -> Result<Self, Missing> {
        choose(Compiler::all(), linker::find)
    }

    /// Compiles `ebpf_dir` into `target_dir`. Returns the directory of the objects. `target_dir` must not be the outer cargo's
    /// target directory, because the outer cargo locks that directory while it waits for us. Errors and warnings go to standard
    /// error.
    pub fn compile(&self, ebpf_dir: &Path, target_dir: &Path) -> Result<PathBuf, Error> {
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
            let program = cargo.get_program().to_string_lossy().into_owned();
            Error::Start { program, why }
        })?;
        if !status.success() {
            return Err(Error::Refused { toolchain: self.to_string() });
        }
        Ok(target_dir.join(TARGET).join("release"))
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.compiler, self.linker.display())
    }
}

fn choose(
    compilers: impl Iterator<Item = Compiler>,
    linker: impl Fn(u32) -> Option<PathBuf>,
) -> Result<Toolchain, Missing> {
    let mut missing = Missing::Compiler;
    for compiler in compilers {
        if let Some(linker) = linker(compiler.llvm) {
            return Ok(Toolchain { compiler, linker });
        }
        if missing == Missing::Compiler {
            missing = Missing::Linker { llvm: compiler.llvm };
        }
    }
    Err(missing)
}

#[cfg(test)]
mod tests {
    use super::choose;
    use crate::{Compiler, Missing};

    #[test]
    fn without_a_compiler_the_error_names_the_compiler() {
        assert_eq!(choose(std::iter::empty(), |_| None), Err(Missing::Compiler));
    }

    #[test]
    fn without_any_linker_the_error_names_the_linker_of_the_preferred_compiler() {
        let with_core = Compiler { rustc: Some("/usr/bin/rustc".into()), llvm: 22 };
        let compilers = [Compiler { rustc: None, llvm: 23 }, with_core];
        assert_eq!(choose(compilers.into_iter(), |_| None), Err(Missing::Linker { llvm: 23 }));
    }
}
