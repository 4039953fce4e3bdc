//! Installs missing tools, and reports each installation first.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use bpf_build::plan::{Apt, Facts, Plan, Step, packages, plan};
use bpf_build::{Compiler, Toolchain, linker, without_cargo};

use crate::steps::{self, AsRoot, Failure, is_on_path};

/// Packages for tests and measurements: tools to compare with, load generators, terminals.
pub(crate) const TEST_TOOLS: [&str; 12] = [
    "libbpf-tools",
    "sysstat",
    "linux-perf",
    "stress-ng",
    "rt-tests",
    "bpftool",
    "tmux",
    "ffmpeg",
    "procps",
    "curl",
    "util-linux",
    "strace",
];

/// libFuzzer needs a C++ compiler.
pub(crate) const FOR_FUZZ: &str = "g++";

/// promtool and shellcheck for the files in `deploy/`, and tools that create and boot a clean Debian to test the package.
pub(crate) const FOR_DEPLOY: [&str; 4] = ["prometheus", "shellcheck", "mmdebstrap", "systemd-container"];

/// Packages for the virtual machines, and a browser for the HTML report.
const LAB_TOOLS: [&str; 3] = ["qemu-system-x86", "busybox-static", "chromium"];

pub(crate) fn for_lab() -> Vec<&'static str> {
    [&TEST_TOOLS[..], &LAB_TOOLS].concat()
}

/// Installs the build tools of cgscope and the `extra` packages. Prints nothing if nothing is missing.
pub(crate) fn ensure(extra: &[&str]) -> Result<(), Failure> {
    let mut lists_are_new = false;
    let mut done = None;
    loop {
        let facts = facts(extra, lists_are_new);
        let plan = plan(&facts, extra);
        if plan.is_empty() {
            return Ok(());
        }
        announce(&plan, facts.apt.is_some());
        if facts.apt.is_none() || plan.steps.is_empty() {
            let what = if plan.steps.is_empty() { "install them" } else { "run the commands above" };
            return Err(Failure::Host(format!(
                "cannot install the missing tools automatically, so cgscope cannot be built or tested; \
                 {what}, then run this again"
            )));
        }
        if done.as_ref() == Some(&plan) {
            return Err(Failure::Host(
                "the commands above ran, but the tools are still missing, so cgscope cannot be built; \
                 run the commands by hand and read their messages"
                    .into(),
            ));
        }
        for step in &plan.steps {
            carry_out(step, &mut lists_are_new)?;
        }
        done = Some(plan);
    }
}

fn announce(plan: &Plan, is_ours: bool) {
    for sentence in &plan.out_of_reach {
        eprintln!("setup: {sentence}");
    }
    if !plan.steps.is_empty() {
        let who = if is_ours { "running" } else { "run" };
        eprintln!("setup: tools to build or test cgscope are missing; {who}:");
    }
    for step in &plan.steps {
        eprintln!("setup:   {}", in_words(step));
    }
    if let Some(then) = plan.then {
        eprintln!("setup: then: {then}");
    }
}

fn in_words(step: &Step) -> String {
    let words = step.words().join(" ");
    match step.on_path() {
        Some(dir) => format!("PATH={}:$PATH {words}", dir.display()),
        None => words,
    }
}

fn carry_out(step: &Step, lists_are_new: &mut bool) -> Result<(), Failure> {
    let mut is_done = attempt(step)?;
    if !is_done && matches!(step, Step::AptInstall(_)) && !*lists_are_new {
        // Old package lists may name packages that the archive no longer has: update the lists and try again.
        *lists_are_new = true;
        is_done = attempt(&Step::AptUpdate)? && attempt(step)?;
    }
    *lists_are_new |= *step == Step::AptUpdate;
    if is_done {
        return Ok(());
    }
    Err(Failure::Step(format!(
        "`{}` failed, so cgscope cannot be built or tested; see its messages above",
        in_words(step)
    )))
}

/// Runs a step. Returns true if it succeeds.
fn attempt(step: &Step) -> Result<bool, Failure> {
    let words = step.words();
    let Some((program, arguments)) = words.split_first() else { return Ok(true) };
    let mut command = if step.needs_root() {
        let by_hand = format!("run `{}` as root", in_words(step));
        let as_root = AsRoot::become_root("installing packages", &by_hand)?;
        let mut command = as_root.command("env");
        command.args(["DEBIAN_FRONTEND=noninteractive", program.as_str()]);
        command
    } else {
        let mut command = match program.as_str() {
            "cargo" => Command::new(steps::cargo_path()),
            _ => Command::new(program),
        };
        // Run outside the workspace and without the variables of the calling cargo, so that their settings do not apply.
        without_cargo(&mut command).current_dir("/");
        if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
            // Use the toolchain of the calling cargo: the default one may be too old.
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        command
    };
    if let Some(first) = step.on_path() {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([first].into_iter().chain(env::split_paths(&path)));
        command.env("PATH", path.unwrap_or_default());
    }
    eprintln!("setup: {}", in_words(step));
    // Standard output is for results, as in `cargo xtask run hist | less`.
    command.args(arguments).stdout(Stdio::from(io::stderr()));
    Ok(steps::status(&mut command)?.success())
}

/// Collects which tools and packages (`extra` included) this machine has. Changes nothing and uses no network.
fn facts(extra: &[&str], lists_are_new: bool) -> Facts {
    let complete = Toolchain::find().is_ok();
    let compilers: Vec<u32> =
        if complete { Vec::new() } else { Compiler::all().map(|compiler| compiler.llvm).collect() };
    let mut facts = Facts {
        c_compiler: said(Command::new("cc").arg("--version")).is_some(),
        static_libc: said(Command::new("cc").arg("-print-file-name=libc.a"))
            .is_some_and(|path| is_file(&path)),
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

/// True if the compiler found the library. Otherwise it prints the bare name of the library.
fn is_file(path: &str) -> bool {
    let path = Path::new(path.trim());
    path.is_absolute() && path.is_file()
}

fn apt(facts: &Facts, extra: &[&str], updated: bool) -> Apt {
    let mut names = packages(&facts.compilers);
    names.extend(extra.iter().map(|name| (*name).to_owned()));
    // dpkg-query fails if it does not know a package, but it still reports the others.
    let mut dpkg = Command::new("dpkg-query");
    dpkg.args(["--show", "--showformat=${Package} ${db:Status-Status}\n"]).args(&names);
    let found = dpkg.output().map(|output| output.stdout).unwrap_or_default();
    let installed = installed(&String::from_utf8_lossy(&found));
    let is_all_there = facts.c_compiler
        && facts.static_libc
        && facts.complete
        && extra.iter().all(|name| installed.iter().any(|installed| installed == name));
    // apt takes half a second to read its lists, so skip it if everything is installed.
    let query = || said(Command::new("apt-cache").arg("policy").args(&names));
    let policy = (!is_all_there).then(query).flatten();
    let offered = offered(&policy.unwrap_or_default());
    Apt { updated, offered, installed }
}

/// The directory `name` in the user's cache of cgscope. `what` names its contents in the error message.
pub(crate) fn cache(name: &str, what: &str) -> Result<PathBuf, Failure> {
    linker::cache().map(|cache| cache.join(name)).ok_or_else(|| {
        Failure::Host(format!("{name}: HOME is not set, so there is no directory for {what}; set HOME"))
    })
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

fn said(command: &mut Command) -> Option<String> {
    // The functions above parse English output.
    let output = command.env("LC_ALL", "C").output().ok()?;
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
    fn a_package_without_a_candidate_is_not_available() {
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
