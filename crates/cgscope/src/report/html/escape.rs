//! Making text of strangers harmless in markup.

use serde::Serialize;

/// Text in markup, also within a double-quoted attribute.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // No character reference can stand for it, and parsers take it for an error.
            '\0' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JSON for the inside of a `script` element: in it only `<` could end the element or open a comment, and in strings alone can
/// it occur.
pub fn as_script(value: &impl Serialize) -> String {
    // Plain structs of strings and numbers: there is nothing that could fail.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
