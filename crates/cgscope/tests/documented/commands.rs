//! The commands in README and docs.

use std::{fs, path::Path};

/// A command in a document: the document's name, and the words after `cgscope`.
pub struct Documented {
    pub place: String,
    pub words: Vec<String>,
}

/// Returns the commands in all indented blocks, which contain shell input. Blocks with backticks contain output.
pub fn all() -> Vec<Documented> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![top.join("README.md"), top.join("SECURITY.md"), top.join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/how-to"] {
        let entries = fs::read_dir(top.join(folder)).expect("a folder of documents");
        files.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    files.retain(|file| file.extension().is_some_and(|kind| kind == "md"));
    files.sort();
    let mut commands = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a document").replace("\\\n", " ");
        let place = file.file_name().unwrap_or_default().display().to_string();
        let mut is_output = false;
        for line in text.lines() {
            is_output ^= line.trim_start().starts_with("```");
            let Some(line) = line.strip_prefix("    ").filter(|_| !is_output) else { continue };
            let place = place.clone();
            commands.extend(words_of(line.trim()).map(|words| Documented { place, words }));
        }
    }
    commands
}

/// Returns the arguments of cgscope in a shell line, with placeholders replaced. Returns `None` if the line does not start
/// cgscope.
pub fn words_of(line: &str) -> Option<Vec<String>> {
    let words = split(line);
    let is_started = |at: &usize| {
        let is_name = words[*at] == "cgscope" || words[*at].ends_with("/cgscope");
        let begins = *at == 0 || ["sudo", "--"].contains(&words[at - 1].as_str());
        is_name && (begins || words.contains(&"systemd-run".into()))
    };
    let at = (0..words.len()).find(is_started)?;
    let is_unit = words[0].starts_with("ExecStart=");
    let stands_for = |word: &String| match word.as_str() {
        // systemd reads `%%` as `%`.
        _ if is_unit => word.replace("%%", "%"),
        "PID" => "1".into(),
        "FORMAT" => "csv".into(),
        _ => word.clone(),
    };
    Some(words[at + 1..].iter().map(stands_for).collect())
}

/// Splits a line like a shell, up to a comment or the next command.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut is_quoted = false;
    for letter in line.chars().chain([' ']) {
        match (letter, quote) {
            ('\'' | '"', None) => (quote, is_quoted) = (Some(letter), true),
            (_, Some(of)) if of == letter => quote = None,
            (_, Some(_)) => word.push(letter),
            (' ', None) if word.is_empty() && !is_quoted => {}
            (' ', None) => words.push(std::mem::take(&mut word)),
            ('#', None) if word.is_empty() => break,
            ('|' | '>' | ';' | '&' | '<', None) => {
                words.extend(Some(word).filter(|word| !word.is_empty()));
                break;
            }
            _ => word.push(letter),
        }
        is_quoted &= letter != ' ' || quote.is_some();
    }
    words
}
