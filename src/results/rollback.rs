//! Versions that repeat older ones.
//!
//! ```text
//!   version value reason                    TO VERSION 1 appends
//!   1       500   initial
//!   2       525   late_data            ─►   3  500  rollback
//! ```
//!
//! Nothing published is taken back: a rollback appends, with the next number, what an older version said, finality and
//! deletion included. An identity that had no version at the time asked for gets a deleted one.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use arrow::row::{RowConverter, SortField};

use super::files::arrow_error;
use super::reader::ViewReader;
use super::schema::{StoredSchema, column};
use crate::error::{Error, Result};

/// What to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackTo {
    /// The version of this number.
    Version(i64),
    /// What was current at this instant, µs UTC, inclusive.
    Time(i64),
}

/// What a rollback appends.
#[derive(Debug, Clone)]
pub struct RolledBack {
    /// New versions, for [`Epoch::versions`](super::Epoch::versions).
    pub versions: RecordBatch,
    /// Identities that are what they were asked to be already.
    pub unchanged: usize,
}

/// The versions that take each identity of `versions` back. `versions` are all versions of the identities concerned, as
/// [`Read::All`](super::Read::All) gives them, sorted by window, key and version; whoever asks holds the view's writer.
///
/// # Errors
///
/// `Invalid` if an identity has no version of the number asked for.
pub fn roll_back(reader: &ViewReader, versions: &[RecordBatch], to: RollbackTo, reason: &str) -> Result<RolledBack> {
    let stored = &reader.shared().stored;
    let rows = concat_batches(&stored.results, versions).map_err(arrow_error)?;
    let numbers = rows.column(stored.index(column::VERSION)).as_primitive::<Int64Type>().values().clone();
    let computed = rows.column(stored.index(column::COMPUTED_AT)).as_primitive::<TimestampMicrosecondType>();
    let deleted = rows.column(stored.index(column::DELETED)).as_boolean();
    let mut taken = Taken::default();
    let mut unchanged = 0;
    for identity in identities(stored, &rows)? {
        let latest = identity.end - 1;
        let found = identity.clone().rev().find(|row| match to {
            RollbackTo::Version(number) => numbers[*row] == number,
            RollbackTo::Time(t_us) => computed.value(*row) <= t_us,
        });
        let (row, gone) = match (found, to) {
            (Some(row), _) => (row, deleted.value(row)),
            (None, RollbackTo::Time(_)) => (latest, true),
            (None, RollbackTo::Version(number)) => return Err(no_such_version(number, numbers[latest])),
        };
        let same = match gone {
            true => deleted.value(latest),
            false => row == latest || says_the_same(stored, &rows, row, latest),
        };
        match same {
            true => unchanged += 1,
            false => taken.push(row, numbers[latest] + 1, gone),
        }
    }
    Ok(RolledBack { versions: taken.into_rows(&rows, reason)?, unchanged })
}

/// Rows to repeat, with their new numbers and whether they are deleted.
#[derive(Default)]
struct Taken {
    rows: Vec<u32>,
    numbers: Vec<i64>,
    deleted: Vec<bool>,
}

impl Taken {
    fn push(&mut self, row: usize, number: i64, deleted: bool) {
        self.rows.push(row as u32);
        self.numbers.push(number);
        self.deleted.push(deleted);
    }

    fn into_rows(self, from: &RecordBatch, reason: &str) -> Result<RecordBatch> {
        let count = self.rows.len();
        let rows = take_record_batch(from, &UInt32Array::from(self.rows)).map_err(arrow_error)?;
        let schema = rows.schema();
        let columns = schema.fields().iter().zip(rows.columns()).map(|(field, array)| match field.name().as_str() {
            column::VERSION => Arc::new(Int64Array::from(self.numbers.clone())) as ArrayRef,
            column::DELETED => Arc::new(BooleanArray::from(self.deleted.clone())),
            column::REASON => Arc::new(StringArray::from(vec![reason; count])),
            _ => Arc::clone(array),
        });
        RecordBatch::try_new(Arc::clone(&schema), columns.collect()).map_err(arrow_error)
    }
}

/// Ranges of rows of one identity each.
fn identities(stored: &StoredSchema, rows: &RecordBatch) -> Result<Vec<std::ops::Range<usize>>> {
    if rows.num_rows() == 0 {
        return Ok(Vec::new());
    }
    let columns: Vec<ArrayRef> = stored.identity.iter().map(|i| Arc::clone(rows.column(*i))).collect();
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    let keys = RowConverter::new(fields).and_then(|c| c.convert_columns(&columns)).map_err(arrow_error)?;
    let mut starts: Vec<usize> = vec![0];
    starts.extend((1..rows.num_rows()).filter(|row| keys.row(row - 1) != keys.row(*row)));
    let ends = starts[1..].iter().copied().chain([rows.num_rows()]);
    Ok(starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect())
}

/// Whether two versions of an identity differ in nothing a reader of the latest sees.
fn says_the_same(stored: &StoredSchema, rows: &RecordBatch, a: usize, b: usize) -> bool {
    let flags = [column::IS_FINAL, column::DELETED, column::EVENT_COUNT].map(|name| stored.index(name));
    (0..stored.select_len).chain(flags).all(|i| rows.column(i).slice(a, 1) == rows.column(i).slice(b, 1))
}

fn no_such_version(number: i64, latest: i64) -> Error {
    let error = Error::invalid(format!("a row of the window has no version {number}: latest=`{latest}`"));
    match number < latest {
        true => error.with_hint("it is older than the view's history_retention"),
        false => error.with_hint("name the key, or see v$history for the versions there are"),
    }
}
