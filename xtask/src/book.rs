//! Builds the documents as a book with mdBook, and draws the pictures of the screen in them.
use std::process::Command;

use crate::setup;
use crate::steps::{self, Failure};

const MDBOOK: &str = "0.5.4";

pub(crate) fn run() -> Result<(), Failure> {
    let mut build = Command::new(setup::program("mdbook", MDBOOK)?);
    build.args(["build", "docs"]).current_dir(steps::workspace());
    steps::succeed(&mut build, |status| format!("book: mdBook failed ({status}); see its messages above"))
}

pub(crate) fn pictures(arguments: &[String]) -> Result<(), Failure> {
    let mut command = match arguments {
        [] => draw_pictures(),
        [check] if check == "--check" => check_pictures(),
        [word, ..] => {
            return Err(Failure::Usage(format!(
                "unknown argument `{word}` of `pictures`, which takes only `--check`"
            )));
        }
    };
    steps::succeed(&mut command, |status| format!("pictures: failed ({status}); see the messages above"))
}

/// A command that fails if the pictures are out of date, and prints what to do.
pub(crate) fn check_pictures() -> Command {
    let mut check = draw_pictures();
    check.arg("--check");
    check
}

fn draw_pictures() -> Command {
    steps::cargo(&["run", "--quiet", "--package", "cgscope-view", "--example", "pictures", "--"])
}
