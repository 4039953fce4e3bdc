use std::sync::Arc;

/// Replaces characters that control a terminal or change the order of displayed text. Any user can name a thread, a cgroup or a
/// file, and a recording may come from any source.
pub fn printable(text: &str) -> Arc<str> {
    if !text.contains(steers) {
        return text.into();
    }
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect::<String>().into()
}

/// Returns the [`printable`] name of a task, up to the first NUL.
pub fn comm(bytes: &[u8]) -> Arc<str> {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    printable(&String::from_utf8_lossy(name))
}

/// Makes each line of a message [`printable`]; keeps line ends.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// True for characters that control a terminal (C0, delete, C1), separate lines or paragraphs or set the direction of text, and
/// for invisible characters, with which different names look the same.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{ad}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_control_a_terminal_or_reverse_its_text() {
        for steering in [
            '\x07', '\x1b', '\t', '\n', '\u{7f}', '\u{85}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{200f}',
            '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
            '\u{2067}', '\u{2068}', '\u{2069}',
        ] {
            assert_eq!(&*printable(&format!("a{steering}b")), "a\u{fffd}b", "{steering:?}");
        }
        let names = "web-1 (日本) שלום مرحبا é e\u{301} 👩\u{200d}🔧";
        assert_eq!(&*printable(names), names);
        assert_eq!(printable_lines("a\u{202e}\nb\x1b"), "a\u{fffd}\nb\u{fffd}");
    }

    #[test]
    fn a_name_ends_at_its_first_nul_and_need_not_be_utf8() {
        assert_eq!(&*comm(b"bash\0\0\0\0\0\0\0\0\0\0\0\0"), "bash");
        assert_eq!(&*comm(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(&*comm(b"a\x1b[2Jb\0xxxxxxxxx"), "a\u{fffd}[2Jb", "a name must not steer a terminal");
        assert_eq!(&*comm(b"\xff\0xxxxxxxxxxxxxx"), "\u{fffd}");
    }
}
