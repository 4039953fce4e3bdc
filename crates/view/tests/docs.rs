//! Checks that `docs/top.md` matches the program. `UPDATE_DOCS=1 cargo test -p cgscope-view --test docs` rewrites its tables.

use std::{env, fs, path::PathBuf};

use cgscope_view::{
    app::{View, list::ListKind},
    columns::Column,
    keys::{Command, KeyPress},
    settings::Settings,
};

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/top.md")
}

fn text() -> String {
    fs::read_to_string(path()).unwrap()
}

fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: String = rows.map(|cells| line(&cells)).collect();
    format!("{}|{}\n{rows}", line(&headings), "---|".repeat(headings.len()))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn keys() -> String {
    let rows = Command::ALL.iter().map(|command| {
        let keys: Vec<String> = command.default_keys().iter().map(|key| code(key)).collect();
        vec![keys.join(" "), code(command.name()), command.does().to_owned()]
    });
    table(&["keys", "command", "does"], rows)
}

fn columns() -> String {
    let rows = Column::all().map(|column| {
        let key = Some(column.key()).filter(|key| *key != ' ').map(|key| code(&key.to_string()));
        vec![column.title().to_owned(), key.unwrap_or_default(), column.meaning().to_owned()]
    });
    table(&["heading", "letter", "means"], rows)
}

/// Returns the keys of the settings file, from the warning about an unknown key.
fn names_of_settings() -> Vec<String> {
    let (_, warnings) = Settings::parse("unknown = 1").unwrap();
    warnings[0].split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

fn lists() -> String {
    let rows = ListKind::ALL.iter().map(|kind| {
        let titles: Vec<&str> = kind.columns().iter().map(|column| column.title()).collect();
        match titles.as_slice() {
            [] => vec![
                code(kind.name()),
                "how many; only `{ reversed = true }`".into(),
                "none to sort by".into(),
            ],
            titles => vec![code(kind.name()), kind.sorted_by().title().into(), titles.join(", ")],
        }
    });
    table(&["list", "sorted by, unless settings say otherwise", "headings"], rows)
}

/// Replaces the table of this name in the text.
fn with_table(text: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- table: {name} -->\n");
    let (before, rest) = text.split_once(&begin).expect("the document has the table");
    let (_, after) = rest.split_once("<!-- end -->").expect("the table has an end");
    format!("{before}{begin}{table}<!-- end -->{after}")
}

/// Returns the text between a heading and the next heading.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {heading}\n")).expect("the document has the section");
    rest.split("\n## ").next().unwrap_or(rest)
}

#[test]
fn the_tables_match_the_program() {
    let before = text();
    let tables = [("keys", keys()), ("columns", columns()), ("lists", lists())];
    let after = tables.iter().fold(before.clone(), |text, (name, table)| with_table(&text, name, table));
    if env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(path(), &after).unwrap();
    }
    for (is, was) in after.lines().zip(before.lines()) {
        assert_eq!(
            is, was,
            "docs/top.md is out of date: run this test with UPDATE_DOCS=1 to rewrite its tables"
        );
    }
    assert_eq!(after.len(), before.len());
}

#[test]
fn the_example_is_valid_and_has_every_setting() {
    let text = text();
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (settings, warnings) = Settings::parse(example).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    for setting in names_of_settings() {
        let said = format!("{setting} = ");
        assert!(example.lines().any(|line| line.starts_with(&said)), "{said}");
    }
    assert!(settings.sort.len() >= 3 && settings.keymap != Settings::default().keymap);
}

#[test]
fn the_table_of_settings_has_every_default() {
    let text = text();
    let names = names_of_settings();
    let rows = section(&text, "What is remembered").lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    for name in names {
        let row = rows.iter().find(|row| row[0] == format!("{name}`")).expect("each setting has a row");
        let (settings, warnings) =
            Settings::parse(&format!("{name} = {}", row[2].trim_matches('`'))).unwrap();
        assert_eq!((settings, warnings), (Settings::default(), Vec::new()), "{name}");
    }
}

#[test]
fn every_view_has_a_question_and_its_key() {
    let text = text();
    let questions = section(&text, "Which question, which key");
    for view in View::ALL {
        let key = code(view.command().default_keys()[0]);
        let row = questions.lines().find(|line| line.contains(view.title()) && line.contains(&key));
        assert!(row.is_some(), "{} has no question with {key}", view.title());
    }
}

#[test]
fn keys_in_the_section_habits_have_commands() {
    let text = text();
    let keymap = Settings::default().keymap;
    // `l` is listed as a key that does nothing yet. Words that are not keys have other meanings.
    let words = section(&text, "Habits").split('`').skip(1).step_by(2).filter(|word| *word != "l");
    let keys: Vec<KeyPress> = words.filter_map(|word| word.parse().ok()).collect();
    assert!(keys.len() >= 25, "{}", keys.len());
    for key in keys {
        assert!(keymap.command(key).is_some(), "{key} does nothing");
    }
}
