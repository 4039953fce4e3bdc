//! Formats the figures and labels of a page.

use std::fmt::Write;

use crate::metrics::Last;

/// A figure. Text pages show integers exactly; protobuf pages have only floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Count(u64),
    /// A time in ns. Text pages show it in seconds, with all digits.
    Ns(u64),
    Float(f64),
}

/// Nanoseconds in a second.
pub(crate) const NS: u64 = 1_000_000_000;

impl Value {
    pub fn us(us: u64) -> Self {
        Self::Ns(us.saturating_mul(1_000))
    }

    /// Returns the value in the unit of its family.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Ns(ns) => ns as f64 / NS as f64,
            Self::Float(value) => value,
        }
    }

    /// Writes the value with enough digits for parsers to get exactly the same value.
    pub fn write(self, out: &mut String) {
        // Writing to a `String` cannot fail.
        let _ = match self {
            Self::Count(count) => write!(out, "{count}"),
            Self::Ns(ns) if ns.is_multiple_of(NS) => write!(out, "{}", ns / NS),
            Self::Ns(ns) => {
                let written = write!(out, "{}.{:09}", ns / NS, ns % NS);
                out.truncate(out.trim_end_matches('0').len());
                written
            }
            Self::Float(value) if value == f64::INFINITY => write!(out, "+Inf"),
            Self::Float(value) if value == f64::NEG_INFINITY => write!(out, "-Inf"),
            Self::Float(value) => write!(out, "{value}"),
        };
    }
}

/// Formats `le` as Prometheus does: like Go's `%g`, with all digits. Another format would create a new series.
pub(crate) fn canonical(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once("e-").unwrap_or((&text, "0"));
        return format!("{digits}e-{exponent:0>2}");
    }
    format!("{value}")
}

/// Label names and values, in the order of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    pub pairs: Vec<(&'static str, String)>,
    /// The labels as text pages show them, without braces. We store this text because thousands of lines contain it.
    pub text: String,
}

impl Labels {
    pub fn new(pairs: Vec<(&'static str, String)>) -> Self {
        let mut text = String::new();
        pairs.iter().for_each(|(name, value)| push_label(&mut text, Some((*name, value))));
        Self { pairs, text }
    }

    /// Returns these labels and one more.
    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut labels = self.clone();
        push_label(&mut labels.text, Some((name, value)));
        labels.pairs.push((name, value.to_owned()));
        labels
    }
}

/// Appends `name="value"` if there is a label, after a comma unless `text` is empty.
pub(crate) fn push_label(text: &mut String, label: Last<'_>) {
    let Some((name, value)) = label else { return };
    if !text.is_empty() {
        text.push(',');
    }
    text.extend([name, "=\""]);
    // Escapes the characters that would end a value or a line.
    for c in value.chars() {
        match c {
            '\n' => text.push_str("\\n"),
            '\\' | '"' => text.extend(['\\', c]),
            _ => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Value) -> String {
        let mut out = String::from("x 10");
        value.write(&mut out);
        out.split_off(4)
    }

    #[test]
    fn seconds_are_exact_to_the_nanosecond() {
        let said = [0, 1, 10, 1_500_000_000, 20_000_000_000, u64::MAX].map(|ns| text(Value::Ns(ns)));
        assert_eq!(said, ["0", "0.000000001", "0.00000001", "1.5", "20", "18446744073.709551615"]);
        assert_eq!(text(Value::us(250_000)), "0.25");
    }

    #[test]
    fn infinity_and_nan_are_written_as_prometheus_reads_them() {
        assert_eq!(
            [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 2.5].map(|value| text(Value::Float(value))),
            ["+Inf", "-Inf", "NaN", "2.5"]
        );
    }

    #[test]
    fn small_numbers_are_written_as_in_go() {
        let said = [1e-6, 1.6e-5, 6.4e-5, 0.000128, 1.048576, 0.0, 67.108864].map(canonical);
        assert_eq!(said, ["1e-06", "1.6e-05", "6.4e-05", "0.000128", "1.048576", "0", "67.108864"]);
    }

    #[test]
    fn only_characters_that_end_a_value_or_a_line_are_escaped() {
        let labels = Labels::new(vec![("cgroup", "/a\\x2d\"b\"\n/é".into()), ("unit", String::new())]);
        assert_eq!(labels.text, "cgroup=\"/a\\\\x2d\\\"b\\\"\\n/é\",unit=\"\"");
    }
}
