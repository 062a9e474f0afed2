//! What the text formats have in common: a block of whole records, and rows out of it.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use bytes::Bytes;
use memchr::{memchr, memchr_iter};

use super::isolate::Isolated;
use super::{Origin, RAW_BYTES_MAX, RawRows, RowError, RowErrors, Wanted};
use crate::connectors::{RejectReason, SourceBatch};
use crate::error::{Error, Result};

/// Whole records of one file.
#[derive(Debug, Clone)]
pub(crate) struct TextBlock {
    pub(crate) bytes: Bytes,
    /// For rejects: the file's name, and the number of the block's first line, from 1.
    pub(crate) file: Arc<str>,
    pub(crate) first_line: u64,
    /// The file's header line, in formats that have one.
    pub(crate) header: Option<Arc<str>>,
}

/// A format whose records are stretches of text.
pub(crate) trait TextFormat: Debug + Send + Sync {
    /// Length of the longest prefix of `bytes` that is whole records. `bytes` begins with a record.
    fn whole_records(&self, bytes: &[u8]) -> usize;

    /// Whether a file's first record names the columns.
    fn has_header(&self) -> bool {
        false
    }

    /// Where the first record of `bytes` is and where the next one begins, if it is whole.
    fn first_record(&self, bytes: &[u8]) -> Option<(Range<usize>, usize)> {
        let end = memchr(b'\n', bytes)?;
        Some((0..end, end + 1))
    }

    /// The columns decoded.
    fn wanted(&self) -> &Wanted;

    /// Decodes a block. Offsets count from 0; bad records are rejects.
    ///
    /// # Errors
    /// `Invalid` or `Data` if no record at all can be decoded, for example for a wrong header.
    fn decode(&self, block: &TextBlock) -> Result<SourceBatch>;
}

/// A block that is one record which cannot be decoded, as its reject.
pub(crate) fn reject_line(format: &dyn TextFormat, block: &TextBlock, message: String) -> Result<SourceBatch> {
    let wanted = format.wanted();
    let record = 0..block.bytes.trim_ascii_end().len();
    let origin = TextOrigin { block, records: std::slice::from_ref(&record) };
    let rows = RawRows {
        columns: vec![None; wanted.columns.len()],
        records: Some(vec![]),
        errors: vec![(0, RowError { reason: RejectReason::Malformed, message })],
        row_errors: RowErrors::default(),
    };
    let mut batch = rows.finish(wanted, &origin)?;
    batch.bytes = block.bytes.len() as u64;
    Ok(batch)
}

/// Records of a block by their place in it.
pub(super) struct TextOrigin<'a> {
    pub(super) block: &'a TextBlock,
    pub(super) records: &'a [Range<usize>],
}

impl Origin for TextOrigin<'_> {
    fn records(&self) -> usize {
        self.records.len()
    }

    fn place(&self, record: usize) -> String {
        let before = &self.block.bytes[..self.records[record].start];
        format!("{}:{}", self.block.file, self.block.first_line + memchr_iter(b'\n', before).count() as u64)
    }

    fn raw(&self, record: usize) -> String {
        raw_text(&self.block.bytes[self.records[record].clone()])
    }
}

/// `bytes` as text for a reject, cut where it is very long.
pub(crate) fn raw_text(bytes: &[u8]) -> String {
    if bytes.len() <= RAW_BYTES_MAX {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    format!("{}…", String::from_utf8_lossy(&bytes[..RAW_BYTES_MAX]))
}

/// Puts isolated runs together. `classify` says why a record that failed alone failed.
pub(super) fn assemble(
    isolated: Isolated,
    wanted: &Wanted,
    schema: &arrow::datatypes::SchemaRef,
    raw: &dyn Fn(usize) -> String,
    classify: &dyn Fn(usize, String) -> RowError,
) -> Result<RawRows> {
    let records: Vec<usize> = isolated.good.iter().flat_map(|(range, _)| range.clone()).collect();
    let batch = match <[_; 1]>::try_from(isolated.good) {
        Ok([(_, batch)]) => batch,
        Err(runs) => concat_batches(schema, runs.iter().map(|(_, batch)| batch))
            .map_err(|e| Error::internal("could not join decoded rows").with_source(e))?,
    };
    let mut row_errors = RowErrors::default();
    let columns = wanted.columns.iter().map(|c| Ok(batch.column(schema.index_of(&c.name)?)));
    let columns: Vec<&ArrayRef> = columns
        .collect::<Result<_, arrow::error::ArrowError>>()
        .map_err(|e| Error::internal("a decoder left out a column").with_source(e))?;
    for (column, array) in wanted.columns.iter().zip(&columns) {
        note_overflow(array, &column.name, &|row| raw(records[row]), &mut row_errors);
    }
    let errors = isolated.bad.into_iter().map(|(record, message)| (record, classify(record, message))).collect();
    Ok(RawRows {
        columns: columns.into_iter().cloned().map(Some).collect(),
        records: Some(records),
        errors,
        row_errors,
    })
}

/// A number too large for a DOUBLE reads as infinity: out of range, unless the text says infinity.
fn note_overflow(array: &ArrayRef, column: &str, raw: &dyn Fn(usize) -> String, errors: &mut RowErrors) {
    let infinite: Vec<usize> = match array.data_type() {
        DataType::Float64 => positions(array.as_primitive::<Float64Type>().values(), |v| v.is_infinite()),
        DataType::Float32 => positions(array.as_primitive::<Float32Type>().values(), |v| v.is_infinite()),
        _ => return,
    };
    for row in infinite.into_iter().filter(|row| array.is_valid(*row)) {
        if !raw(row).to_ascii_lowercase().contains("inf") {
            let message = format!("a number is out of range for {}", array.data_type());
            errors.add(row, column, RowError { reason: RejectReason::Range, message });
        }
    }
}

fn positions<T>(values: &[T], is: impl Fn(&T) -> bool) -> Vec<usize> {
    values.iter().enumerate().filter(|(_, v)| is(v)).map(|(i, _)| i).collect()
}

/// Why a decoder refused a value, by the text it quotes: a number is out of range, anything else of another type.
pub(super) fn reason_for_value(text: &str) -> RejectReason {
    let text = text.trim_matches('"');
    let number =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
    match number && text.parse::<f64>().is_ok_and(|v| v.fract() == 0.0) {
        true => RejectReason::Range,
        false => RejectReason::Type,
    }
}

/// One row per record of `records`, or an error.
pub(super) fn exactly(batch: Option<RecordBatch>, records: usize) -> Result<RecordBatch, String> {
    match batch {
        Some(batch) if batch.num_rows() == records => Ok(batch),
        Some(batch) => Err(format!("{} rows instead of {records}", batch.num_rows())),
        None => Err("no row".to_string()),
    }
}
