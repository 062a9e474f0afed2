//! Results that an expression failed on: a sum that does not fit its type, a division by zero in SELECT or HAVING.
//!
//! The window lives on and the job with it; the value is NULL, and what failed becomes a row of the rejects of the view's first
//! source, where people look for what could not be used.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::error::DataFusionError;

use super::eval;
use crate::connectors::{RejectReason, row_as_json};
use crate::error::Error;

/// A result an expression failed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedResult {
    /// The end of its window, µs.
    pub window_end: i64,
    /// [`RejectReason::Overflow`] or [`RejectReason::Computation`].
    pub reason: RejectReason,
    /// What failed, for a person.
    pub message: String,
    /// Window, key and aggregates, as JSON.
    pub raw: String,
}

impl FailedResult {
    /// The result in row `row` of `results`, of which an expression said `error`.
    pub fn new(results: &RecordBatch, row: u32, error: &Error) -> Self {
        let ends = ["_window_end", "window_end"].iter().find_map(|name| results.column_by_name(name));
        let ends = ends.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        Self {
            window_end: ends.map_or(0, |ends| ends.value(row as usize)),
            reason: if is_overflow(error) { RejectReason::Overflow } else { RejectReason::Computation },
            message: error.message().to_owned(),
            raw: row_as_json(&results.slice(row as usize, 1)),
        }
    }
}

/// Whether a number left its type somewhere below `error`.
fn is_overflow(error: &Error) -> bool {
    let root = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DataFusionError>());
    let Some(DataFusionError::ArrowError(arrow, _)) = root.map(DataFusionError::find_root) else { return false };
    eval::is_overflow(arrow)
}
