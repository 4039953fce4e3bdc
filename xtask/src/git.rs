//! What git reports about the checkout.
use std::process::Command;

use crate::steps;

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
