//! From bytes to columns: JSON lines, CSV, Parquet, Arrow IPC.
//!
//! Decoding is arrow-json's, arrow-csv's, parquet's and arrow-ipc's. What is ours is around it: which bytes are a record
//! ([`text::TextFormat::whole_records`]), what the declared types mean ([`convert`]), and what happens to a row that does
//! not fit: its batch is halved until the bad rows stand alone, and the good ones keep their order and offsets.
//!
//! Formats know nothing of files, offsets of a split, or threads: offsets in what they return count from 0 within the
//! stretch they were given, and the reader moves them to their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, filter};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use jiff::tz::TimeZone;

use super::{ColumnDefinition, Notes, Offsets, Position, Reject, RejectReason, SourceBatch};
use crate::error::{Error, Result};

pub(super) mod columnar;
mod convert;
pub(super) mod csv;
pub(super) mod ipc;
mod isolate;
pub(super) mod json;
mod json_survey;
mod numbers;
pub(super) mod parquet;
pub(super) mod text;
mod time_text;

use convert::RowErrors;
use text::raw_text;

/// Most bytes of raw text a reject keeps.
const RAW_BYTES_MAX: usize = 64 << 10;

/// Why one row was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowError {
    pub(crate) reason: RejectReason,
    pub(crate) message: String,
}

/// The columns a reader decodes: all physical ones, those asked for first.
///
/// A row is good if all its declared columns are, whichever of them a query asks for: else the same file would have other
/// rows for every query. So the rest is decoded too, where it may refuse a row.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) columns: Vec<ColumnDefinition>,
    /// How many of them were asked for.
    pub(crate) asked: usize,
    pub(crate) zone: TimeZone,
}

impl Wanted {
    /// The schema of what formats return.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(ColumnDefinition::field).collect::<Vec<_>>()))
    }
}

/// Rows as a decoder gave them, and which record of the stretch each comes from.
struct RawRows {
    /// One array per wanted column; None where the input does not have it.
    columns: Vec<Option<ArrayRef>>,
    /// Record of each row, ascending. None: row `i` is record `i`.
    records: Option<Vec<usize>>,
    /// Records that gave no row.
    errors: Vec<(usize, RowError)>,
    /// Rows that a check by the format refuses, in addition to those that do not convert.
    row_errors: RowErrors,
}

/// Where the records of a stretch are, for rejects.
trait Origin {
    /// Number of records.
    fn records(&self) -> usize;
    /// Where a person finds record `record`.
    fn place(&self, record: usize) -> String;
    /// Its raw text, or the row as JSON.
    fn raw(&self, record: usize) -> String;
}

impl RawRows {
    /// Converts to the declared types, takes out the rows that cannot be converted, and counts offsets from 0.
    fn finish(self, wanted: &Wanted, origin: &dyn Origin) -> Result<SourceBatch> {
        let rows = self.records.as_ref().map_or(origin.records(), Vec::len);
        let mut errors = self.row_errors;
        let mut columns = Vec::with_capacity(wanted.columns.len());
        for (column, array) in wanted.columns.iter().zip(self.columns) {
            let mut found = RowErrors::default();
            let array = match array {
                Some(array) => convert::convert(&array, &column.data_type, &wanted.zone, &mut found)?,
                None => convert::missing(&column.data_type, rows),
            };
            for (row, error) in found.into_map() {
                errors.add(row, &column.name, error);
            }
            if column.not_null {
                note_nulls(&array, &column.name, &mut errors);
            }
            columns.push(array);
        }
        let batch = keep_good(wanted, columns, rows, &errors)?;
        let record = |row: usize| self.records.as_ref().map_or(row, |records| records[row]);
        let kept = || (0..rows).filter(|row| !errors.contains(*row)).map(|row| record(row) as i64).collect();
        let offsets = match self.errors.is_empty() && errors.is_empty() {
            true => Offsets::From(0),
            false => Offsets::Each(kept()),
        };
        let mut bad = self.errors;
        bad.extend(errors.into_map().into_iter().map(|(row, error)| (record(row), error)));
        bad.sort_by_key(|(record, _)| *record);
        let rejects = bad
            .into_iter()
            .map(|(record, error)| Reject {
                offset: record as i64,
                reason: error.reason,
                message: error.message,
                place: origin.place(record),
                raw: origin.raw(record),
            })
            .collect();
        let next = Position { offset: origin.records() as i64, token: String::new() };
        Ok(SourceBatch { rows: batch, offsets, rejects, notes: Notes::default(), bytes: 0, next })
    }
}

/// The rows of `rows`, ascending, with an instant that no row may hold (T1), and why. What the formats decode has none.
///
/// # Errors
/// `Internal` if a column is no column.
pub(crate) fn beyond_years(rows: &RecordBatch) -> Result<BTreeMap<usize, RowError>> {
    let mut errors = RowErrors::default();
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        if convert::holds_instants(field.data_type()) {
            let mut found = RowErrors::default();
            convert::convert(column, field.data_type(), &TimeZone::UTC, &mut found)?;
            for (row, error) in found.into_map() {
                errors.add(row, field.name(), error);
            }
        }
    }
    Ok(errors.into_map())
}

/// One row as JSON, instants that no calendar shows as the numbers they are; or as close to it as its types allow.
pub(crate) fn row_as_json(row: &RecordBatch) -> String {
    let shown = with_numbers_for_instants(row);
    let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
    match writer.write(&shown).and_then(|()| writer.finish()) {
        Ok(()) => raw_text(writer.into_inner().trim_ascii_end()),
        Err(_) => {
            let cells = shown.schema_ref().fields().iter().zip(shown.columns()).map(|(field, column)| {
                let value = arrow::util::display::array_value_to_string(column, 0).unwrap_or_default();
                format!("{}: {value}", field.name())
            });
            cells.collect::<Vec<_>>().join(", ")
        }
    }
}

fn with_numbers_for_instants(row: &RecordBatch) -> RecordBatch {
    let plain = FormatOptions::new();
    let cell = |column: &ArrayRef| {
        let unshown = matches!(column.data_type(), DataType::Timestamp(_, _))
            && ArrayFormatter::try_new(column, &plain).is_ok_and(|f| f.value(0).try_to_string().is_err());
        let number = if unshown { cast(column, &DataType::Int64).ok() } else { None };
        number.unwrap_or_else(|| Arc::clone(column))
    };
    let schema = row.schema();
    let cells = schema.fields().iter().zip(row.columns()).map(|(field, column)| (field.name(), cell(column), true));
    RecordBatch::try_from_iter_with_nullable(cells).unwrap_or_else(|_| row.clone())
}

fn note_nulls(array: &ArrayRef, column: &str, errors: &mut RowErrors) {
    if array.null_count() == 0 {
        return;
    }
    for row in (0..array.len()).filter(|row| array.is_null(*row)) {
        let message = "NULL in a column that is NOT NULL".to_string();
        errors.add(row, column, RowError { reason: RejectReason::Type, message });
    }
}

/// The `rows` rows without those of `errors`, as what was declared.
fn keep_good(wanted: &Wanted, columns: Vec<ArrayRef>, rows: usize, errors: &RowErrors) -> Result<RecordBatch> {
    let internal = |e| Error::internal("decoded columns do not fit the declared schema").with_source(e);
    let (columns, kept) = match errors.is_empty() {
        true => (columns, rows),
        false => {
            let keep: BooleanArray = (0..rows).map(|row| Some(!errors.contains(row))).collect();
            let columns = columns.iter().map(|column| filter(column, &keep)).collect::<Result<_, _>>();
            (columns.map_err(internal)?, keep.true_count())
        }
    };
    let options = RecordBatchOptions::new().with_row_count(Some(kept));
    RecordBatch::try_new_with_options(wanted.schema(), columns, &options).map_err(internal)
}

/// The decoder's type of a wanted column, see [`convert::text_type`].
fn decoder_type(column: &ColumnDefinition, integers_as_text: bool) -> DataType {
    convert::text_type(&column.data_type, integers_as_text)
}
