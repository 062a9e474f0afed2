//! Where rows come from and go to.
//!
//! A [`Source`] is one named input. It has [`Split`]s, each an ordered sequence of rows with an offset per row, and a
//! [`SplitReader`] reads one of them. A reader decodes and isolates bad rows; it knows nothing of event time,
//! watermarks or windows. Who reads which split next is decided by `runtime`, never here.
//!
//! Decoding is the expensive part, so a reader hands it to the [`DecodePool`] it was given and yields the results in
//! arrival order.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub mod coverage;
pub mod definition;
pub mod file;
mod formats;
pub mod generator;
pub mod location;
pub mod memory;
mod pipeline;
pub mod push;
mod records;
pub mod registry;
pub mod stdin;
#[cfg(test)]
pub(crate) mod testing;

pub use coverage::{Compared, Coverage, CoveredFile};
pub use definition::{ColumnDefinition, SourceDefinition};
pub use file::FileSource;
pub(crate) use file::near_file;
pub use generator::GeneratorSource;
pub use location::BatchLocation;
pub use memory::MemorySource;
pub use push::{PushHandle, PushOptions, PushSource};
pub use registry::ConnectorRegistry;
pub use stdin::StdinSource;

pub(crate) use formats::{RowError, row_as_json};

/// Whether a source ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundedness {
    /// It ends: its splits are fixed when a job starts (T6), and after the last row the watermark is +infinity.
    Bounded,
    /// It goes on: more rows and more splits may come at any time.
    Live,
}

/// One unit of source parallelism. Names are unique within a source and order ties (T5).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Split {
    /// Stable name: a path, a partition number, `push`.
    pub name: Arc<str>,
}

/// Where to go on reading a split: what the connector needs, as text it alone understands, and the next row's offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Offset of the next row, counted from 0 over the split's rows, rejected ones included.
    pub offset: i64,
    /// The connector's own coordinates, for example a file name and a byte.
    pub token: String,
}

/// A row that could not be decoded (T8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The row's offset in its split.
    pub offset: i64,
    /// Why it was rejected.
    pub reason: RejectReason,
    /// What was wrong, for a person.
    pub message: String,
    /// Where a person finds it: `orders.jsonl:17`.
    pub place: String,
    /// The raw text, or the row as JSON.
    pub raw: String,
}

/// Why a row was rejected; the text of the `reason` column in `s$rejects`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    /// The row is not a row of the format at all.
    Malformed,
    /// A value is of another type than declared.
    Type,
    /// A value is outside its type's range.
    Range,
    /// The event time is NULL.
    NullTime,
    /// The event time is further ahead of the clock than `max_future`.
    Future,
    /// Not a row but a result: a sum, or what was computed from one, does not fit its type, and is NULL.
    Overflow,
    /// An expression of the source or the view failed on the row, or on a result, where its value is NULL.
    Computation,
}

impl RejectReason {
    /// The text of the `reason` column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Type => "type",
            Self::Range => "range",
            Self::NullTime => "null_time",
            Self::Future => "future",
            Self::Overflow => "overflow",
            Self::Computation => "computation",
        }
    }
}

/// Offsets of the rows of a [`SourceBatch`], ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offsets {
    /// Row `i` has offset `first + i`: no row of the range was rejected.
    From(i64),
    /// One offset per row.
    Each(Vec<i64>),
}

impl Offsets {
    /// The offset of row `row`.
    pub fn get(&self, row: usize) -> i64 {
        match self {
            Self::From(first) => first + row as i64,
            Self::Each(offsets) => offsets[row],
        }
    }

    /// The offsets of `rows` rows moved up by `by`, those below `skip_below` left out; and how many these were.
    fn moved(self, by: i64, rows: usize, skip_below: i64) -> (Self, usize) {
        match self {
            Self::From(first) => {
                let first = first + by;
                let skipped = usize::try_from(skip_below.saturating_sub(first)).unwrap_or(0).min(rows);
                (Self::From(first + skipped as i64), skipped)
            }
            Self::Each(mut offsets) => {
                offsets.iter_mut().for_each(|offset| *offset += by);
                let skipped = offsets.partition_point(|offset| *offset < skip_below);
                offsets.drain(..skipped);
                (Self::Each(offsets), skipped)
            }
        }
    }

    /// The offsets of rows `from..to`.
    fn slice(&self, from: usize, to: usize) -> Self {
        match self {
            Self::From(first) => Self::From(first + from as i64),
            Self::Each(offsets) => match &offsets[from..to] {
                [first, .., last] if last - first + 1 == (to - from) as i64 => Self::From(*first),
                [first] => Self::From(*first),
                each => Self::Each(each.to_vec()),
            },
        }
    }
}

/// Decoded rows of one split, in the order of their offsets.
#[derive(Debug, Clone)]
pub struct SourceBatch {
    /// Rows with the columns asked for in [`ReadOptions::projection`], in that order.
    pub rows: RecordBatch,
    /// Their offsets.
    pub offsets: Offsets,
    /// Rows of the same stretch of the split that could not be decoded, ascending by offset.
    pub rejects: Vec<Reject>,
    /// What else a person should know about this stretch.
    pub notes: Notes,
    /// Bytes read from the source for this stretch.
    pub bytes: u64,
    /// Where reading goes on after this batch.
    pub next: Position,
}

impl SourceBatch {
    /// Rows with an instant that no row may hold (T1), and why. What the engine's own formats read has none: this is for
    /// rows that come as they are, from a program or from a source of its own.
    ///
    /// # Errors
    /// `Internal` if a column is none that a source may have.
    pub(crate) fn beyond_years(&self) -> Result<BTreeMap<usize, RowError>> {
        formats::beyond_years(&self.rows)
    }

    /// The batch without the rows of `bad`.
    pub(crate) fn without(self, bad: &BTreeMap<usize, RowError>) -> Result<Self> {
        if bad.is_empty() {
            return Ok(self);
        }
        let rows = 0..self.rows.num_rows();
        let offsets = rows.clone().filter(|row| !bad.contains_key(row)).map(|row| self.offsets.get(row)).collect();
        let keep: BooleanArray = rows.map(|row| Some(!bad.contains_key(&row))).collect();
        let kept = filter_record_batch(&self.rows, &keep)
            .map_err(|e| Error::internal("could not take rows out of a batch").with_source(e))?;
        Ok(Self { rows: kept, offsets: Offsets::Each(offsets), ..self })
    }
}

/// Counts of things that happened while reading and that are no rejects. They are summed, never judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Notes {
    /// Fields that no column declares, one per row and field.
    pub ignored_fields: u64,
    /// Files that became shorter while they were followed and were read again from their start.
    pub truncated_files: u64,
    /// Files that were moved away while they were followed, and whose place a new one took.
    pub rotated_files: u64,
    /// Files that turned up or grew behind the place reached in name order: what came late is not read.
    pub skipped_files: u64,
}

/// `2 fields ignored, 1 file rotated`; what is zero is left out.
impl std::fmt::Display for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ignored_fields, truncated_files, rotated_files, skipped_files } = *self;
        let counts = [
            (ignored_fields, "field", "ignored"),
            (truncated_files, "file", "truncated"),
            (rotated_files, "file", "rotated"),
            (skipped_files, "file", "skipped"),
        ];
        for (i, (n, thing, what)) in counts.into_iter().filter(|(n, ..)| *n > 0).enumerate() {
            let (comma, plural) = (if i > 0 { ", " } else { "" }, if n == 1 { "" } else { "s" });
            write!(f, "{comma}{n} {thing}{plural} {what}")?;
        }
        Ok(())
    }
}

impl std::ops::AddAssign for Notes {
    fn add_assign(&mut self, other: Self) {
        self.ignored_fields += other.ignored_fields;
        self.truncated_files += other.truncated_files;
        self.rotated_files += other.rotated_files;
        self.skipped_files += other.skipped_files;
    }
}

/// What a split has taken in so far, wherever its readers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Offset of the row that comes next.
    pub next_offset: i64,
    /// The highest watermark the source itself has said, µs; `i64::MIN` without one.
    pub watermark_us: i64,
    /// Whether it has ended.
    pub ended: bool,
}

/// What a reader had when asked.
#[derive(Debug)]
pub enum SplitEvent {
    /// Rows, or rejects, or both.
    Rows(SourceBatch),
    /// The source itself says that no row with event time below this (µs) follows in this split. It holds for the rows
    /// read after it, never for those before (C125).
    Watermark(i64),
    /// Something happened while reading that is no row: a file was skipped, say.
    Notes(Notes),
    /// It was asked and had nothing (T7). Live splits only. The reader itself waits a little before it says so.
    Nothing,
    /// The split has ended and will never have another row.
    End,
}

/// Work that turns raw bytes into batches, one or several that follow each other. Each counts offsets from 0.
pub type DecodeJob = Box<dyn FnOnce() -> Result<Vec<SourceBatch>> + Send>;

/// Runs [`DecodeJob`]s, several at a time. Implemented by `runtime`, so that all spawning stays there.
pub trait DecodePool: Debug + Send + Sync {
    /// Starts `job` and resolves to its batches. Dropping the future does not cancel the job.
    fn run(&self, job: DecodeJob) -> BoxFuture<'static, Result<Vec<SourceBatch>>>;

    /// How many jobs are worth having in flight at once.
    fn parallelism(&self) -> usize;
}

/// How a split is to be read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Indices into [`Source::schema`] of the columns wanted, ascending.
    pub projection: Vec<usize>,
    /// Most rows in a batch. Live readers return what they have rather than wait for a full one.
    pub batch_rows: usize,
    /// Where decoding runs.
    pub pool: Arc<dyn DecodePool>,
}

impl ReadOptions {
    /// How many jobs of one split decode or wait at once: one more than run, so that none has to be waited for.
    pub(crate) fn jobs_in_flight(&self) -> usize {
        self.pool.parallelism() + 1
    }
}

/// One named input: a file or folder, a generator, stdin, rows pushed from Rust, or an embedder's own.
///
/// # Guarantees an implementation gives
///
/// Reading a split twice from the same [`Position`] yields the same rows with the same offsets, unless
/// [`Source::replayable`] says no. Offsets start at 0, rise by one per row, and count rejected rows.
#[async_trait]
pub trait Source: std::any::Any + Debug + Send + Sync {
    /// The declared physical columns (not computed ones), with event times already as timestamp µs UTC.
    fn schema(&self) -> SchemaRef;

    /// Whether it ends by itself.
    fn boundedness(&self) -> Boundedness;

    /// Whether it can be read again from its beginning.
    fn replayable(&self) -> bool {
        true
    }

    /// Its splits now, in name order. For a bounded source the first answer is final; a live one is asked again.
    async fn splits(&self) -> Result<Vec<Split>>;

    /// Opens one split at `from`, or at its beginning.
    async fn open(&self, split: &Split, from: Option<&Position>, options: ReadOptions) -> Result<Box<dyn SplitReader>>;

    /// Size in bytes of what is left to read, for progress bars, where it is known.
    fn total_bytes(&self) -> Option<u64> {
        None
    }

    /// The source as it is at this moment, bounded, for a batch run: whatever comes later is not in it. `None`: its rows
    /// cannot be read a second time, or not from a fixed state.
    async fn pinned(&self) -> Result<Option<PinnedSource>> {
        Ok(None)
    }

    /// The source as it was when `coverage` was pinned, whatever has come or grown since. `None`: it is as it was.
    ///
    /// # Errors
    /// `Corrupt` if `coverage` is none of this source.
    fn covering(&self, _coverage: &Coverage) -> Result<Option<Arc<dyn Source>>> {
        Ok(None)
    }

    /// The source without what holds no row with an event time in `[from, to)`, µs, as it knows without reading any. `None`:
    /// it does not.
    fn within(&self, _times: (Option<i64>, Option<i64>)) -> Option<PinnedSource> {
        None
    }

    /// What `split` has taken in by now, where the source knows that before anybody reads it. An epoch asked for by hand
    /// covers all of it. `None`: such an epoch covers what has been read.
    fn accepted(&self, _split: &str) -> Option<Accepted> {
        None
    }

    /// A job that read this source has failed and its readers are going away. A source whose rows come from callers
    /// tells them why, unless another job reads it.
    fn on_job_failed(&self, _why: &str) {}

    /// The way to put rows in, if rows are pushed into this source: what `INSERT INTO` uses.
    fn push_handle(&self) -> Option<PushHandle> {
        None
    }
}

/// A source at one moment.
#[derive(Debug, Clone)]
pub struct PinnedSource {
    /// What there was.
    pub coverage: Coverage,
    /// Reads exactly that. It is bounded.
    pub source: Arc<dyn Source>,
    /// Local paths of its files, where it is made of some.
    pub paths: Vec<String>,
}

/// Reads one split.
#[async_trait]
pub trait SplitReader: Send {
    /// The next batch. Cancel-safe: a dropped call loses nothing.
    async fn next(&mut self) -> Result<SplitEvent>;
}

/// `WITH ( … )` options by lower-case name, and Flink's names where one exists.
pub type Options = BTreeMap<String, String>;

/// `rows` with only the columns of `projection`; keeps the number of rows even where no column is asked for.
pub(crate) fn project(rows: &RecordBatch, projection: &[usize]) -> Result<RecordBatch> {
    rows.project(projection).map_err(|e| Error::internal("could not project a source's batch").with_source(e))
}
