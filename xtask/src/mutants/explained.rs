//! The list of survivors with reasons. It names the line of code instead of its number, so that it stays valid when lines move.
use std::collections::BTreeSet;

use crate::failure::Failure;

/// Whether a test could kill the mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No input shows a difference.
    Equivalent,
    /// It counts as a survivor.
    Accepted,
}

#[derive(Debug)]
struct Explanation {
    path: String,
    change: String,
    line: String,
    kind: Kind,
}

#[derive(Debug)]
pub(super) struct Explained(Vec<Explanation>);

impl Explained {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let explanation = |lines: &[&str]| {
            let [mutant, line, reason] = lines else { return None };
            let (path, change) = mutant.split_once(": ")?;
            let kind = match reason.split_once(": ")? {
                ("equivalent", _) => Kind::Equivalent,
                ("accepted", _) => Kind::Accepted,
                _ => return None,
            };
            Some(Explanation {
                path: path.to_owned(),
                change: change.to_owned(),
                line: line.trim().to_owned(),
                kind,
            })
        };
        let parsed = |lines: &[&str]| {
            explanation(lines).ok_or_else(|| {
                let at = lines.join("\n");
                Failure::Step(format!(
                    "mutants: cannot parse explained.txt at\n{at}\nits first lines show the format"
                ))
            })
        };
        lines.chunks(3).map(parsed).collect::<Result<_, _>>().map(Self)
    }

    /// The explanation of a mutant in a file with this source.
    pub(super) fn of(&self, name: &str, source: &str) -> Option<Kind> {
        let (path, change, line) = parts(name, source)?;
        self.0
            .iter()
            .find(|of| (of.path.as_str(), of.change.as_str(), of.line.as_str()) == (path, change, line))
            .map(|of| of.kind)
    }

    /// The changes that are explained for a file, but are none of its mutants.
    pub(super) fn unused<'a>(
        &'a self,
        path: &'a str,
        mutants: &[String],
        source: &str,
    ) -> impl Iterator<Item = &'a str> {
        let there: BTreeSet<_> = mutants.iter().filter_map(|name| parts(name, source)).collect();
        let there: BTreeSet<_> =
            there.into_iter().map(|(_, change, line)| (change.to_owned(), line.to_owned())).collect();
        let of_file = self.0.iter().filter(move |of| of.path == path);
        of_file
            .filter(move |of| !there.contains(&(of.change.clone(), of.line.clone())))
            .map(|of| of.change.as_str())
    }
}

/// The file of a mutant, its change, and its line of code.
fn parts<'n>(name: &'n str, source: &'n str) -> Option<(&'n str, &'n str, &'n str)> {
    let (place, change) = name.split_once(": ")?;
    let mut words = place.split(':');
    let path = words.next()?;
    let number: usize = words.next()?.parse().ok()?;
    Some((path, change, source.lines().nth(number.checked_sub(1)?)?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn f(a: u32) -> bool {\n    a < 7\n}\n";
    const TEXT: &str = "# Why.\n\na.rs: replace < with <= in f\n    a < 7\nequivalent: it is never 7\n";

    #[test]
    fn an_explanation_stays_valid_if_lines_move_but_not_if_the_line_changes() {
        let explained = Explained::parse(TEXT).expect("it is valid");
        assert_eq!(explained.of("a.rs:2:7: replace < with <= in f", SOURCE), Some(Kind::Equivalent));
        let moved = format!("\n{SOURCE}");
        assert_eq!(explained.of("a.rs:3:7: replace < with <= in f", &moved), Some(Kind::Equivalent));
        let changed = SOURCE.replace('7', "8");
        assert_eq!(explained.of("a.rs:2:7: replace < with <= in f", &changed), None);
        assert_eq!(explained.of("a.rs:2:7: replace < with > in f", SOURCE), None);
        assert_eq!(explained.of("b.rs:2:7: replace < with <= in f", SOURCE), None);
    }

    #[test]
    fn an_explanation_without_its_mutant_is_unused() {
        let explained = Explained::parse(TEXT).expect("it is valid");
        let unused = |mutant: &str| explained.unused("a.rs", &[mutant.to_owned()], SOURCE).count();
        assert_eq!(unused("a.rs:2:7: replace < with <= in f"), 0);
        assert_eq!(unused("a.rs:2:7: replace < with > in f"), 1);
        assert_eq!(explained.unused("b.rs", &[], SOURCE).count(), 0, "of another file");
    }

    #[test]
    fn an_explanation_needs_its_three_lines_and_a_known_reason() {
        assert!(Explained::parse("a.rs: replace < with <= in f\n    a < 7\n").is_err());
        let error = Explained::parse(&TEXT.replace("equivalent", "unlikely")).expect_err("an unknown reason");
        assert!(error.to_string().contains("a.rs: replace < with <= in f"), "{error}");
        assert!(Explained::parse(include_str!("explained.txt")).is_ok());
    }
}
