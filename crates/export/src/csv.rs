//! Writes CSV (RFC 4180): a header row, then a row for each task and interval. A null is an empty field.

use std::io;

use cgscope_model::{Interval, units};

use crate::{
    About, Out, Result, Sink,
    table::{self, TableCell, TableColumn, TableType},
};

/// Whether a text needs a leading apostrophe. Anybody can choose the name of a thread or a cgroup, and spreadsheets execute text
/// that starts like a formula. A text that already starts with an apostrophe gets another one, so that removing one always
/// restores the text.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'])
}

pub(crate) struct Csv {
    writer: csv::Writer<Out>,
    columns: Vec<TableColumn>,
    about: About,
}

impl Csv {
    pub(crate) fn new(out: Out, about: About) -> Result<Self> {
        let columns = table::columns();
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(columns.iter().map(|column| &column.name)).map_err(io::Error::from)?;
        Ok(Self { writer, columns, about })
    }
}

impl Sink for Csv {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        let start = rfc3339(interval.start_unix_ns);
        let Self { writer, columns, about } = self;
        table::for_each_row(interval, about, |row| {
            for column in &*columns {
                let owned;
                let field = match ((column.cell)(row), column.holds) {
                    (None, _) => "",
                    (Some(TableCell::Text(text)), _) if is_formula(text) => {
                        owned = format!("'{text}");
                        &owned
                    }
                    (Some(TableCell::Text(text)), _) => text,
                    (Some(TableCell::Number(_)), TableType::Moment) => &start,
                    (Some(TableCell::Number(number)), _) => {
                        owned = number.to_string();
                        &owned
                    }
                };
                writer.write_field(field).map_err(io::Error::from)?;
            }
            Ok(writer.write_record(None::<&[u8]>).map_err(io::Error::from)?)
        })
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        Ok(self.writer.flush()?)
    }
}

/// Formats ns since 1970 as `2026-11-21T14:06:24.123456Z`, rounded down to microseconds.
fn rfc3339(unix_ns: u64) -> String {
    let (date, time) = (units::date(unix_ns), units::time_of_day(unix_ns));
    let time = time.trim_end_matches(" UTC");
    format!("{date}T{time}.{:06}Z", unix_ns / 1_000 % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000_000), text);
        }
        assert_eq!(rfc3339(1_795_269_984_123_456_789), "2026-11-21T14:06:24.123456Z");
    }
}
