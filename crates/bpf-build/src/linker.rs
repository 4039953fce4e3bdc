//! Finds the bpf-linker for a compiler.
//!
//! The compiler writes LLVM bitcode. Only the same LLVM release or a later one can read it. So the user's cache contains one
//! linker for each LLVM release. In the cache, a linker survives `cargo clean` and does not collide with other projects.
use std::path::{Path, PathBuf};
use std::{env, process::Command};

use crate::compiler::output;

/// The release of bpf-linker with which `ebpf/` is tested.
pub const VERSION: &str = "0.13.0";

/// The LLVM releases with which this bpf-linker can be built.
pub const LLVMS: std::ops::RangeInclusive<u32> = 21..=23;

/// Returns a bpf-linker that can be started: our own linker for this LLVM release, or else a linker on PATH.
pub fn find(llvm: u32) -> Option<PathBuf> {
    let ours = root(llvm).map(|root| root.join("bin/bpf-linker"));
    // Our linker can no longer be started if the system's LLVM was removed after the build.
    if let Some(ours) = ours.filter(|path| version(path).is_some()) {
        return Some(ours);
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|dir| dir.join("bpf-linker"))
        .find(|linker| version(linker).is_some_and(|version| is_new_enough(&version)))
}

/// Returns the `--root` directory in which `cargo install` puts our linker.
pub fn root(llvm: u32) -> Option<PathBuf> {
    Some(cache()?.join(format!("bpf-linker-{VERSION}-llvm-{llvm}")))
}

/// Returns the cache directory of cgscope; `None` without a home directory.
pub fn cache() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("cgscope"))
}

fn version(linker: &Path) -> Option<String> {
    output(Command::new(linker).arg("--version"))
}

/// Returns whether a linker on PATH is new enough. bpf-linker does not report its LLVM release. Since this version, its LLVM
/// release is at least 21.
fn is_new_enough(version: &str) -> bool {
    version.split_whitespace().nth(1).and_then(release) >= release(VERSION)
}

/// Parses the first two numbers of a version such as `10.0.2 (Debian ...)`.
pub fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', ' ']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn a_linker_of_our_release_or_a_later_one_is_used() {
        assert!(is_new_enough("bpf-linker 0.13.0\n"));
        assert!(is_new_enough("bpf-linker 0.13.4"));
        assert!(is_new_enough("bpf-linker 1.0.0"));
    }

    #[test]
    fn a_linker_with_an_older_or_unknown_release_is_not_used() {
        assert!(!is_new_enough("bpf-linker 0.9.15"));
        assert!(!is_new_enough("bpf-linker"));
        assert!(!is_new_enough("bpf-linker dev"));
    }
}
