//! Text in cells of a terminal: a letter may take two, or none.

use crate::names;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands for text that was cut away.
const CUT: char = '…';

/// Cells that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text, in at most so many cells; where something is cut away, with a mark. Ids are shortened first.
pub fn cut_end(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.into();
    }
    let text = names::short(text);
    if width(&text) <= cells {
        return text;
    }
    let Some(room) = cells.checked_sub(1) else { return String::new() };
    let mut kept: String = text.chars().scan(0, |used, letter| take(used, letter, room)).collect();
    kept.push(CUT);
    kept
}

/// The end of a text, as above: what tells paths apart.
pub fn cut_start(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.into();
    }
    let text = names::short(text);
    if width(&text) <= cells {
        return text;
    }
    let Some(room) = cells.checked_sub(1) else { return String::new() };
    let kept: Vec<char> = text.chars().rev().scan(0, |used, letter| take(used, letter, room)).collect();
    std::iter::once(CUT).chain(kept.into_iter().rev()).collect()
}

fn take(used: &mut usize, letter: char, room: usize) -> Option<char> {
    *used += letter.width().unwrap_or(0);
    (*used <= room).then_some(letter)
}

/// The text and blanks after it, in exactly so many cells.
pub fn left(text: &str, cells: usize) -> String {
    let mut text = cut_end(text, cells);
    text.extend(std::iter::repeat_n(' ', cells.saturating_sub(width(&text))));
    text
}

/// Blanks and the text, as above.
pub fn right(text: &str, cells: usize) -> String {
    let text = cut_end(text, cells);
    " ".repeat(cells.saturating_sub(width(&text))) + &text
}

/// A path and blanks after it, as above: its beginning is cut away.
pub fn path(text: &str, cells: usize) -> String {
    left(&cut_start(text, cells), cells)
}

/// Words in lines of at most so many cells; a word that is longer is cut.
pub fn wrapped(text: &str, cells: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= cells => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(cut_start(word, cells)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_letter_takes_two_cells() {
        assert_eq!(left("日本語", 8), "日本語  ");
        assert_eq!(left("日本語", 4), "日… ", "half a letter is none");
        assert_eq!(width(&left("日本語", 4)), 4);
        assert_eq!(path("/a/日本語", 6), "…本語 ");
    }

    #[test]
    fn a_path_keeps_its_end_and_a_name_its_beginning() {
        assert_eq!(path("/kubepods/pod1/container", 10), "…container");
        assert_eq!(left("averylongname", 6), "avery…");
        assert_eq!(right("12ms", 7), "   12ms");
        assert_eq!((left("a", 0), path("/a", 0), right("a", 0)), Default::default());
    }

    #[test]
    fn a_sentence_is_broken_between_words() {
        assert_eq!(wrapped("so there is no histogram", 11), ["so there is", "no", "histogram"]);
        assert_eq!(wrapped("histogram", 4), ["…ram"]);
    }
}
