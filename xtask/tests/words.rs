//! Checks that comments and documents avoid words and sentence openings that are hard to read.

use std::{fs, path::Path, process::Command};

/// Words that are wrong in any context.
const WRONG: &[&str] = &[
    "so many ",
    "to be had",
    "is told of",
    "whose it is",
    "takes apart",
    "taken apart",
    "one that is gone",
    "one that went",
];

/// Returns the sentences of a file that people read: the comments of a Rust file, or all lines of a document.
fn sentences(path: &str, text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate().filter_map(|(at, line)| {
        let line = line.trim_start();
        let words = if path.ends_with(".rs") {
            line.strip_prefix("//")?.trim_start_matches(['/', '!'])
        } else {
            line
        };
        Some((at + 1, words.trim_start_matches([' ', '*', '-', '|', '#']).to_owned()))
    });
    lines.collect()
}

/// Returns whether a sentence begins with "Of", except for "Of the three ...".
fn begins_with_of(line: &str) -> bool {
    let counted = |rest: &str| {
        let numbers = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
        numbers.iter().any(|number| rest.strip_prefix("the ").is_some_and(|rest| rest.starts_with(number)))
    };
    let begins = std::iter::once(line).chain(line.split(". ").skip(1));
    begins.filter_map(|sentence| sentence.strip_prefix("Of ")).any(|rest| !counted(rest))
}

#[test]
fn comments_and_documents_use_plain_words() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files =
        Command::new("git").args(["ls-files", "*.rs", "*.md"]).current_dir(&top).output().expect("git");
    let files = String::from_utf8(files.stdout).expect("paths");
    let files: Vec<&str> = files.lines().filter(|path| !path.ends_with("xtask/tests/words.rs")).collect();
    assert!(files.len() > 300, "{} files", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let Ok(text) = fs::read_to_string(top.join(path)) else { continue };
        for (line, words) in sentences(path, &text) {
            let lower = words.to_lowercase();
            if begins_with_of(&words) || WRONG.iter().any(|one| lower.contains(one)) {
                wrong.push(format!("{path}:{line}: {words}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Checks the rows of `| function | in | called in |` in the reading tour.
#[test]
fn the_paths_of_the_reading_tour_are_those_of_the_code() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tour = fs::read_to_string(top.join("docs/reading-tour.md")).expect("the reading tour");
    let code = |cell: &str| {
        let path = cell.split_once("](../").and_then(|(_, rest)| rest.strip_suffix(')')).expect("a link");
        fs::read_to_string(top.join(path)).expect("a file")
    };
    let mut seen = 0;
    for row in tour.lines().filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [function, home, caller] = cells[..] else { panic!("{row}") };
        let name = function.trim_matches('`');
        assert!(code(home).contains(&format!("fn {name}")), "{row}: there is no such function");
        let caller = code(caller);
        let calls = [format!("{name}("), format!("{name}::<")];
        assert!(
            calls
                .iter()
                .any(|call| caller.matches(call).count() > caller.matches(&format!("fn {call}")).count()),
            "{row}: no call"
        );
        seen += 1;
    }
    assert!(seen > 20, "{seen} rows");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = Command::new("git").args(["ls-files", "*.md"]).current_dir(&top).output().expect("git");
    let files = String::from_utf8(files.stdout).expect("paths");
    let mut seen = 0;
    for path in files.lines() {
        let Ok(text) = fs::read_to_string(top.join(path)) else { continue };
        let folder = Path::new(path).parent().expect("a folder");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if link.contains("://") || file.is_empty() || file.contains(' ') {
                continue;
            }
            seen += 1;
            assert!(top.join(folder).join(file).exists(), "{path} links to {link}");
        }
    }
    assert!(seen > 100, "{seen} links");
}

#[test]
fn documented_commands_of_xtask_exist() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let help = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("help").output().expect("xtask");
    let help = String::from_utf8(help.stdout).expect("text");
    let commands: Vec<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let files = Command::new("git").args(["ls-files", "*.md"]).current_dir(&top).output().expect("git");
    let files = String::from_utf8(files.stdout).expect("paths");
    let mut seen = 0;
    for path in files.lines() {
        let Ok(text) = fs::read_to_string(top.join(path)) else { continue };
        for rest in text.split("cargo xtask ").skip(1) {
            let command: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            seen += 1;
            assert!(commands.contains(&command.as_str()), "{path}: `cargo xtask {command}` does not exist");
        }
    }
    assert!(seen > 40, "{seen} commands");
}
