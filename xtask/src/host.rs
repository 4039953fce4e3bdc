//! The facts about this machine that `bpf_build::plan` needs. Nothing here changes anything or uses a network.
use std::path::{Path, PathBuf};
use std::process::Command;

use bpf_build::plan::{Apt, Facts, packages};
use bpf_build::{Compiler, Toolchain, linker};

use crate::failure::Failure;
use crate::root::is_on_path;

/// `extra`: packages beside those that cgscope is built with.
pub(crate) fn facts(extra: &[&str], lists_are_new: bool) -> Facts {
    let complete = Toolchain::find().is_ok();
    let compilers: Vec<u32> =
        if complete { Vec::new() } else { Compiler::all().map(|compiler| compiler.llvm).collect() };
    let mut facts = Facts {
        c_compiler: said("cc", &["--version"]).is_some(),
        static_libc: said("cc", &["-print-file-name=libc.a"]).is_some_and(|path| is_file(&path)),
        complete,
        rustup: is_on_path("rustup"),
        roots: compilers.iter().filter_map(|llvm| Some((*llvm, linker::root(*llvm)?))).collect(),
        compilers,
        apt: None,
    };
    if is_on_path("apt-get") {
        facts.apt = Some(apt(&facts, extra, lists_are_new));
    }
    facts
}

/// A compiler that does not find the library prints its bare name.
fn is_file(path: &str) -> bool {
    let path = Path::new(path.trim());
    path.is_absolute() && path.is_file()
}

fn apt(facts: &Facts, extra: &[&str], updated: bool) -> Apt {
    let mut names = packages(&facts.compilers);
    names.extend(extra.iter().map(|name| (*name).to_owned()));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let installed = installed(&dpkg(&names));
    let is_all_there = facts.c_compiler
        && facts.static_libc
        && facts.complete
        && extra.iter().all(|name| installed.iter().any(|installed| installed == name));
    // apt takes half a second to read its lists, which would slow every build.
    let policy = (!is_all_there).then(|| said("apt-cache", &[&["policy"], &names[..]].concat())).flatten();
    let offered = offered(&policy.unwrap_or_default());
    Apt { updated, offered, installed }
}

/// The directory `name` in the user's cache of cgscope, which holds `what`.
pub(crate) fn cache(name: &str, what: &str) -> Result<PathBuf, Failure> {
    linker::cache().map(|cache| cache.join(name)).ok_or_else(|| {
        Failure::Host(format!("{name}: there is no home directory, so {what} have no place; set HOME"))
    })
}

fn dpkg(names: &[&str]) -> String {
    // It fails if one of them is unknown, and reports the others all the same.
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\n"])
        .args(names)
        .output();
    asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The installed packages in the output of dpkg-query.
fn installed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(" installed")).map(str::to_owned).collect()
}

/// The packages with a candidate in the output of `apt-cache policy`.
fn offered(text: &str) -> Vec<String> {
    let mut offered = Vec::new();
    let mut package = "";
    for line in text.lines() {
        if !line.starts_with(' ') {
            package = line.trim_end_matches(':');
        } else if line.trim().strip_prefix("Candidate: ").is_some_and(|version| version != "(none)") {
            offered.push(package.to_owned());
        }
    }
    offered
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    // The output that is parsed above is English.
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{installed, offered};

    #[test]
    fn a_package_that_was_removed_is_not_installed() {
        assert_eq!(installed("tmux installed\nstress-ng config-files\ngcc not-installed\n"), ["tmux"]);
    }

    #[test]
    fn a_package_without_a_candidate_is_not_on_offer() {
        let policy = "\
tmux:
  Installed: (none)
  Candidate: 3.3a-3
  Version table:
     3.3a-3 500
rustc-web:
  Installed: (none)
  Candidate: (none)
  Version table:
";
        assert_eq!(offered(policy), ["tmux"]);
    }
}
