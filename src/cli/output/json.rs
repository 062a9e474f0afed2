//! JSON, as one array or one object per line.
//!
//! Every object has every column, NULL as `null`. NaN and the infinities, which JSON does not have, are `null` too.

use std::fmt::Debug;
use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, make_array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::json::WriterBuilder;
use arrow::json::writer::JsonFormat;
use arrow::util::display::ArrayFormatter;

use super::{RowWriter, format_error, value_options};

/// Rows apart from each other by a comma or by nothing.
pub(super) struct JsonWriter {
    frame: Frame,
    rows_written: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    Array,
    Lines,
}

impl JsonWriter {
    pub(super) fn array() -> Self {
        Self { frame: Frame::Array, rows_written: false }
    }

    pub(super) fn lines() -> Self {
        Self { frame: Frame::Lines, rows_written: false }
    }
}

impl RowWriter for JsonWriter {
    fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
        let rows = encode(batch).map_err(format_error)?;
        // Control characters are escaped inside JSON texts, so a line break is the end of a row and nothing else.
        for row in rows.split(|byte| *byte == b'\n').filter(|row| !row.is_empty()) {
            if self.frame == Frame::Array {
                out.write_all(if self.rows_written { b",\n " } else { b"[" })?;
            }
            out.write_all(row)?;
            if self.frame == Frame::Lines {
                out.write_all(b"\n")?;
            }
            self.rows_written = true;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        match (self.frame, self.rows_written) {
            (Frame::Lines, _) => Ok(()),
            (Frame::Array, true) => out.write_all(b"]\n"),
            (Frame::Array, false) => out.write_all(b"[]\n"),
        }
    }
}

#[derive(Debug, Default)]
struct Rows;

impl JsonFormat for Rows {
    fn end_row<W: Write>(&self, out: &mut W) -> Result<(), ArrowError> {
        out.write_all(b"\n")?;
        Ok(())
    }
}

/// One line of JSON per row.
fn encode(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let attempt = |batch: &RecordBatch| {
        let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, Rows>(Vec::new());
        writer.write(batch)?;
        writer.finish()?;
        Ok(writer.into_inner())
    };
    match attempt(batch) {
        Err(ArrowError::JsonError(_)) => attempt(&as_texts(batch)?),
        other => other,
    }
}

/// The batch with the columns that JSON has no form for (intervals, unions, …) as the text a table shows.
fn as_texts(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let options = value_options("");
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let one = RecordBatch::try_new(Arc::new(Schema::new(vec![field.clone()])), vec![array.clone()])?;
        let mut probe = WriterBuilder::new().build::<_, Rows>(io::sink());
        if probe.write(&one).is_ok() {
            fields.push(field.clone());
            columns.push(array.clone());
            continue;
        }
        let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
        let texts: StringArray =
            (0..array.len()).map(|row| array.is_valid(row).then(|| formatter.value(row).to_string())).collect();
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(texts));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// The values of one column, each as JSON.
pub(super) struct JsonCells {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl JsonCells {
    pub(super) fn try_new(array: &dyn Array) -> io::Result<Self> {
        let field = Field::new("v", array.data_type().clone(), true);
        let column = make_array(array.to_data());
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).map_err(format_error)?;
        let bytes = encode(&batch).map_err(format_error)?;
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
        Ok(Self { bytes, ends })
    }

    /// The value of `row`: its line without `{"v":` and `}`.
    pub(super) fn text(&self, row: usize) -> &str {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        let line = &self.bytes[start..self.ends[row]];
        let line = std::str::from_utf8(line).unwrap_or_default();
        line.strip_prefix("{\"v\":").and_then(|rest| rest.strip_suffix('}')).unwrap_or(line)
    }
}
