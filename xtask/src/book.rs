//! Builds the documents as a book with mdBook, and draws the pictures of the screen for them.
use std::process::Command;

use crate::setup;
use crate::steps::{self, Failure};

const MDBOOK: &str = "0.5.4";

pub(crate) fn run() -> Result<(), Failure> {
    let mut build = Command::new(setup::program("mdbook", MDBOOK)?);
    build.args(["build", "docs"]).current_dir(steps::workspace());
    steps::succeed(&mut build, |status| format!("book: mdBook failed ({status}); see its messages above"))
}

/// Draws the pictures. With `--check`, fails if the pictures are out of date, and prints what to do.
pub(crate) fn draw_pictures(words: &[&str]) -> Result<(), Failure> {
    let mut cargo =
        steps::cargo(&["run", "--quiet", "--package", "cgscope-view", "--example", "pictures", "--"]);
    steps::succeed(cargo.args(words), |status| format!("pictures: failed ({status}); see the messages above"))
}
