//! What flows out of an operator that keeps windows: upserts and deletes of rows by (window, key).
//!
//! A [`Changes`] batch says "these identities now have these values" or "these identities no longer hold". It does not
//! number versions, and it does not know what was published before: `operators::publish` does both.

use arrow::array::RecordBatch;

/// Why a value is published now. Names are those of the `_reason` column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Before the window closed, under `EMIT CHANGES`.
    Early,
    /// At the close (or, under `EMIT ON EXPIRY`, at the expiry) of the window.
    Initial,
    /// Late rows were folded in.
    LateData,
}

impl Reason {
    /// The text of the `_reason` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Initial => "initial",
            Self::LateData => "late_data",
        }
    }
}

/// Whether the rows of a [`Changes`] hold or no longer hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Each row is the full, corrected value of its identity (L1).
    Upsert,
    /// Each row's identity no longer holds (L4). Value columns are those of the last upsert where known, else null.
    Delete,
}

/// Rows of one kind and one reason.
///
/// Shape: `window_start`, `window_end` (timestamp µs UTC), the group keys, the aggregate results, and `_event_count`
/// last; see `operators::graph::AggregateSpec::output_schema`. Each identity appears at most once.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Upserts or deletes.
    pub kind: ChangeKind,
    /// Why.
    pub reason: Reason,
    /// The rows.
    pub rows: RecordBatch,
}
