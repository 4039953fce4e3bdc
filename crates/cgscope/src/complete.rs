//! Completion of names in the shell: units, pods, containers and cgroups of this host.
//!
//! The shell runs `cgscope` with [`VARIABLE`] set. Names of pods and containers need access to the container runtime.

use std::{collections::BTreeSet, ffi::OsStr, io};

use cgscope_model::{CgroupName, selection::Selector};
use clap::{Arg, Command};
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::{Bash, EnvCompleter, Fish, Zsh},
};

use crate::containers;

const VARIABLE: &str = "COMPLETE";

/// The file of each shell in a package, and who writes it.
pub const SHELLS: [(&str, &dyn EnvCompleter); 3] =
    [("cgscope.bash", &Bash), ("_cgscope", &Zsh), ("cgscope.fish", &Fish)];

/// Answers the shell and ends the process, if a shell asks. `cli` is the command line.
pub fn answer(cli: fn() -> Command) {
    CompleteEnv::with_factory(cli).var(VARIABLE).complete();
}

/// Writes the lines that make a shell ask.
pub fn write(shell: &dyn EnvCompleter, out: &mut impl io::Write) -> io::Result<()> {
    shell.write_registration(VARIABLE, "cgscope", "cgscope", "cgscope", out)
}

/// Adds the completion of a selector's values to its argument.
pub fn of_selector(selector: &'static Selector, argument: Arg) -> Arg {
    match selector.name {
        "cgroup" | "unit" | "pod" | "container" => {
            argument.add(ArgValueCompleter::new(|typed: &OsStr| candidates(selector.name, typed)))
        }
        _ => argument,
    }
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
    all.into_iter().filter(|name| name.starts_with(typed)).map(CompletionCandidate::new).collect()
}
