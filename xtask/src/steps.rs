//! Runs programs one after the other, up to the first failure.

use std::{
    env,
    ffi::OsString,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use crate::{failure::Failure, steps};

/// The root directory of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = xtask.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map(Path::to_owned).unwrap_or(xtask)
}

/// The path of the cargo that runs xtask.
pub(crate) fn cargo_path() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// The user's `CARGO_TARGET_DIR`, if set. A relative path is relative to the current directory.
pub(crate) fn users_target_dir() -> Option<PathBuf> {
    let dir = PathBuf::from(env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty())?);
    Some(env::current_dir().map(|here| here.join(&dir)).unwrap_or(dir))
}

/// A cargo command in the root directory of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(cargo_path());
    cargo.current_dir(workspace()).args(arguments);
    // Cargo sets these for us. Build scripts of dependencies (ring) watch them and would compile again whenever they differ.
    let ours = env::vars_os().map(|(name, _)| name).filter(|name| {
        name.to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    });
    ours.for_each(|name| _ = cargo.env_remove(name));
    if let Some(dir) = users_target_dir() {
        cargo.env("CARGO_TARGET_DIR", dir);
    }
    cargo
}

/// Runs a command and waits for its end.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(|why| did_not_start(command, &why))
}

/// The standard output of a child, piece by piece. A thread reads it, so that the receiver can wait with a timeout.
pub(crate) fn pieces(child: &mut Child) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let mut out = child.stdout.take();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Some(Ok(length @ 1..)) = out.as_mut().map(|out| out.read(&mut buffer)) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

pub(crate) fn did_not_start(command: &Command, why: &io::Error) -> Failure {
    let program = command.get_program().display();
    Failure::Host(format!("{program} did not start ({why}); check that it is installed and on PATH"))
}

/// Steps under one heading, with a one-line summary at the end.
pub(crate) struct Steps {
    heading: &'static str,
    since: Instant,
    passed: usize,
}

impl Steps {
    pub(crate) fn new(heading: &'static str) -> Self {
        Self { heading, since: Instant::now(), passed: 0 }
    }

    pub(crate) fn step(&mut self, name: &str, command: &mut Command) -> Result<(), Failure> {
        eprintln!("{}: {name}", self.heading);
        let status = status(command)?;
        if !status.success() {
            return Err(Failure::Step(self.failed(name, &status.to_string())));
        }
        self.passed += 1;
        Ok(())
    }

    /// Records the result of a step that runs more than one program.
    pub(crate) fn done(&mut self, name: &str, result: Result<(), Failure>) -> Result<(), Failure> {
        result.map_err(|failure| match failure {
            Failure::Undecided(words) => Failure::Undecided(self.failed(name, &words)),
            other => Failure::Step(self.failed(name, &other.to_string())),
        })?;
        self.passed += 1;
        Ok(())
    }

    fn failed(&self, name: &str, how: &str) -> String {
        let Self { heading, passed, .. } = self;
        format!(
            "{heading}: step `{name}` failed ({how}); steps passed before: {passed}; later steps did not run"
        )
    }

    pub(crate) fn summary(&self) {
        eprintln!(
            "{}: passed (steps: {}, seconds: {})",
            self.heading,
            self.passed,
            self.since.elapsed().as_secs()
        );
    }
}

/// The output of a git command. `None` without git, or if the command fails.
pub(crate) fn said(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(steps::workspace()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The current commit. `None` without git, and if files differ from this commit.
pub(crate) fn clean_commit() -> Option<String> {
    let commit = said(&["rev-parse", "--short=8", "HEAD"])?;
    said(&["status", "--porcelain"])?.is_empty().then(|| commit.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failed_step_ends_the_run_and_is_named() {
        let mut steps = Steps::new("test");
        assert!(steps.step("first", &mut Command::new("true")).is_ok());
        let failure =
            steps.step("second", &mut Command::new("false")).expect_err("the step fails").to_string();
        assert!(
            failure.contains("step `second` failed (exit status: 1); steps passed before: 1"),
            "{failure}"
        );
    }

    #[test]
    fn an_undecided_step_stays_undecided() {
        let undecided = Err(Failure::Undecided("a::b".to_owned()));
        let failure = Steps::new("test").done("lanes", undecided).expect_err("the step is undecided");
        assert_eq!(failure.exit_code(), 3);
        assert!(failure.to_string().contains("step `lanes` failed (a::b)"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut steps = Steps::new("test");
        let failure = steps.step("first", &mut Command::new("no-such-program")).expect_err("no such program");
        assert!(failure.to_string().contains("no-such-program did not start"), "{failure}");
    }
}
