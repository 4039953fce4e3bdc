//! Labels of series.

/// Names and values, in the order of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    pairs: Vec<(&'static str, String)>,
    /// The same as on text pages, without braces: thousands of lines have it.
    pub text: String,
}

impl Labels {
    pub fn new(pairs: Vec<(&'static str, String)>) -> Self {
        let mut text = String::new();
        for (name, value) in &pairs {
            push(&mut text, name, value);
        }
        Self { pairs, text }
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.pairs.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// Appends `name="value"`, after a comma where something stands before.
pub(crate) fn push(text: &mut String, name: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(name);
    text.push_str("=\"");
    escape(text, value);
    text.push('"');
}

/// What would end a value or a line is written with a backslash.
pub(crate) fn escape(text: &mut String, value: &str) {
    let mut rest = value;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        text.push_str(&rest[..at]);
        text.push_str(match rest.as_bytes()[at] {
            b'\\' => "\\\\",
            b'"' => "\\\"",
            _ => "\\n",
        });
        rest = &rest[at + 1..];
    }
    text.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_value_is_escaped_and_nothing_else() {
        let labels = Labels::new(vec![("cgroup", "/a\\x2d\"b\"\n/é".into()), ("unit", String::new())]);
        assert_eq!(labels.text, "cgroup=\"/a\\\\x2d\\\"b\\\"\\n/é\",unit=\"\"");
    }
}
