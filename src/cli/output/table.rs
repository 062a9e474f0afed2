//! Aligned columns.
//!
//! ```text
//! +----------------------+--------+-----+
//! | window_start         | origin |   n |
//! +----------------------+--------+-----+
//! | 2013-01-01T10:00:00Z | EWR    |   6 |
//! +----------------------+--------+-----+
//! ```
//!
//! The widths of a complete answer come from its first rows, those of a stream from its types and first batch. A later
//! cell that is wider widens its column from there on: rows are never cut, and never rewritten.

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::display::ArrayFormatter;
use unicode_width::UnicodeWidthStr;

use super::{Arrival, RowWriter, format_error, value_options};
use crate::cli::report::Style;

/// Rows held back to learn the widths of a complete answer.
const SAMPLE_ROWS: usize = 2_000;

pub(super) struct TableWriter {
    schema: SchemaRef,
    style: Style,
    right: Vec<bool>,
    widths: Vec<usize>,
    sample_rows: usize,
    held: Vec<Row>,
    header_written: bool,
}

type Row = Vec<Cell>;

struct Cell {
    text: String,
    is_null: bool,
}

impl TableWriter {
    pub(super) fn new(schema: SchemaRef, arrival: Arrival, style: Style) -> Self {
        let columns = schema.fields().iter();
        let usual = |data_type: &DataType| match arrival {
            Arrival::Complete => 1,
            Arrival::Live => usual_width(data_type),
        };
        Self {
            right: columns.clone().map(|field| field.data_type().is_numeric()).collect(),
            widths: columns.map(|field| width(&printable(field.name())).max(usual(field.data_type()))).collect(),
            sample_rows: match arrival {
                Arrival::Complete => SAMPLE_ROWS,
                Arrival::Live => 0,
            },
            schema,
            style,
            held: Vec::new(),
            header_written: false,
        }
    }

    fn border(&self, out: &mut dyn Write) -> io::Result<()> {
        for width in &self.widths {
            write!(out, "+{:-<1$}", "", width + 2)?;
        }
        writeln!(out, "+")
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.border(out)?;
        for (column, field) in self.schema.fields().iter().enumerate() {
            let name = printable(field.name());
            let painted = self.style.bold(&name);
            self.cell(column, &painted, width(&name), out)?;
        }
        writeln!(out, "|")?;
        self.border(out)?;
        self.header_written = true;
        Ok(())
    }

    fn cell(&self, column: usize, painted: &str, width: usize, out: &mut dyn Write) -> io::Result<()> {
        let pad = self.widths[column] - width;
        match self.right[column] {
            true => write!(out, "| {:pad$}{painted} ", ""),
            false => write!(out, "| {painted}{:pad$} ", ""),
        }
    }

    fn release(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.held);
        for row in &rows {
            for (width_so_far, cell) in self.widths.iter_mut().zip(row) {
                *width_so_far = (*width_so_far).max(width(&cell.text));
            }
        }
        if !self.header_written {
            self.header(out)?;
        }
        for row in &rows {
            for (column, cell) in row.iter().enumerate() {
                let cell_width = width(&cell.text);
                match cell.is_null {
                    true => self.cell(column, &self.style.dim(&cell.text), cell_width, out)?,
                    false => self.cell(column, &cell.text, cell_width, out)?,
                }
            }
            writeln!(out, "|")?;
        }
        Ok(())
    }
}

impl RowWriter for TableWriter {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
        let options = value_options("NULL");
        let formatters: Vec<_> = batch
            .columns()
            .iter()
            .map(|array| ArrayFormatter::try_new(array.as_ref(), &options))
            .collect::<Result<_, _>>()
            .map_err(format_error)?;
        for row in 0..batch.num_rows() {
            let cells = formatters.iter().zip(batch.columns()).map(|(formatter, array)| Cell {
                text: printable(&formatter.value(row).to_string()),
                is_null: array.is_null(row),
            });
            self.held.push(cells.collect());
        }
        match self.header_written || self.held.len() >= self.sample_rows {
            true => self.release(out),
            false => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.release(out)?;
        self.border(out)
    }
}

/// What the values of a type usually need, so that the rows of a stream stay aligned from the first one on.
fn usual_width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Timestamp(_, _) => 20,
        DataType::Date32 | DataType::Date64 | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 10,
        DataType::Boolean => 5,
        numeric if numeric.is_floating() => 12,
        numeric if numeric.is_numeric() => 8,
        _ => 1,
    }
}

/// Columns a text takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The text on one line, without the control characters that would move the cursor or recolour the terminal.
pub(super) fn printable(text: &str) -> String {
    match text.chars().any(char::is_control) {
        false => text.to_string(),
        true => text.chars().fold(String::new(), |mut line, c| {
            match c.is_control() {
                true => line.extend(c.escape_default()),
                false => line.push(c),
            }
            line
        }),
    }
}
