//! What is being typed or chosen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::columns::Column;

/// As long as any path that tells something.
const LONGEST: usize = 128;

/// What is being typed or chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The filter, as it was before.
    Filter {
        /// The filter that Esc brings back.
        before: String,
    },
    /// A column to sort by, from a list.
    Sort {
        /// The columns.
        columns: Vec<Column>,
        /// The one that is marked.
        at: usize,
    },
}

/// Changes a line by a key; false: the key is none of a line's.
pub fn edit(line: &mut String, key: KeyEvent) -> bool {
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('u'), true) => line.clear(),
        (KeyCode::Char('w'), true) => {
            let words = line.trim_end();
            line.truncate(words.rfind(' ').map_or(0, |blank| blank + 1));
        }
        // The second is the backspace of some terminals.
        (KeyCode::Backspace, _) | (KeyCode::Char('h'), true) => {
            line.pop();
        }
        (KeyCode::Char(letter), false) if !letter.is_control() && line.len() < LONGEST => line.push(letter),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_changed_as_in_a_shell() {
        let ctrl = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let after = |line: &str, key: KeyEvent| {
            let mut line = line.to_owned();
            edit(&mut line, key).then_some(line)
        };
        assert_eq!(after("web", KeyCode::Char('é').into()).as_deref(), Some("webé"));
        assert_eq!(after("webé", KeyCode::Backspace.into()).as_deref(), Some("web"));
        assert_eq!(after("webé", ctrl('h')).as_deref(), Some("web"));
        assert_eq!(after("java -jar web.jar ", ctrl('w')).as_deref(), Some("java -jar "));
        assert_eq!(after("web", ctrl('w')).as_deref(), Some(""));
        assert_eq!(after("java -jar", ctrl('u')).as_deref(), Some(""));
        assert_eq!(after("web", ctrl('b')), None);
        assert_eq!(after(&"w".repeat(LONGEST), KeyCode::Char('w').into()), None);
    }
}
