//! Runs programs, as the user or as root.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs, io,
    path::{self, Path, PathBuf},
    process::{Command, ExitStatus},
};

pub(crate) fn workspace() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = xtask.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map(Path::to_owned).unwrap_or(xtask)
}

pub(crate) fn cargo_path() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// Returns the directory in which cargo builds: the user's `CARGO_TARGET_DIR`, or else `target`.
pub(crate) fn target_dir() -> PathBuf {
    let users = env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty());
    // A relative path is relative to the current directory.
    users.and_then(|dir| path::absolute(dir).ok()).unwrap_or_else(|| workspace().join("target"))
}

/// Returns a cargo command in the root directory of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(cargo_path());
    cargo.current_dir(workspace()).args(arguments);
    // cargo sets these variables when it runs xtask. Build scripts of dependencies (ring) watch these variables. If they changed,
    // the dependencies would be compiled again.
    let ours = env::vars_os().map(|(name, _)| name).filter(|name| {
        name.to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    });
    ours.for_each(|name| _ = cargo.env_remove(name));
    cargo.env("CARGO_TARGET_DIR", target_dir());
    cargo
}

pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(|why| did_not_start(command, &why))
}

/// Runs a command that must succeed. `failed` is the start of the error message.
pub(crate) fn succeed(command: &mut Command, failed: &str) -> Result<(), Failure> {
    match status(command)? {
        status if status.success() => Ok(()),
        status => Err(Failure::Step(format!("{failed} ({status}); see the messages above"))),
    }
}

/// Prints the name of a step, and runs its command.
pub(crate) fn step(name: &str, command: &mut Command) -> Result<(), Failure> {
    eprintln!("{name}");
    succeed(command, &format!("{name}: failed"))
}

/// Returns the standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|why| did_not_start(command, &why))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // The command has already printed the reason if the caller did not redirect standard error.
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Step(format!("`{}` failed ({}): {}", words(command), output.status, why.trim())))
}

/// Returns the text of a command as on a command line.
pub(crate) fn words(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, content)).map_err(|why| cannot("write", path, &why))
}

pub(crate) fn cannot(act: &str, path: &Path, why: &io::Error) -> Failure {
    let path = path.display();
    Failure::Host(format!("cannot {act} {path}: {why}; check that you own it, and that the disk is not full"))
}

pub(crate) fn did_not_start(command: &Command, why: &io::Error) -> Failure {
    let program = command.get_program().display();
    Failure::Host(format!("{program} did not start ({why}); check that it is installed and on PATH"))
}

/// Returns the output of a git command, without line breaks at the end. `None` if git is missing or the command fails.
pub(crate) fn git(arguments: &[&str]) -> Option<String> {
    let text = output(Command::new("git").current_dir(workspace()).args(arguments)).ok()?;
    Some(text.trim_end().to_owned())
}

/// An error. The message says what is missing or failed, what that prevents, and what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command cannot run: this machine lacks something, or an argument is wrong.
    Host(String),
    /// A step ran and failed.
    Step(String),
    /// Tests failed while something disturbed them, and the machine did not become quiet enough for a second try.
    Undecided(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Step(_) => 1,
            Self::Host(_) => 2,
            Self::Undecided(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Host(words) | Self::Step(words) | Self::Undecided(words)) = self;
        f.write_str(words)
    }
}

/// The program with which commands run as root: `sudo`, or none if this process is root.
pub(crate) struct AsRoot(Option<&'static str>);

impl AsRoot {
    /// Checks that commands can run as root. If sudo needs a password, it prompts for it here and not in the middle of the work.
    ///
    /// The arguments are for the error message: `what` needs root, and `otherwise` is the alternative.
    pub(crate) fn become_root(what: &str, otherwise: &str) -> Result<Self, Failure> {
        if rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        if find("sudo").is_none() {
            return Err(Failure::Host(format!(
                "{what} needs root, but this process is not root and sudo is not installed; {otherwise}"
            )));
        }
        match Command::new("sudo").arg("-v").status() {
            Ok(status) if status.success() => Ok(Self(Some("sudo"))),
            _ => Err(Failure::Host(format!("{what} needs root, but sudo refused; {otherwise}"))),
        }
    }

    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(sudo) = self.0 else { return Command::new(program) };
        let mut command = Command::new(sudo);
        command.arg(program);
        command
    }
}

/// Finds a program on PATH, or in a directory that PATH may lack.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = ["/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(beside).map(|dir| dir.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_named() {
        assert!(step("test: first", &mut Command::new("true")).is_ok());
        let failure =
            step("test: second", &mut Command::new("false")).expect_err("the step fails").to_string();
        assert_eq!(failure, "test: second: failed (exit status: 1); see the messages above");
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = step("test", &mut Command::new("no-such-program")).expect_err("no such program");
        assert!(failure.to_string().contains("no-such-program did not start"), "{failure}");
    }
}
