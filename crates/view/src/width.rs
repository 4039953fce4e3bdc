//! Text widths in cells of a terminal: a character takes one cell, two or none.

use std::iter;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const CUT: char = '…';

pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns the number of cells of a bar. A count above 0 takes at least one cell.
pub fn bar_length(count: u64, most: u64, cells: usize) -> usize {
    let length = (u128::from(count) * cells as u128 / u128::from(most.max(1))) as usize;
    length.max(usize::from(count != 0))
}

/// Returns the beginning of a text, with a mark where the text is cut. Long ids are shortened first.
pub fn cut_end(text: &str, cells: usize) -> String {
    cut(text, cells, |text, room| fitting(text.chars(), room).chain([CUT]).collect())
}

/// Returns the end of a text, with a mark where the text is cut. The end distinguishes paths. Long ids are shortened first.
pub fn cut_start(text: &str, cells: usize) -> String {
    cut(text, cells, |text, room| {
        let kept: Vec<char> = fitting(text.chars().rev(), room).collect();
        iter::once(CUT).chain(kept.into_iter().rev()).collect()
    })
}

fn cut(text: &str, cells: usize, kept: fn(&str, usize) -> String) -> String {
    if width(text) <= cells {
        return text.into();
    }
    let short = short(text);
    match cells.checked_sub(1) {
        _ if width(&short) <= cells => short,
        Some(room) => kept(&short, room),
        None => String::new(),
    }
}

fn fitting(letters: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    letters.scan(0, move |used, letter| {
        *used += letter.width().unwrap_or(0);
        (*used <= room).then_some(letter)
    })
}

/// Left-aligns the text in exactly this many cells.
pub fn left(text: &str, cells: usize) -> String {
    let text = cut_end(text, cells);
    let blanks = cells.saturating_sub(width(&text));
    text + &" ".repeat(blanks)
}

/// Right-aligns the text in exactly this many cells.
pub fn right(text: &str, cells: usize) -> String {
    let text = cut_end(text, cells);
    " ".repeat(cells.saturating_sub(width(&text))) + &text
}

/// Left-aligns a path in exactly this many cells. A long path loses its beginning.
pub fn path(text: &str, cells: usize) -> String {
    left(&cut_start(text, cells), cells)
}

/// Wraps words to lines of at most this many cells. A longer word is cut.
pub fn wrapped(text: &str, cells: usize) -> Vec<String> {
    lines(text, cells, 0).iter().map(|line| cut_start(line, cells)).collect()
}

/// Wraps words to lines of at most this many cells, unless a word is longer. All lines but the first leave `indent` cells free.
/// Blanks within a line are kept.
pub(crate) fn lines(text: &str, cells: usize, indent: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_inclusive(' ') {
        let at = width(&line) + if lines.is_empty() { 0 } else { indent };
        if at + width(word.trim_end_matches(' ')) > cells && at > indent {
            lines.push(std::mem::take(&mut line).trim_end_matches(' ').to_owned());
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Minimum number of digits of a container or image id, and number of digits to keep. Docker and crictl keep the same number.
const ID: (usize, usize) = (32, 12);
/// Number of digits in each part of a uid. `-` separates the parts, or `_` if systemd's cgroup driver wrote the name.
const UID: [usize; 5] = [8, 4, 4, 4, 12];

/// Shortens the ids in a path or in a sentence with paths: `/kubepods/pod1c8e2f4a…/9f2d7c4b1a8e…`.
pub fn short(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    // Only ASCII digits are cut, so `at` is always at the boundary of a character.
    while let Some(letter) = text[at..].chars().next() {
        let starts = at == 0 || !bytes[at - 1].is_ascii_hexdigit() || text[..at].ends_with("pod");
        if let Some((kept, length)) = uid(&bytes[at..]).or_else(|| id(&bytes[at..])).filter(|_| starts) {
            out.push_str(&text[at..at + kept]);
            out.push(CUT);
            at += length;
        } else {
            out.push(letter);
            at += letter.len_utf8();
        }
    }
    out
}

/// Returns the number of bytes to keep of an id that begins here, and the length of the id.
fn id(bytes: &[u8]) -> Option<(usize, usize)> {
    let length = digits(bytes);
    (length >= ID.0).then_some((ID.1, length))
}

fn uid(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    for (part, length) in UID.into_iter().enumerate() {
        if part != 0 {
            matches!(bytes.get(at), Some(b'-' | b'_')).then_some(())?;
            at += 1;
        }
        (digits(&bytes[at..]) == length).then_some(())?;
        at += length;
    }
    Some((UID[0], at))
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_the_shortest_is_visible() {
        assert_eq!(bar_length(1_000_000, 1_000_000, 10), 10);
        assert_eq!(bar_length(1, 1_000_000, 10), 1);
        assert_eq!(bar_length(0, 1_000_000, 10), 0);
    }

    #[test]
    fn a_wide_letter_takes_two_cells() {
        assert_eq!(left("日本語", 8), "日本語  ");
        assert_eq!(left("日本語", 4), "日… ", "half a letter is not drawn");
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
    fn a_sentence_is_wrapped_between_words() {
        assert_eq!(wrapped("so there is no histogram", 11), ["so there is", "no", "histogram"]);
        assert_eq!(wrapped("histogram", 4), ["…ram"]);
    }

    #[test]
    fn ids_are_shortened_and_names_are_kept() {
        let id = "9f2d7c4b1a8e6035d4c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a091827364";
        for (path, said) in [
            (
                format!("/kubepods/burstable/pod1c8e2f4a-6b7d-4e90-a3f5-0d9b8c7a6e51/{id}"),
                "/kubepods/burstable/pod1c8e2f4a…/9f2d7c4b1a8e…",
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-pod1c8e2f4a_6b7d_4e90_a3f5_0d9b8c7a6e51.slice/cri-containerd-{id}.scope"
                ),
                "/kubepods.slice/kubepods-pod1c8e2f4a….slice/cri-containerd-9f2d7c4b1a8e….scope",
            ),
            ("/system.slice/cafe.service".into(), "/system.slice/cafe.service"),
            ("/日本/deadbeef-dead".into(), "/日本/deadbeef-dead"),
            (format!("/docker/{id}: its tasks waited"), "/docker/9f2d7c4b1a8e…: its tasks waited"),
            (String::new(), ""),
        ] {
            assert_eq!(short(&path), said);
        }
    }
}
