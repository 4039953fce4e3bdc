//! Becoming root, for the commands that need it.
use std::env;
use std::fs;
use std::process::Command;

use crate::failure::Failure;

/// The prefix that runs a command as root: `sudo`, or empty if we are root.
pub(crate) struct AsRoot(&'static [&'static str]);

impl AsRoot {
    /// Checks that commands can run as root. sudo prompts for a password here, not in the middle of the work.
    ///
    /// Both arguments are parts of the error message: `what` needs root, and `otherwise` is the alternative.
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

    /// The option that makes cargo compile as the user and run the result as root. So root owns no file under `target/`.
    /// sudo keeps the environment, because cargo passes paths to the tests in it.
    pub(crate) fn for_cargo(&self) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let words: Vec<_> = self.0.iter().chain(&["-E"]).map(|word| format!("{word:?}")).collect();
        vec!["--config".to_owned(), format!("target.\"cfg(unix)\".runner=[{}]", words.join(","))]
    }
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_user(&status) == Some(0))
}

/// The second number of `Uid:` in `/proc/PID/status`.
fn effective_user(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::{AsRoot, effective_user};

    #[test]
    fn the_effective_user_is_the_second_id() {
        assert_eq!(effective_user("Name:\txtask\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), Some(0));
        assert_eq!(effective_user("Name:\txtask\n"), None);
    }

    #[test]
    fn cargo_compiles_as_the_user_and_runs_as_root() {
        assert!(AsRoot(&[]).for_cargo().is_empty());
        let option = AsRoot(&["sudo"]).for_cargo();
        assert_eq!(option, ["--config", r#"target."cfg(unix)".runner=["sudo","-E"]"#]);
    }
}
