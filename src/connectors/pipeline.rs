//! Decoding on several cores, rows in arrival order.
//!
//! ```text
//!  Producer ──► DecodeJob ──► DecodePool ─┐
//!           ──► DecodeJob ──► DecodePool ─┼─► in order ─► offsets, metadata, batch_rows ─► next()
//!           ──► DecodeJob ──► DecodePool ─┘
//! ```
//!
//! A [`Producer`] cuts its input into stretches; each is decoded by a job that counts offsets from 0; the [`Pipeline`] puts
//! the results into order, moves their offsets to their place in the split, adds metadata columns, and cuts them to the
//! reader's batch size. Batch size and number of jobs change no row and no offset. It knows nothing of files or formats.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::file::value_in_folder;
use super::formats::Wanted;
use super::{ColumnDefinition, DecodeJob, Notes, Offsets, Position, ReadOptions, SourceBatch, SplitEvent, SplitReader};
use crate::error::{Error, ErrorKind, Result, nearest};
use crate::time::{Unit, unit_hint};

/// Metadata keys a column can be declared with.
const METADATA_KEYS: &[&str] = &["file", "file.name", "file.path", "offset", "split"];

/// A place where reading can begin: the text of a [`Position`]'s token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Name of the file within its source.
    pub(crate) file: Arc<str>,
    /// Byte of the uncompressed file, for text.
    #[serde(default)]
    pub(crate) byte: u64,
    /// Number of the line that begins there, from 1, for text.
    #[serde(default)]
    pub(crate) line: u64,
    /// Piece of the file, for Parquet and Arrow.
    #[serde(default)]
    pub(crate) piece: u64,
    /// Row of the file with which it begins, for Parquet and Arrow; row of the split, for generated rows.
    #[serde(default)]
    pub(crate) row: u64,
    /// Offset of the row that begins there.
    pub(crate) offset: i64,
    /// The file's header line, for CSV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) header: Option<Arc<str>>,
    /// Device and inode of the file, where it is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<(u64, u64)>,
    /// Files before it in name order had last been touched at this time, µs, where they are followed: one touched later has
    /// rows that were not read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) behind_us: i64,
}

fn is_zero(us: &i64) -> bool {
    *us == 0
}

impl Place {
    /// The place a position of ours tells.
    ///
    /// # Errors
    /// `Corrupt` if the token is none of ours.
    pub(crate) fn of(position: &Position) -> Result<Self> {
        serde_json::from_str(&position.token).map_err(|e| {
            Error::new(ErrorKind::Corrupt, format!("`{}` is no position of this source", position.token)).with_source(e)
        })
    }

    fn position(&self, offset: i64) -> Position {
        // A struct of numbers and texts always has a JSON form.
        let token = serde_json::to_string(self).unwrap_or_default();
        Position { offset, token }
    }
}

/// One stretch of input on its way.
pub(crate) struct Stretch {
    pub(crate) job: DecodeJob,
    /// Where it begins; `offset` is set when its turn comes.
    pub(crate) start: Place,
    /// Where the next one begins.
    pub(crate) end: Place,
    /// Full path of the file, for metadata columns.
    pub(crate) path: Arc<str>,
}

/// What a producer had when asked.
pub(crate) enum Produced {
    Stretch(Box<Stretch>),
    /// Something happened that is no row.
    Notes(Notes),
    /// Nothing now; it has waited a little already.
    Nothing,
    /// Nothing ever again.
    End,
}

/// Cuts input into stretches, in order.
#[async_trait]
pub(crate) trait Producer: Send {
    /// The next stretch. Cancel-safe: a dropped call loses nothing.
    async fn produce(&mut self) -> Result<Produced>;
}

/// Which of a source's columns a reader yields, and where each comes from.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    schema: SchemaRef,
    columns: Vec<Origin>,
    pub(crate) wanted: Wanted,
}

#[derive(Debug, Clone)]
enum Origin {
    /// Index into the decoded columns.
    Decoded(usize),
    /// A metadata key.
    Metadata(String),
}

impl Shape {
    /// The columns `projection` of `columns`.
    pub(crate) fn new(columns: &[ColumnDefinition], projection: &[usize], zone: &TimeZone) -> Self {
        let mut wanted = Vec::new();
        let mut origins = Vec::new();
        let mut fields = Vec::new();
        for column in projection.iter().map(|i| &columns[*i]) {
            fields.push(column.field());
            match &column.metadata {
                Some(key) => origins.push(Origin::Metadata(key.clone())),
                None => {
                    origins.push(Origin::Decoded(wanted.len()));
                    wanted.push(column.clone());
                }
            }
        }
        let asked = wanted.len();
        let rest =
            columns.iter().enumerate().filter(|(i, column)| column.metadata.is_none() && !projection.contains(i));
        wanted.extend(rest.map(|(_, column)| column.clone()));
        let wanted = Wanted { columns: wanted, asked, zone: zone.clone() };
        Self { schema: Arc::new(Schema::new(fields)), columns: origins, wanted }
    }

    /// Refuses metadata keys we do not have.
    ///
    /// # Errors
    /// `Invalid` naming the column.
    pub(crate) fn check_metadata(columns: &[ColumnDefinition]) -> Result<()> {
        for column in columns {
            let Some(key) = column.metadata.as_deref().filter(|key| !METADATA_KEYS.contains(key)) else { continue };
            let error = Error::invalid(format!("column `{}`: there is no metadata '{key}'", column.name));
            return Err(match nearest(key, METADATA_KEYS) {
                Some(near) => error.with_hint(format!("did you mean '{near}'?")),
                None => error.with_hint(format!("there are {}", METADATA_KEYS.join(", "))),
            });
        }
        Ok(())
    }
}

type InFlight = FuturesOrdered<BoxFuture<'static, Result<Vec<SourceBatch>>>>;

/// Reads one split through a producer.
pub(crate) struct Pipeline<P> {
    producer: P,
    split: Arc<str>,
    shape: Shape,
    options: ReadOptions,
    in_flight: InFlight,
    waiting: VecDeque<Tail>,
    ready: VecDeque<SourceBatch>,
    /// What happened and has not been told.
    noted: Notes,
    /// Offset of the next record.
    offset: i64,
    /// Records below this offset were read before the position we started from.
    skip_below: i64,
    ended: bool,
    /// Whether the times of the first rows have been looked at.
    looked: bool,
}

/// What is kept of a stretch while its job runs.
struct Tail {
    start: Place,
    end: Place,
    path: Arc<str>,
}

impl<P: Producer> Pipeline<P> {
    /// A reader whose first stretch begins at the offset of `from`'s place.
    ///
    /// # Errors
    /// `Corrupt` if `from` is no position of ours.
    pub(crate) fn try_new(
        producer: P,
        split: Arc<str>,
        shape: Shape,
        options: ReadOptions,
        from: Option<&Position>,
    ) -> Result<Self> {
        let (offset, skip_below) = match from {
            Some(position) => (Place::of(position)?.offset, position.offset),
            None => (0, 0),
        };
        Ok(Self {
            producer,
            split,
            shape,
            options,
            in_flight: InFlight::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            noted: Notes::default(),
            offset,
            skip_below,
            ended: false,
            looked: false,
        })
    }

    /// Takes what the producer had. False if it had nothing.
    fn start(&mut self, produced: Produced) -> bool {
        match produced {
            Produced::Stretch(stretch) => {
                let Stretch { job, start, end, path } = *stretch;
                self.in_flight.push_back(self.options.pool.run(job));
                self.waiting.push_back(Tail { start, end, path });
                return true;
            }
            Produced::Notes(notes) => {
                self.noted += notes;
                return true;
            }
            Produced::Nothing => {}
            Produced::End => self.ended = true,
        }
        false
    }

    fn finish(&mut self, batches: Vec<SourceBatch>) -> Result<()> {
        let mut tail = self.waiting.pop_front().ok_or_else(|| Error::internal("a job without its stretch"))?;
        tail.start.offset = self.offset;
        let parts = batches.len();
        for (part, batch) in batches.into_iter().enumerate() {
            let placed = self.place(batch, &tail, part + 1 == parts)?;
            self.ready.extend(placed);
        }
        Ok(())
    }

    async fn finish_first(&mut self) -> Result<bool> {
        match self.in_flight.next().await {
            Some(batches) => self.finish(batches?).map(|()| true),
            None => Ok(false),
        }
    }

    /// Moves a part of a decoded stretch to its place and cuts it.
    fn place(&mut self, batch: SourceBatch, tail: &Tail, is_last: bool) -> Result<Vec<SourceBatch>> {
        let first = self.offset;
        self.offset += batch.next.offset;
        let start = tail.start.clone();
        // Reading goes on within the stretch, from whose start it is decoded again, or behind it.
        let end = match is_last {
            true => Place { offset: self.offset, ..tail.end.clone() },
            false => start.clone(),
        };
        let notes = batch.notes;

        let (offsets, skipped) = batch.offsets.moved(first, batch.rows.num_rows(), self.skip_below);
        let decoded = batch.rows.slice(skipped, batch.rows.num_rows() - skipped);
        let mut rejects = batch.rejects;
        rejects.iter_mut().for_each(|reject| reject.offset += first);
        rejects.retain(|reject| reject.offset >= self.skip_below);
        if decoded.num_rows() == 0 && rejects.is_empty() && notes == Notes::default() {
            return Ok(vec![]);
        }
        if !self.looked && decoded.num_rows() > 0 {
            self.looked = true;
            warn_of_units(&decoded, &self.shape.wanted);
        }
        let rows = self.with_metadata(&decoded, &offsets, &start.file, &tail.path)?;
        let whole = Whole { rows, offsets, rejects, start, end, next: self.offset, bytes: batch.bytes, notes };
        Ok(whole.cut(self.options.batch_rows.max(1)))
    }

    fn with_metadata(&self, decoded: &RecordBatch, offsets: &Offsets, file: &str, path: &str) -> Result<RecordBatch> {
        let rows = decoded.num_rows();
        let column = |origin: &Origin, at: usize| -> Result<ArrayRef, arrow::error::ArrowError> {
            let text = |value: &str| Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, rows)));
            let value: ArrayRef = match origin {
                Origin::Decoded(at) => return Ok(Arc::clone(decoded.column(*at))),
                Origin::Metadata(key) if let Some(value) = value_in_folder(key, path) => {
                    let values: ArrayRef = Arc::new(StringArray::from_iter(std::iter::repeat_n(value, rows)));
                    let strict = CastOptions { safe: false, ..CastOptions::default() };
                    return cast_with_options(&values, self.shape.schema.field(at).data_type(), &strict);
                }
                Origin::Metadata(key) => match key.as_str() {
                    "offset" => Arc::new(Int64Array::from_iter_values((0..rows).map(|row| offsets.get(row)))),
                    "split" => text(&self.split),
                    "file.path" => text(path),
                    "file.name" => text(file.rsplit('/').next().unwrap_or(file)),
                    _ => text(file),
                },
            };
            cast(&value, self.shape.schema.field(at).data_type())
        };
        let columns = self.shape.columns.iter().enumerate().map(|(at, origin)| column(origin, at));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        columns
            .collect::<Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new_with_options(Arc::clone(&self.shape.schema), columns, &options))
            .map_err(|e| Error::invalid("a metadata column has a type its value does not fit").with_source(e))
    }
}

/// Says so if the first times look as if they were integers of another unit than declared (T8, C76).
fn warn_of_units(first: &RecordBatch, wanted: &Wanted) {
    const SAMPLE_ROWS: usize = 100;
    for (column, array) in wanted.columns.iter().zip(first.columns()) {
        let DataType::Timestamp(unit, _) = column.data_type else { continue };
        let (declared, to_integer): (Unit, fn(i64) -> i64) = match unit {
            TimeUnit::Second => (Unit::Seconds, |us| us / 1_000_000),
            TimeUnit::Millisecond => (Unit::Millis, |us| us / 1_000),
            TimeUnit::Microsecond => (Unit::Micros, |us| us),
            TimeUnit::Nanosecond => (Unit::Nanos, |us| us.saturating_mul(1_000)),
        };
        let times = array.as_primitive::<TimestampMicrosecondType>();
        let sample: Vec<i64> = times.iter().flatten().take(SAMPLE_ROWS).map(to_integer).collect();
        if let Some(hint) = unit_hint(&sample, declared) {
            tracing::warn!(column = %column.name, "{hint}");
        }
    }
}

/// A placed part of a stretch before it is cut.
struct Whole {
    rows: RecordBatch,
    offsets: Offsets,
    rejects: Vec<super::Reject>,
    start: Place,
    end: Place,
    /// Offset of the record behind it.
    next: i64,
    bytes: u64,
    notes: Notes,
}

impl Whole {
    fn cut(self, batch_rows: usize) -> Vec<SourceBatch> {
        let rows = self.rows.num_rows();
        let pieces = rows.div_ceil(batch_rows).max(1);
        let mut rejects = self.rejects.into_iter().peekable();
        let mut cut = Vec::with_capacity(pieces);
        for piece in 0..pieces {
            let from = piece * batch_rows;
            let to = rows.min(from + batch_rows);
            let last = piece + 1 == pieces;
            let next = if last { self.end.position(self.next) } else { self.start.position(self.offsets.get(to)) };
            let offsets = self.offsets.slice(from, to);
            cut.push(SourceBatch {
                rows: self.rows.slice(from, to - from),
                offsets,
                rejects: std::iter::from_fn(|| rejects.next_if(|r| r.offset < next.offset)).collect(),
                notes: if piece == 0 { self.notes } else { Notes::default() },
                bytes: if piece == 0 { self.bytes } else { 0 },
                next,
            });
        }
        cut
    }
}

#[async_trait]
impl<P: Producer> SplitReader for Pipeline<P> {
    async fn next(&mut self) -> Result<SplitEvent> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(SplitEvent::Rows(batch));
            }
            if self.noted != Notes::default() {
                return Ok(SplitEvent::Notes(std::mem::take(&mut self.noted)));
            }
            let room = !self.ended && self.in_flight.len() < self.options.jobs_in_flight();
            if !room {
                if !self.finish_first().await? {
                    return Ok(SplitEvent::End);
                }
            } else if self.in_flight.is_empty() {
                let produced = self.producer.produce().await?;
                if !self.start(produced) && !self.ended {
                    return Ok(SplitEvent::Nothing);
                }
            } else {
                // Starting more work goes first, as long as the input is at hand.
                tokio::select! {
                    biased;
                    produced = self.producer.produce() => {
                        if !self.start(produced?) && !self.ended {
                            self.finish_first().await?;
                        }
                    }
                    Some(batches) = self.in_flight.next() => self.finish(batches?)?,
                }
            }
        }
    }
}
