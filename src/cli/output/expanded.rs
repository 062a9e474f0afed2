//! One block per row, for rows wider than the terminal.

use std::io::{self, Write};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::util::display::ArrayFormatter;

use super::table::{printable, width};
use super::{RowWriter, format_error, grouped, value_options};
use crate::cli::report::Style;

pub(super) struct ExpandedWriter {
    names: Vec<String>,
    name_width: usize,
    style: Style,
    rows: u64,
}

impl ExpandedWriter {
    pub(super) fn new(schema: &SchemaRef, style: Style) -> Self {
        let names: Vec<_> = schema.fields().iter().map(|field| printable(field.name())).collect();
        let name_width = names.iter().map(|name| width(name)).max().unwrap_or(0);
        Self { names, name_width, style, rows: 0 }
    }
}

impl RowWriter for ExpandedWriter {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
        let options = value_options("NULL");
        let formatters: Vec<_> = batch
            .columns()
            .iter()
            .map(|array| ArrayFormatter::try_new(array.as_ref(), &options))
            .collect::<Result<_, _>>()
            .map_err(format_error)?;
        for row in 0..batch.num_rows() {
            self.rows += 1;
            let title = format!("-[ row {} ]", grouped(self.rows));
            writeln!(out, "{}", self.style.dim(&format!("{title:-<width$}", width = self.name_width + 20)))?;
            for (name, (formatter, array)) in self.names.iter().zip(formatters.iter().zip(batch.columns())) {
                let pad = self.name_width - width(name);
                let value = printable(&formatter.value(row).to_string());
                let value = match array.is_null(row) {
                    true => self.style.dim(&value),
                    false => value,
                };
                writeln!(out, "{}{:pad$} | {value}", self.style.bold(name), "")?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}
