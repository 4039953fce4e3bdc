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

/// Draws the pictures with the test that checks them. `--check` only checks them.
pub(crate) fn draw_pictures(is_check: bool) -> Result<(), Failure> {
    let mut cargo = steps::cargo(&["test", "--quiet", "--package", "cgscope-view", "--test", "pictures"]);
    if !is_check {
        cargo.env("UPDATE_DOCS", "1");
    }
    steps::succeed(&mut cargo, |status| format!("pictures: failed ({status}); see the messages above"))
}
