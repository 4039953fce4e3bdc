//! Installs what is missing, after saying so.
use std::env;
use std::io;
use std::process::{Command, Stdio};

use bpf_build::plan::{Plan, Step, plan};
use bpf_build::without_cargo;

use crate::failure::Failure;
use crate::host;
use crate::root::AsRoot;
use crate::steps;

/// Packages for tests and measurements: tools to compare with, load, terminals.
pub(crate) const TEST_TOOLS: [&str; 10] = [
    "libbpf-tools",
    "sysstat",
    "linux-perf",
    "stress-ng",
    "rt-tests",
    "bpftool",
    "tmux",
    "ffmpeg",
    "procps",
    "util-linux",
];

/// libFuzzer is C++.
pub(crate) const FOR_FUZZ: &str = "g++";

/// promtool for the rules in `deploy/`, and tools that make and boot a clean Debian to install the package in.
pub(crate) const FOR_DEPLOY: [&str; 3] = ["prometheus", "mmdebstrap", "systemd-container"];

/// Packages for the virtual machines, and a browser for the page of a report.
const LAB_TOOLS: [&str; 3] = ["qemu-system-x86", "busybox-static", "chromium"];

pub(crate) fn for_lab() -> Vec<&'static str> {
    [&TEST_TOOLS[..], &LAB_TOOLS].concat()
}

/// Installs what cgscope is built with, and the `extra` packages. Silent if nothing is missing.
pub(crate) fn ensure(extra: &[&str]) -> Result<(), Failure> {
    let mut lists_are_new = false;
    let mut done = None;
    loop {
        let facts = host::facts(extra, lists_are_new);
        let plan = plan(&facts, extra);
        if plan.is_empty() {
            return Ok(());
        }
        announce(&plan, facts.apt.is_some());
        if facts.apt.is_none() || plan.steps.is_empty() {
            let what = if plan.steps.is_empty() { "install it" } else { "run the commands above" };
            return Err(Failure::Host(format!(
                "what is missing cannot be installed from here, so cgscope cannot be built or tested; \
                 {what}, then run this again"
            )));
        }
        if done.as_ref() == Some(&plan) {
            return Err(Failure::Host(
                "the commands above were run and what they install is still missing, so cgscope cannot be built; \
                 run them by hand and see what they say"
                    .to_owned(),
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
        let who = if is_ours { "this will be run" } else { "run this" };
        eprintln!("setup: some of what cgscope is built or tested with is missing; {who}:");
    }
    for step in &plan.steps {
        eprintln!("setup:   {}", in_words(step));
    }
    if let Some(then) = plan.then {
        eprintln!("setup: and then: {then}");
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
        // Old lists name packages that the archive no longer has: try again with new ones.
        *lists_are_new = true;
        is_done = attempt(&Step::AptUpdate)? && attempt(step)?;
    }
    *lists_are_new |= *step == Step::AptUpdate;
    if is_done {
        return Ok(());
    }
    Err(Failure::Step(format!(
        "`{}` failed, so cgscope cannot be built or tested; what it said is above",
        in_words(step)
    )))
}

/// Runs a step; true if it succeeds.
fn attempt(step: &Step) -> Result<bool, Failure> {
    let words = step.words();
    let Some((program, arguments)) = words.split_first() else { return Ok(true) };
    let mut command = if step.needs_root() {
        let by_hand = format!("have root run `{}`", in_words(step));
        let as_root = AsRoot::become_root("installing packages", &by_hand)?;
        let mut command = as_root.command("env");
        command.args(["DEBIAN_FRONTEND=noninteractive", program.as_str()]);
        command
    } else {
        let mut command = match program.as_str() {
            "cargo" => Command::new(steps::cargo_path()),
            _ => Command::new(program),
        };
        // Away from the settings of the workspace, and of the cargo that runs us.
        without_cargo(&mut command).current_dir(env::temp_dir());
        if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
            // The compiler of that cargo: the default one may be too old.
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
