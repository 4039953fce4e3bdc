//! Shell completion of units, pods, containers and cgroups of this host.
//!
//! The shell runs `cgscope` with [`VARIABLE`] set. Names of pods and containers require access to the container runtime.

use std::{collections::BTreeSet, ffi::OsStr};

use cgscope_model::{CgroupName, selection::Selector};
use clap::{Arg, Command};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::{Bash, EnvCompleter, Fish, Zsh},
};

use crate::containers;

pub const VARIABLE: &str = "COMPLETE";

/// For each shell, the name of its completion file in a package, and the writer of that file.
pub const SHELLS: [(&str, &dyn EnvCompleter); 3] =
    [("cgscope.bash", &Bash), ("_cgscope", &Zsh), ("cgscope.fish", &Fish)];

/// Answers a shell that requests completions, and then ends the process. Otherwise does nothing. `cli` is the command line.
pub fn answer(cli: fn() -> Command) {
    CompleteEnv::with_factory(cli).var(VARIABLE).complete();
}

pub fn of_selector(selector: &'static Selector, argument: Arg) -> Arg {
    let is_completed = matches!(selector.name, "cgroup" | "unit" | "pod" | "container");
    let complete = |typed: &OsStr| candidates(selector.name, typed);
    if is_completed { argument.add(ArgValueCompleter::new(complete)) } else { argument }
}

fn candidates(kind: &str, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_str().unwrap_or_default();
    let Ok(runtimes) = containers::runtimes("auto") else { return Vec::new() };
    let (cgroups, names) = containers::on_host(runtimes);
    let paths = || cgroups.iter().map(|(_, path)| path.to_string());
    let all: BTreeSet<String> = match kind {
        "cgroup" => paths().collect(),
        "unit" => paths().filter_map(|path| CgroupName::of(&path).unit).collect(),
        "pod" => names.pods(),
        _ => names.containers(),
    };
    let offered = all.into_iter().filter(|name| name.starts_with(typed) && is_harmless(name));
    offered.map(CompletionCandidate::new).collect()
}

/// Returns whether no shell gives any of the characters a meaning. Any user may name a cgroup, and bash inserts completions
/// without quotes: a name with `;` or `$(` would add a command to a command line of root. Names with a backslash must be typed,
/// because bash would drop the backslash (systemd writes a hyphen in cgroup paths as `\x2d`).
fn is_harmless(name: &str) -> bool {
    let is_harmless = |char: char| char.is_ascii_alphanumeric() || "/_.:@%+,-".contains(char);
    !name.starts_with('-') && name.chars().all(is_harmless)
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn names_with_a_meaning_for_a_shell_are_not_offered() {
        let harmless = [
            "/system.slice/cron.service",
            "/user.slice/user-0.slice/user@0.service",
            "/kubepods/besteffort/pod3f2a/4c1b",
            "namespace/pod-7d9f",
            "/a_b+c,d:e%f",
        ];
        assert!(harmless.iter().all(|name| is_harmless(name)));
        let hostile = "`$&|;<>(){}[]*?!#~=^'\"\\ \t\n\r\u{1b}\u{7f}\u{202e}\u{e9}";
        assert!(hostile.chars().all(|char| !is_harmless(&format!("/a{char}b"))));
        assert!(!is_harmless("-o"));
    }
}
