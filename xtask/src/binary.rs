//! Builds and runs the optimised binary.
use std::process::{Command, Stdio};
use std::{os::unix::process::CommandExt, path::PathBuf};

use crate::lab::Arch;
use crate::setup;
use crate::steps::{self, AsRoot, Failure};

/// The path at which scripts expect the binary.
const PLACE: &str = "target/release/cgscope";

/// Builds cgscope for this machine, also as [`PLACE`].
pub(crate) fn build() -> Result<PathBuf, Failure> {
    build_for(None)
}

/// Builds cgscope for an architecture; `None`: for this machine.
pub(crate) fn build_for(arch: Option<Arch>) -> Result<PathBuf, Failure> {
    setup::ensure(&[])?;
    // A static binary also runs in a bare VM, in a container, and on a host with another libc. Only the last call of rustc gets
    // this flag. If the whole workspace had this flag, the dynamic libraries of derive macros could not be built.
    let mut cargo = steps::cargo(&["rustc", "--release", "--package", "cgscope", "--bin", "cgscope"]);
    for_target(&mut cargo, arch)?;
    cargo.args(["--message-format=json-render-diagnostics", "--", "-C", "target-feature=+crt-static"]);
    let built = named(&executables(&mut cargo)?, "cgscope")?;
    if arch.and_then(Arch::target).is_some() {
        return Ok(built);
    }
    let place = steps::workspace().join(PLACE);
    // Cargo's target directory may be elsewhere, so the binary is copied. `--compare` skips the copy if
    // nothing has changed, so that the binary does not become newer than its packages.
    if built != place {
        steps::output(Command::new("install").args(["-D", "--compare"]).args([&built, &place]))?;
    }
    Ok(place)
}

/// Makes cargo build for an architecture, and installs the linker for it.
pub(crate) fn for_target(cargo: &mut Command, arch: Option<Arch>) -> Result<(), Failure> {
    if let Some(arch) = arch
        && let Some(target) = arch.target()
    {
        let variable = format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase());
        cargo.args(["--target", target]).env(variable, arch.cross_linker()?);
    }
    Ok(())
}

/// Runs a cargo build that prints its messages as JSON. Returns the paths of all executables that it produced.
pub(crate) fn executables(cargo: &mut Command) -> Result<Vec<PathBuf>, Failure> {
    let messages = steps::output(cargo.stderr(Stdio::inherit()))?;
    Ok(messages.lines().filter_map(executable).collect())
}

/// Returns the executable with this name, without the hash that cargo appends to the names of tests.
pub(crate) fn named(executables: &[PathBuf], name: &str) -> Result<PathBuf, Failure> {
    let is_it = |path: &&PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.split('-').next() == Some(name)
    };
    executables.iter().find(is_it).cloned().ok_or_else(|| {
        Failure::Step(format!(
            "build: cargo did not report the path of the executable `{name}`; run `cargo build`"
        ))
    })
}

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let binary = build()?;
    let as_root = AsRoot::become_root("cgscope", &format!("run {} as root", binary.display()))?;
    let mut command = as_root.command(&binary);
    if arguments.is_empty() {
        command.arg("top");
    }
    let why = command.args(arguments).exec();
    Err(steps::did_not_start(&command, &why))
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::executable;

    #[test]
    fn the_executable_is_read_from_cargos_message() {
        let message =
            r#"{"reason":"compiler-artifact","executable":"/a \"b\"/release/cgscope","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from(r#"/a "b"/release/cgscope"#)));
    }

    #[test]
    fn a_library_has_no_executable() {
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null,"fresh":true}"#), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
