//! What an inner cargo or compiler must not inherit.
//!
//! A build script and a `cargo run` hand on what the *outer* cargo decided: its compiler, its flags, its
//! wrapper (clippy sets one), its toolchain. Followed by the inner one, each of them compiles the BPF side with
//! the wrong compiler, or for the wrong machine.
use std::env;
use std::process::Command;

/// Settings of the user's own cargo that hold for the inner one too: where things are fetched from and kept,
/// how progress looks, and the job server, without which two cargos would run twice as many compilers.
const KEPT: [&str; 7] = [
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "CARGO_TERM_",
    "CARGO_MAKEFLAGS",
];

/// What cargo sets for a build script without a prefix of its own.
const OF_BUILD_SCRIPTS: [&str; 7] =
    ["OUT_DIR", "TARGET", "HOST", "PROFILE", "OPT_LEVEL", "DEBUG", "NUM_JOBS"];

/// Takes out of the command's environment what an outer cargo put there.
pub fn without_cargo(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_from_cargo) {
            command.env_remove(name);
        }
    }
    command
}

fn is_from_cargo(name: &str) -> bool {
    if KEPT.iter().any(|kept| name.starts_with(kept)) {
        return false;
    }
    OF_BUILD_SCRIPTS.contains(&name)
        || name == "RUSTUP_TOOLCHAIN"
        || ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::is_from_cargo;

    #[test]
    fn the_compiler_the_flags_and_the_wrapper_of_the_outer_cargo_are_not_handed_on() {
        for name in ["RUSTC", "RUSTC_WORKSPACE_WRAPPER", "CARGO", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"] {
            assert!(is_from_cargo(name), "{name}");
        }
        for name in ["RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "TARGET", "OUT_DIR"] {
            assert!(is_from_cargo(name), "{name}");
        }
    }

    #[test]
    fn where_cargo_fetches_from_and_its_job_server_are_handed_on() {
        for name in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_REGISTRIES_MINE_TOKEN", "CARGO_MAKEFLAGS"] {
            assert!(!is_from_cargo(name), "{name}");
        }
        for name in ["PATH", "HOME", "RUSTUP_HOME", "TARGETS_OF_SOMEONE"] {
            assert!(!is_from_cargo(name), "{name}");
        }
    }
}
