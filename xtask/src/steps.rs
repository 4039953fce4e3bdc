//! Runs programs one after the other, as the user or as root. Stops at the first failure.

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

pub(crate) fn workspace() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = xtask.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map(Path::to_owned).unwrap_or(xtask)
}

pub(crate) fn cargo_path() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// Returns the user's `CARGO_TARGET_DIR`, if it is set. A relative path is relative to the current directory.
pub(crate) fn users_target_dir() -> Option<PathBuf> {
    let dir = PathBuf::from(env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty())?);
    Some(env::current_dir().map(|here| here.join(&dir)).unwrap_or(dir))
}

/// Returns the directory in which cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    users_target_dir().unwrap_or_else(|| workspace().join("target"))
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
    if let Some(dir) = users_target_dir() {
        cargo.env("CARGO_TARGET_DIR", dir);
    }
    cargo
}

pub(crate) fn status(command: &mut Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(|why| did_not_start(command, &why))
}

/// Runs a command that must succeed. `failed` returns the error message for a status.
pub(crate) fn succeed(
    command: &mut Command,
    failed: impl FnOnce(ExitStatus) -> String,
) -> Result<(), Failure> {
    let status = status(command)?;
    if status.success() { Ok(()) } else { Err(Failure::Step(failed(status))) }
}

/// Returns the standard output of a child process in pieces. A separate thread reads the output, so that the receiver can wait
/// with a timeout.
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

pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|why| did_not_start(command, &why))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (words, why) = (words(command), String::from_utf8_lossy(&output.stderr));
    Err(Failure::Step(format!("`{words}` failed ({}): {}", output.status, why.trim())))
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

/// Appends text to a file. Creates a missing file.
pub(crate) fn append(path: &Path, text: &str) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|why| cannot("write", path, &why))
}

pub(crate) fn cannot(act: &str, path: &Path, why: &io::Error) -> Failure {
    Failure::Host(format!(
        "cannot {act} {}: {why}; check that you own it, and that the disk is not full",
        path.display()
    ))
}

pub(crate) fn did_not_start(command: &Command, why: &io::Error) -> Failure {
    let program = command.get_program().display();
    Failure::Host(format!("{program} did not start ({why}); check that it is installed and on PATH"))
}

/// The steps under one heading. A one-line summary follows at the end.
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
        let result = if status.success() { Ok(()) } else { Err(Failure::Step(status.to_string())) };
        self.done(name, result)
    }

    /// Records the result of a step that runs several programs.
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

/// Returns the output of a git command, without line breaks at the end. `None` if git is missing or the command fails.
pub(crate) fn git(arguments: &[&str]) -> Option<String> {
    let text = output(Command::new("git").current_dir(workspace()).args(arguments)).ok()?;
    Some(text.trim_end().to_owned())
}

/// Returns the current time in UTC, in a format of `date`.
pub(crate) fn date(format: &str) -> String {
    let date = output(Command::new("date").args(["-u", &format!("+{format}")]));
    date.unwrap_or_default().trim().to_owned()
}

/// Returns the current commit. Returns `None` without git, or if files differ from the commit.
pub(crate) fn clean_commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    git(&["status", "--porcelain"])?.is_empty().then_some(commit)
}

/// An error. The message says what is missing or failed, what that prevents, and what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is not valid.
    Usage(String),
    /// This machine lacks something.
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
            Self::Usage(_) | Self::Host(_) => 2,
            Self::Undecided(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(words) | Self::Host(words) | Self::Step(words) | Self::Undecided(words)) = self;
        f.write_str(words)
    }
}

/// Returns the command prefix that runs a command as root: `sudo`, or nothing if this process is root.
pub(crate) struct AsRoot(&'static [&'static str]);

impl AsRoot {
    /// Checks that commands can run as root. If sudo needs a password, it prompts for it here and not in the middle of the work.
    ///
    /// The arguments are for the error message: `what` needs root, and `otherwise` is the alternative.
    pub(crate) fn become_root(what: &str, otherwise: &str) -> Result<Self, Failure> {
        if is_root() {
            return Ok(Self(&[]));
        }
        if !is_on_path("sudo") {
            return Err(Failure::Host(format!(
                "{what} needs root, but this process is not root and sudo is not installed; {otherwise}"
            )));
        }
        match Command::new("sudo").arg("-v").status() {
            Ok(status) if status.success() => Ok(Self(&["sudo"])),
            _ => Err(Failure::Host(format!("{what} needs root, but sudo refused; {otherwise}"))),
        }
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut words = self.0.iter().copied().chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command.args(words);
        command
    }

    /// Returns the option with which cargo compiles as the user and runs the result as root, so that no file under `target/`
    /// belongs to root. sudo must keep the environment, because cargo passes paths to the tests in environment variables.
    pub(crate) fn for_cargo(&self) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let words: Vec<_> = self.0.iter().chain(&["-E"]).map(|word| format!("{word:?}")).collect();
        vec!["--config".to_owned(), format!("target.\"cfg(unix)\".runner=[{}]", words.join(","))]
    }
}

fn is_root() -> bool {
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

pub(crate) fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
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
        let undecided = Err(Failure::Undecided("a::b".into()));
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

#[cfg(test)]
mod root_tests {
    use super::AsRoot;

    #[test]
    fn cargo_compiles_as_the_user_and_runs_as_root() {
        assert!(AsRoot(&[]).for_cargo().is_empty());
        let option = AsRoot(&["sudo"]).for_cargo();
        assert_eq!(option, ["--config", r#"target."cfg(unix)".runner=["sudo","-E"]"#]);
    }
}
