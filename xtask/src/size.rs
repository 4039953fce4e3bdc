//! Prints the size of the project: by crate, lines of code without tests, and source files; and the words of the documents.
use std::{collections::BTreeMap, fs};

use crate::steps::{self, Failure};

pub(crate) fn run() -> Result<(), Failure> {
    let failed = |words: &str| Failure::Host(format!("size: {words}"));
    let tracked =
        steps::git(&["ls-files", "*.rs", "*.md"]).ok_or_else(|| failed("git cannot list the files"))?;
    let top = steps::workspace();
    let mut code: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut pages, mut words) = (0, 0);
    for path in tracked.lines() {
        let text = fs::read_to_string(top.join(path)).map_err(|error| failed(&format!("{path}: {error}")))?;
        if is_counted(path) {
            let (files, lines) = code.entry(part(path)).or_default();
            (*files, *lines) = (*files + 1, *lines + lines_outside_tests(&text));
        } else if path == "README.md" || (path.starts_with("docs/") && path.ends_with(".md")) {
            (pages, words) = (pages + 1, words + text.split_whitespace().count());
        }
    }
    println!("{:<20} {:>6} {:>7}", "Rust outside tests", "files", "lines");
    for (part, (files, lines)) in &code {
        println!("{part:<20} {files:>6} {lines:>7}");
    }
    let sum = |of: fn(&(usize, usize)) -> usize| code.values().map(of).sum::<usize>();
    println!("{:<20} {:>6} {:>7}", "all", sum(|(files, _)| *files), sum(|(_, lines)| *lines));
    println!("README.md and docs: {words} words in {pages} pages");
    Ok(())
}

fn is_counted(path: &str) -> bool {
    let is_test = path.starts_with("crates/lab/")
        || path.starts_with("fuzz/")
        || path.ends_with("/tests.rs")
        || path.split('/').any(|folder| folder == "tests");
    path.ends_with(".rs") && !is_test
}

fn part(path: &str) -> String {
    let folders = if path.starts_with("crates/") { 2 } else { 1 };
    path.split('/').take(folders).collect::<Vec<_>>().join("/")
}

/// Counts the lines before the module of tests, which is the last item of a file.
fn lines_outside_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_inline = |pair: &[&str]| {
        pair[0].starts_with("#[cfg(test)]") && pair[1].contains("mod ") && pair[1].ends_with('{')
    };
    lines.windows(2).position(is_inline).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        let counted = ["crates/a/src/b.rs", "ebpf/src/main.rs", "crates/a/src/contests.rs"];
        assert!(counted.into_iter().all(is_counted));
        let left_out = [
            "crates/lab/src/load.rs",
            "fuzz/src/lib.rs",
            "crates/a/tests/b.rs",
            "crates/a/src/b/tests.rs",
            "crates/a/src/tests/b.rs",
            "docs/tests.md",
        ];
        assert!(!left_out.into_iter().any(is_counted));
        assert_eq!(lines_outside_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4, "the module is another file");
        assert_eq!(lines_outside_tests("a\n\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!((part("crates/a/src/b.rs"), part("ebpf/src/a.rs")), ("crates/a".into(), "ebpf".into()));
    }
}
