//! Prompts: text or a column that the user is entering.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{App, Effect};
use crate::columns::Column;

/// Maximum bytes of the text; useful paths are shorter.
const LONGEST: usize = 128;

/// An open prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text of the filter is being typed. The string is the previous filter, which Esc restores.
    Filter(String),
    /// A sort column is being chosen: the columns, and the index of the marked one.
    Sort(&'static [Column], usize),
}

/// Applies an editing key to a line. Returns false if the key does not edit.
fn edit(line: &mut String, key: KeyEvent) -> bool {
    match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
        (KeyCode::Char('u'), true) => line.clear(),
        (KeyCode::Char('w'), true) => {
            let words = line.trim_end();
            line.truncate(words.rfind(' ').map_or(0, |blank| blank + 1));
        }
        // Some terminals send Ctrl-H for backspace.
        (KeyCode::Backspace, _) | (KeyCode::Char('h'), true) => {
            line.pop();
        }
        (KeyCode::Char(letter), false) if !letter.is_control() && line.len() < LONGEST => line.push(letter),
        _ => return false,
    }
    true
}

impl App {
    /// Adds pasted text to the filter that is being typed.
    pub(super) fn on_paste(&mut self, text: &str) -> Effect {
        if !matches!(self.prompt, Some(Prompt::Filter(_))) {
            return Effect::None;
        }
        for letter in text.chars().take(LONGEST) {
            edit(&mut self.filter, KeyCode::Char(letter).into());
        }
        self.refreshed()
    }

    pub(super) fn on_key_of_prompt(&mut self, prompt: Prompt, key: KeyEvent) -> Effect {
        match prompt {
            Prompt::Filter(_) if key.code == KeyCode::Enter => {}
            Prompt::Filter(before) if key.code == KeyCode::Esc => self.filter = before,
            Prompt::Filter(before) => {
                self.prompt = Some(Prompt::Filter(before));
                match key.code {
                    KeyCode::Up => return self.move_by(-1),
                    KeyCode::Down => return self.move_by(1),
                    _ => edit(&mut self.filter, key),
                };
            }
            Prompt::Sort(columns, at) => return self.on_key_of_sort(columns, at, key),
        }
        self.refreshed()
    }

    fn on_key_of_sort(&mut self, columns: &'static [Column], at: usize, key: KeyEvent) -> Effect {
        let last = columns.len() - 1;
        let at = match key.code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j' | 's') => (at + 1).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Enter => {
                self.set_sort(self.kind(), columns[at], false);
                return self.refreshed();
            }
            KeyCode::Char(letter) if letter.is_ascii_uppercase() => return self.sort_by_key(letter),
            KeyCode::Esc | KeyCode::Char('q') => return Effect::Draw,
            _ => at,
        };
        self.prompt = Some(Prompt::Sort(columns, at));
        Effect::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_as_in_a_shell() {
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
