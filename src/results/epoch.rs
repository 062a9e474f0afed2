//! What a job hands over for one epoch, and what it gets back.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use bytes::Bytes;
use object_store::path::Path;

use crate::operators::fate::FateCounts;

/// Everything one epoch publishes. It becomes visible as a whole or not at all.
#[derive(Debug, Clone, Default)]
pub struct Epoch {
    /// Its number: one more than the last ([`ViewWriter::next_epoch`](super::ViewWriter::next_epoch)).
    pub number: u64,
    /// New versions. Columns are found by name: the SELECT columns, `_key_<name>`s, `_window_start`, `_window_end`,
    /// `_version`, `_event_count`, `_deleted`, `_reason`; optionally `_supersedes` (default NULL), `_is_final`
    /// (default false) and `_nth` (UInt8, default 0: which of the epoch's at most three versions of its identity).
    pub versions: Vec<RecordBatch>,
    /// Refused rows: the source's columns, then `_window_start`, `_window_end`, `_pairs`, `_late_by_us`, `_fate`
    /// (`side_output`, `queued`), `_reason` (`late`, `expired`), `_split`, `_offset`, `_seq`, `_seen_at`.
    pub late: Vec<RecordBatch>,
    /// Rejected rows by source, shaped as [`rejects_schema`](super::schema::rejects_schema).
    pub rejects: BTreeMap<String, Vec<RecordBatch>>,
    /// Status of the windows that changed, shaped as [`window_status_schema`](super::schema::window_status_schema).
    /// The newest row of a window replaces the one before.
    pub windows: Vec<RecordBatch>,
    /// What a batch run made of windows, shaped as [`window_runs_schema`](super::schema::window_runs_schema). The newest row
    /// of a window replaces the one before.
    pub runs: Vec<RecordBatch>,
    /// Totals of the job up to and including this epoch.
    pub counts: FateCounts,
    /// The job's own state, kept and not looked at.
    pub job: serde_json::Value,
    /// Files of the job's own, by path in the storage: they are written beside the data files, before the manifest.
    pub files: Vec<(Path, Bytes)>,
}

/// An epoch that is decided: durable, and seen by readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedEpoch {
    /// Its number.
    pub number: u64,
    /// `_computed_at` of its first versions, µs UTC.
    pub stamp_us: i64,
    /// Versions published.
    pub rows: u64,
    /// Bytes written to data files.
    pub bytes: u64,
}
