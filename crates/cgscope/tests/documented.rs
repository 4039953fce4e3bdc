//! Runs the commands in README and docs that read recordings. They need no privileges. `src/cli/tests.rs` checks that the other
//! commands can be parsed, and the tests as root run them.

use std::{fs, path::Path, process::Command};

#[path = "documented/commands.rs"]
mod commands;

#[test]
fn commands_in_readme_and_docs_that_read_recordings_succeed() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../view/tests/files");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documented");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("exports")).expect("a directory below target");
    let mut ran = 0;
    for commands::Documented { place, mut words } in commands::all() {
        let reads = ["report", "diff", "export"];
        if !words.first().is_some_and(|command| reads.contains(&command.as_str())) {
            continue;
        }
        for word in words.iter_mut().filter(|word| *word == "FILE") {
            *word = "before.rec".into();
        }
        let recordings = words.iter().filter(|word| word.ends_with(".rec") && !word.contains('/'));
        for recording in recordings {
            let from = if recording == "after.rec" { "threads.rec" } else { "neighbour.rec" };
            fs::copy(files.join(from), dir.join(recording)).expect("a recording that is committed");
        }
        let output = Command::new(env!("CARGO_BIN_EXE_cgscope")).args(&words).current_dir(&dir).output();
        let output = output.expect("cgscope is executed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: cgscope {}: {said}", words.join(" "));
        ran += 1;
    }
    assert!(ran > 8, "{ran} commands");
}
