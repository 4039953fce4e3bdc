//! Writes Parquet: the same rows as in CSV. All columns are typed and optional. Row groups are compressed, and fit in memory.

use std::{collections::HashMap, mem, sync::Arc};

use cgscope_model::{Interval, Losses};
use parquet::{
    basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::{Type, TypePtr},
};

use crate::{
    About, Out, Result, Sink,
    table::{self, TableCell, TableColumn, TableType},
};

/// Number of rows in a row group, which takes about 20 MiB. A reader needs memory for only one row group.
const GROUP: usize = 1 << 16;

pub(crate) struct Parquet {
    writer: SerializedFileWriter<Out>,
    columns: Vec<(ColumnValues, TableColumn)>,
    rows: usize,
    about: About,
    losses: Losses,
}

impl Parquet {
    pub(crate) fn new(out: Out, about: About) -> Result<Self> {
        let columns = table::columns();
        let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder("task").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(format!("cgscope {}", about.cgscope_version))
            .set_key_value_metadata(Some(vec![
                KeyValue::new("schema".to_owned(), table::SCHEMA.to_owned()),
                KeyValue::new("measured_by".to_owned(), about.measured_by.clone()),
            ]));
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
        let columns = columns.into_iter().map(|column| (ColumnValues::default(), column));
        Ok(Self { writer, columns: columns.collect(), rows: 0, about, losses: Losses::default() })
    }

    fn write_group(&mut self) -> Result<()> {
        if mem::take(&mut self.rows) == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for (cells, column) in &mut self.columns {
            if let Some(mut writer) = group.next_column()? {
                cells.write(&mut writer, column.holds)?;
                writer.close()?;
            }
        }
        group.close()?;
        Ok(())
    }
}

impl Sink for Parquet {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        let Self { columns, rows, about, .. } = self;
        table::for_each_row(interval, about, |row| {
            columns.iter_mut().for_each(|(cells, column)| cells.push((column.cell)(row), column.holds));
            *rows += 1;
            Ok(())
        })?;
        self.losses.append(&interval.losses);
        if self.rows >= GROUP { self.write_group() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.write_group()?;
        let losses = KeyValue::new("losses".to_owned(), self.losses.to_string());
        self.writer.append_key_value_metadata(losses);
        self.writer.close()?;
        Ok(())
    }
}

fn field(column: &TableColumn) -> Result<TypePtr> {
    let integer = LogicalType::integer;
    let (physical, logical) = match column.holds {
        TableType::Text => (Physical::BYTE_ARRAY, LogicalType::String),
        TableType::Int32 => (Physical::INT32, integer(32, true)),
        TableType::Int64 => (Physical::INT64, integer(64, true)),
        TableType::Id64 => (Physical::INT64, integer(64, false)),
        TableType::Moment => (Physical::INT64, LogicalType::timestamp(true, TimeUnit::MICROS)),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(Some(logical));
    Ok(Arc::new(field.build()?))
}

#[derive(Default)]
struct ColumnValues {
    /// Definition levels of the cells: 1 for a value, 0 for a null.
    levels: Vec<i16>,
    texts: Vec<ByteArray>,
    /// Texts that already occurred, so that equal texts share their bytes.
    known: HashMap<Box<str>, ByteArray>,
    numbers: Vec<i64>,
}

impl ColumnValues {
    fn push(&mut self, cell: Option<TableCell<'_>>, holds: TableType) {
        self.levels.push(cell.is_some().into());
        match cell {
            None => {}
            Some(TableCell::Text(text)) => {
                if !self.known.contains_key(text) {
                    self.known.insert(text.into(), ByteArray::from(text));
                }
                self.texts.extend(self.known.get(text).cloned());
            }
            Some(TableCell::Number(number)) => self.numbers.push(match holds {
                // Keep all 64 bits. The logical type of the column is unsigned.
                TableType::Id64 => number.cast_signed(),
                TableType::Moment => (number / 1_000).cast_signed(),
                _ => i64::try_from(number).unwrap_or(i64::MAX),
            }),
        }
    }

    fn write(&mut self, column: &mut SerializedColumnWriter<'_>, holds: TableType) -> Result<()> {
        let Self { levels, texts, numbers, .. } = mem::take(self);
        let levels = Some(levels.as_slice());
        match holds {
            TableType::Text => column.typed::<ByteArrayType>().write_batch(&texts, levels, None)?,
            TableType::Int32 => {
                let small = |number: &i64| i32::try_from(*number).unwrap_or(i32::MAX);
                let numbers: Vec<i32> = numbers.iter().map(small).collect();
                column.typed::<Int32Type>().write_batch(&numbers, levels, None)?
            }
            TableType::Int64 | TableType::Id64 | TableType::Moment => {
                column.typed::<Int64Type>().write_batch(&numbers, levels, None)?
            }
        };
        Ok(())
    }
}
