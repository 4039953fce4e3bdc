//! Renders pages as text: OpenMetrics 1.0 and Prometheus 0.0.4.

use std::{fmt::Write as _, sync::LazyLock};

use crate::metrics::{Last, Writer};
use crate::protobuf::{CLASSIC, upper_seconds};
use crate::value::{Labels, Value, canonical, push_label};
use crate::{Family, Kind, waits::WaitSeries};

/// The `le` values of the classic buckets, except for the last value `+Inf`.
static LE: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..CLASSIC).map(|row| canonical(upper_seconds(row))).collect());

pub(crate) struct Text {
    out: String,
    /// Whether the format is OpenMetrics instead of Prometheus text.
    is_open: bool,
    family: Family,
    /// Whether the header of the family has been written.
    is_begun: bool,
    /// Labels of the current series. The buffer is reused.
    labels: String,
}

impl Text {
    pub fn new(is_open: bool) -> Self {
        let (out, labels) = (String::with_capacity(64 << 10), String::new());
        Self { out, is_open, family: crate::family::WAIT, is_begun: false, labels }
    }

    fn header(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        // In OpenMetrics, the header has the name of the family, without the suffix of its samples.
        let Family { kind, unit, help, .. } = self.family;
        let name = if self.is_open { self.family.name.into() } else { self.family.sample_name() };
        // No sentence has a character that must be escaped.
        let _ = writeln!(self.out, "# HELP {name} {help}");
        let _ = writeln!(self.out, "# TYPE {name} {}", kind.name());
        if let Some(unit) = unit.filter(|_| self.is_open) {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
    }

    /// Writes the line of a sample. `more` is a label that follows the current labels.
    fn line(&mut self, suffix: &str, more: Last<'_>, value: Value) {
        self.out.push_str(self.family.name);
        self.out.push_str(suffix);
        let length = self.labels.len();
        push_label(&mut self.labels, more);
        if !self.labels.is_empty() {
            self.out.extend(["{", &self.labels, "}"]);
        }
        self.labels.truncate(length);
        self.out.push(' ');
        value.write(&mut self.out);
        self.out.push('\n');
    }

    fn set_labels(&mut self, labels: &Labels, last: Last<'_>) {
        self.labels.clone_from(&labels.text);
        push_label(&mut self.labels, last);
    }
}

impl Writer for Text {
    fn begin(&mut self, family: &Family) {
        (self.family, self.is_begun) = (*family, false);
    }

    fn sample(&mut self, labels: &Labels, last: Last<'_>, value: Value, created_unix_ns: Option<u64>) {
        self.header();
        self.set_labels(labels, last);
        let is_counter = self.family.kind == Kind::Counter;
        self.line(if is_counter { "_total" } else { "" }, None, value);
        if let Some(created) = created_unix_ns.filter(|_| is_counter && self.is_open) {
            self.line("_created", None, Value::Ns(created));
        }
    }

    fn histogram(&mut self, labels: &Labels, last: Last<'_>, series: &WaitSeries, created_unix_ns: u64) {
        self.header();
        self.set_labels(labels, last);
        for (le, count) in LE.iter().zip(series.classic()) {
            self.line("_bucket", Some(("le", le)), Value::Count(count));
        }
        let count = series.count();
        self.line("_bucket", Some(("le", "+Inf")), Value::Count(count));
        self.line("_count", None, Value::Count(count));
        self.line("_sum", None, Value::Ns(series.ns));
        if self.is_open {
            self.line("_created", None, Value::Ns(created_unix_ns));
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.is_open {
            self.out.push_str("# EOF\n");
        }
        self.out.into_bytes()
    }
}
