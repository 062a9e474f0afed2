//! Comma-separated values (RFC 4180).
//!
//! NULL is an empty field and an empty text is `""`, as PostgreSQL's COPY has it, so the two stay apart. Nested values
//! are one field of JSON.

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::util::display::ArrayFormatter;

use super::json::JsonCells;
use super::{RowWriter, format_error, is_nested, value_options};

pub(super) struct CsvWriter {
    schema: SchemaRef,
    header_written: bool,
}

impl CsvWriter {
    pub(super) fn new(schema: SchemaRef) -> Self {
        Self { schema, header_written: false }
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.header_written {
            return Ok(());
        }
        self.header_written = true;
        for (column, field) in self.schema.fields().iter().enumerate() {
            separator(column, out)?;
            value(field.name(), out)?;
        }
        writeln!(out)
    }
}

impl RowWriter for CsvWriter {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
        self.header(out)?;
        let options = value_options("");
        let mut columns = batch
            .columns()
            .iter()
            .map(|array| Column::try_new(array.as_ref(), &options))
            .collect::<io::Result<Vec<_>>>()?;
        // A column of NULLs alone, or of a dictionary with NULL in it, has no validity of its own.
        let nulls: Vec<_> = batch.columns().iter().map(Array::logical_nulls).collect();
        for row in 0..batch.num_rows() {
            for (i, column) in columns.iter_mut().enumerate() {
                separator(i, out)?;
                if nulls[i].as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                    value(&column.text(row), out)?;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.header(out)
    }
}

enum Column<'a> {
    Plain(ArrayFormatter<'a>),
    Nested(JsonCells),
}

impl<'a> Column<'a> {
    fn try_new(array: &'a dyn Array, options: &arrow::util::display::FormatOptions<'a>) -> io::Result<Self> {
        match is_nested(array.data_type()) {
            true => Ok(Self::Nested(JsonCells::try_new(array)?)),
            false => ArrayFormatter::try_new(array, options).map(Self::Plain).map_err(format_error),
        }
    }

    fn text(&mut self, row: usize) -> String {
        match self {
            Self::Plain(formatter) => formatter.value(row).to_string(),
            Self::Nested(cells) => cells.text(row).to_string(),
        }
    }
}

fn separator(column: usize, out: &mut dyn Write) -> io::Result<()> {
    match column {
        0 => Ok(()),
        _ => out.write_all(b","),
    }
}

fn value(text: &str, out: &mut dyn Write) -> io::Result<()> {
    match text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        true => write!(out, "\"{}\"", text.replace('"', "\"\"")),
        false => out.write_all(text.as_bytes()),
    }
}
