//! A row for each task and interval, as text (RFC 4180): a line of names, then the rows. Null is an empty field.

use cgscope_model::Interval;

use crate::{
    About, Out, Result, Sink,
    table::{self, Cell, Column, Kind},
    time::rfc3339,
};

/// Anybody can name a thread or a cgroup, and spreadsheets run a text that begins like this, wide forms included. The apostrophe
/// is one of them, so that without a leading one every text is what it was.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r', '\'', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'])
}

/// Writes rows as they come.
pub(crate) struct Csv {
    writer: csv::Writer<Out>,
    columns: Vec<Column>,
    about: About,
}

impl Csv {
    pub(crate) fn new(out: Out, about: About) -> Result<Self> {
        let columns = table::columns();
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(columns.iter().map(|column| &column.name))?;
        Ok(Self { writer, columns, about })
    }
}

impl Sink for Csv {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        let start = rfc3339(interval.start_unix_ns);
        let (mut digits, mut quoted) = (String::new(), String::new());
        let Self { writer, columns, about } = self;
        table::for_each_row(interval, about, |row| {
            for column in &*columns {
                let field = match (column.cell(row), column.kind) {
                    (None, _) => "",
                    (Some(Cell::Text(text)), _) if is_formula(text) => {
                        quoted.clear();
                        quoted.extend(["'", text]);
                        &quoted
                    }
                    (Some(Cell::Text(text)), _) => text,
                    (Some(Cell::Number(_)), Kind::Moment) => &start,
                    (Some(Cell::Number(number)), _) => {
                        digits.clear();
                        // Writing to a String cannot fail.
                        let _ = std::fmt::Write::write_fmt(&mut digits, format_args!("{number}"));
                        &digits
                    }
                };
                writer.write_field(field)?;
            }
            Ok(writer.write_record(None::<&[u8]>)?)
        })
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        Ok(self.writer.flush()?)
    }
}
